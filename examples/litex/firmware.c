/* Runs the network of bench.txt on the NPU of a LiteX SoC, and compares every byte. */
#include <stdint.h>

#include "bench.h" /* made of bench.txt by simulate.py: image, expected, regions, job */
#include "generated/csr.h"
#include "generated/mem.h"
#include "tilewright_npu.h"

static uint32_t get(void *context, uint32_t offset) {
    return *(volatile uint32_t *)((uintptr_t)context + offset);
}

static void set(void *context, uint32_t offset, uint32_t value) {
    *(volatile uint32_t *)((uintptr_t)context + offset) = value;
}

static void print(const char *text) {
    while (*text) set(0, CSR_CONSOLE_CHAR_ADDR, (uint8_t)*text++);
}

static void print_number(uint32_t number) {
    char digits[11];
    char *at = digits + 10;
    *at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    print(at);
}

int main(void) {
    const tw_npu_port port = {(void *)NPU_BASE, get, set, 0, 0, 0};
    uint8_t *memory = (uint8_t *)MAIN_RAM_BASE;
    tw_npu_error error = {0};
    tw_npu_counters counters;
    uint32_t i, wrong = 0;
    int result = tw_npu_open(&port, BENCH_FINGERPRINT);
    for (i = 0; i < BENCH_BYTES; i++) memory[i] = bench_image[i];
    set(0, CSR_NPU_EV_ENABLE_ADDR, 1);
    if (!result) result = tw_npu_run(&port, &bench_job, &error);
    print(result ? tw_npu_text(result) : get(0, CSR_NPU_EV_PENDING_ADDR) ? "interrupt pending, " : "no interrupt, ");
    for (i = 0; i < BENCH_BYTES; i++) wrong += memory[i] != bench_expected[i];
    tw_npu_read_counters(&port, &counters);
    print_number((uint32_t)counters.cycles);
    print(" cycles, ");
    print_number(wrong);
    print(" bytes differ\n");
    set(0, CSR_CONSOLE_DONE_ADDR, 1 + (result || wrong));
    for (;;) {
    }
}
