/* A port of driver/c to the Verilated NPU of hw/sim, and the device of an exported program on it. */
#include <stdio.h>
#include <stdlib.h>

#include "tilewright_npu_device.h"

void *tw_rtl_create(void);
uint32_t tw_rtl_read(void *handle, uint32_t offset);
void tw_rtl_write(void *handle, uint32_t offset, uint32_t value);
uint32_t tw_rtl_tick(void *handle, uint64_t cycles);
void tw_rtl_memory(void *handle, uint8_t *memory, uint64_t bytes);
void tw_rtl_timing(void *handle, uint32_t read_latency, uint32_t write_latency, double read_interval,
                   double write_interval);

#define BASE 4096u /* the pool begins here; what is below is a guard */
#define POOL (1u << 20)

static int step(void *handle, uint32_t asked) {
    (void)asked;
    tw_rtl_tick(handle, 1000);
    return 0;
}

const tw_device *tw_open_device(void) {
    static tw_npu_board board;
    static tw_device device;
    uint8_t *memory = aligned_alloc(4096, BASE + POOL);
    int result;
    if (!memory) return NULL;
    board.port.context = tw_rtl_create();
    tw_rtl_memory(board.port.context, memory, BASE + POOL);
    tw_rtl_timing(board.port.context, 64, 16, 1, 1);
    board.port.read = tw_rtl_read;
    board.port.write = tw_rtl_write;
    board.port.wait = step;
    board.pool = memory + BASE;
    board.address = BASE;
    board.size = POOL;
    result = tw_npu_open(&board.port, FINGERPRINT);
    if (result) {
        fprintf(stderr, "%s\n", tw_npu_text(result));
        return NULL;
    }
    device = tw_npu_device(&board);
    return &device;
}
