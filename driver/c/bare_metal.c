/* An example of a port: registers at a fixed address, a pool of memory that needs no cache maintenance, polling.
 *
 * Made for `make DEVICE="bare_metal.c tilewright_npu.c"` in a folder of `tilewright export-c`. The addresses are those of
 * your design: -DNPU_REGISTERS=0xA0000000 -DNPU_POOL=0x70000000 -DNPU_POOL_BYTES=0x1000000 -DNPU_LOOKS=100000000.
 */
#include "tilewright_npu_device.h"

const tw_device *tw_open_device(void);

static uint32_t read_register(void *context, uint32_t offset) {
    return *(volatile uint32_t *)((uintptr_t)context + offset);
}

static void write_register(void *context, uint32_t offset, uint32_t value) {
    *(volatile uint32_t *)((uintptr_t)context + offset) = value;
}

/* Without a clock, a run may take so many looks. With one, compare the time; with an operating system, sleep until the
 * interrupt. */
static int is_over(void *context, uint32_t asked) {
    (void)context;
    return asked >= NPU_LOOKS;
}

const tw_device *tw_open_device(void) {
    static tw_npu_board board;
    static tw_device device;
    board.port.context = (void *)(uintptr_t)NPU_REGISTERS;
    board.port.read = read_register;
    board.port.write = write_register;
    board.port.wait = is_over;
    board.pool = (uint8_t *)(uintptr_t)NPU_POOL;
    board.address = NPU_POOL;
    board.size = NPU_POOL_BYTES;
    if (tw_npu_open(&board.port, 0)) return NULL;
    device = tw_npu_device(&board);
    return &device;
}
