/* Lines on the serial line. */
#ifndef TILEWRIGHT_CONSOLE_H
#define TILEWRIGHT_CONSOLE_H

#include <stdint.h>

/* %s a string, %u an unsigned number, %d a signed one, %x one in 8 hexadecimal digits, %b a byte in 2, %% a percent sign.
 * Other letters are printed as they are. */
void tw_print(const char *format, ...);

/* As printf's %.3f. */
void tw_print_thousandths(float value);

/* An error that nothing goes on after: the line, once more for every command or line that comes. */
void tw_stop(const char *format, uint32_t a, uint32_t b, uint32_t c, uint32_t d) __attribute__((noreturn));

/* A trap of the core, from start.S. */
void tw_trapped(uint32_t cause, uint32_t address) __attribute__((noreturn));

#endif
