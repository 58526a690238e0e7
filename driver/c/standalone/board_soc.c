/* The SoC of fpga/standalone. */
#include "board.h"
#include "tilewright_soc.h"

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

static int lost;

static uint32_t status(void) {
    uint32_t now = REGISTER(TW_SOC_IO_STATUS);
    if (now & TW_SOC_OVERFLOW) lost = 1;
    return now;
}

void tw_board_send(uint8_t byte) {
    while (!(status() & TW_SOC_MAY_SEND)) continue;
    REGISTER(TW_SOC_IO_UART) = byte;
}

int tw_board_receive(void) {
    uint32_t found = REGISTER(TW_SOC_IO_UART);
    return found & TW_SOC_BYTE_CAME ? (int)(found & 0xff) : -1;
}

int tw_board_lost(void) {
    int was;
    (void)status();
    was = lost;
    lost = 0;
    return was;
}

uint64_t tw_board_ticks(void) {
    uint32_t low = REGISTER(TW_SOC_IO_TIMER_LO);
    return (uint64_t)REGISTER(TW_SOC_IO_TIMER_HI) << 32 | low;
}

uint32_t tw_board_hz(void) { return REGISTER(TW_SOC_IO_CLOCK_HZ); }

void tw_board_leds(uint32_t lit) { REGISTER(TW_SOC_IO_LEDS) = lit; }

uint32_t tw_board_memory(void) { return REGISTER(TW_SOC_IO_MEMORY_BYTES); }

void tw_board_forget(void) { __asm__ volatile(".word 0x500f" ::: "memory"); }

uintptr_t tw_board_npu(void) { return TW_SOC_NPU; }

uint64_t tw_board_npu_address(const void *pointer) { return (uintptr_t)pointer - TW_SOC_MEMORY; }
