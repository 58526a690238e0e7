/* What the program of a board without a host needs of the board: board_soc.c for the SoC of fpga/standalone,
 * board_virt.c for the machine `virt` of qemu. */
#ifndef TILEWRIGHT_BOARD_H
#define TILEWRIGHT_BOARD_H

#include <stdint.h>

/* The serial line: sends a byte; takes one, or -1 if none is there. */
void tw_board_send(uint8_t byte);
int tw_board_receive(void);
/* Whether bytes were lost since the last call. */
int tw_board_lost(void);

/* A clock that never goes back, and its ticks in a second. */
uint64_t tw_board_ticks(void);
uint32_t tw_board_hz(void);

/* Bits 1 to 3. */
void tw_board_leds(uint32_t lit);

/* Bytes of memory from the program's first on. */
uint32_t tw_board_memory(void);
/* The cache of data forgets what it holds. */
void tw_board_forget(void);
/* Registers of the NPU, or 0. */
uintptr_t tw_board_npu(void);
/* What the NPU calls the address of a byte. */
uint64_t tw_board_npu_address(const void *pointer);

#endif
