/* The machine `virt` of qemu: a 16550, a timer of 10 MHz, no NPU and no caches. The memory is what the linker script
 * says. */
#include "board.h"

#define UART ((volatile uint8_t *)0x10000000u)
#define TIMER ((volatile uint32_t *)0x0200bff8u)
enum { LINE_STATUS = 5, BYTE_CAME = 1, MAY_SEND = 0x20 };

extern const uint8_t tw_memory_bytes_end[], tw_first[];

void tw_board_send(uint8_t byte) {
    while (!(UART[LINE_STATUS] & MAY_SEND)) continue;
    UART[0] = byte;
}

int tw_board_receive(void) { return UART[LINE_STATUS] & BYTE_CAME ? UART[0] : -1; }

int tw_board_lost(void) { return 0; }

uint64_t tw_board_ticks(void) {
    uint32_t high, low;
    do {
        high = TIMER[1];
        low = TIMER[0];
    } while (high != TIMER[1]);
    return (uint64_t)high << 32 | low;
}

uint32_t tw_board_hz(void) { return 10000000; }

void tw_board_leds(uint32_t lit) { (void)lit; }

uint32_t tw_board_memory(void) { return (uint32_t)(tw_memory_bytes_end - tw_first); }

void tw_board_forget(void) {}

uintptr_t tw_board_npu(void) { return 0; }

uint64_t tw_board_npu_address(const void *pointer) { return (uintptr_t)pointer; }
