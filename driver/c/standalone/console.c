#include "console.h"

#include <stdarg.h>
#include <string.h>

#include "board.h"

enum { ERROR_LED = 1 << 3 };

static void text(const char *s) {
    while (*s) tw_board_send((uint8_t)*s++);
}

static void decimal(uint32_t value) {
    char digits[11];
    char *at = digits + sizeof digits - 1;
    *at = 0;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    text(at);
}

static void hexadecimal(uint32_t value, int digits) {
    while (digits--) tw_board_send((uint8_t) "0123456789abcdef"[value >> 4 * digits & 15]);
}

static void one(char letter, va_list *rest) {
    switch (letter) {
    case 's': text(va_arg(*rest, const char *)); break;
    case 'u': decimal(va_arg(*rest, uint32_t)); break;
    case 'x': hexadecimal(va_arg(*rest, uint32_t), 8); break;
    case 'b': hexadecimal(va_arg(*rest, uint32_t), 2); break;
    case 'd': {
        int32_t value = va_arg(*rest, int32_t);
        if (value < 0) tw_board_send('-');
        decimal(value < 0 ? 0u - (uint32_t)value : (uint32_t)value);
        break;
    }
    default: tw_board_send((uint8_t)letter);
    }
}

void tw_print(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    for (; *format; format++) {
        if (*format == '%' && format[1]) one(*++format, &rest);
        else tw_board_send((uint8_t)*format);
    }
    va_end(rest);
}

/* A float's integer part has at most 39 digits: limbs of 9, the lowest first. */
enum { LIMBS = 5, LIMB = 1000000000 };

static void large(uint32_t mantissa, int doublings) {
    uint32_t limbs[LIMBS] = {mantissa};
    int i, top = LIMBS - 1;
    char digits[10];
    while (doublings--) {
        uint32_t carry = 0;
        for (i = 0; i < LIMBS; i++) {
            uint32_t doubled = 2 * limbs[i] + carry;
            carry = doubled >= LIMB;
            limbs[i] = carry ? doubled - LIMB : doubled;
        }
    }
    while (!limbs[top]) top--;
    decimal(limbs[top]);
    while (top--) {
        uint32_t value = limbs[top];
        for (i = 8; i >= 0; i--, value /= 10) digits[i] = (char)('0' + value % 10);
        digits[9] = 0;
        text(digits);
    }
}

void tw_print_thousandths(float value) {
    uint32_t bits, mantissa, whole, part;
    int exponent;
    memcpy(&bits, &value, sizeof bits);
    exponent = (int)(bits >> 23 & 0xff);
    mantissa = (bits & 0x7fffff) | (uint32_t)(exponent != 0) << 23;
    exponent = (exponent ? exponent : 1) - 150; /* of mantissa's lowest bit */
    if (bits >> 31 && !(exponent == 105 && mantissa != 0x800000)) tw_board_send('-');
    if (exponent == 105) {
        text(mantissa == 0x800000 ? "inf" : "nan");
        return;
    }
    if (exponent >= 0) {
        large(mantissa, exponent);
        text(".000");
        return;
    }
    whole = part = 0;
    if (exponent > -50) {
        /* mantissa * 1000 has 34 bits; what is below its unit is rounded, ties to even. */
        uint64_t scaled = (uint64_t)mantissa * 1000, unit = UINT64_C(1) << -exponent, thousandths = scaled >> -exponent;
        uint64_t rest = scaled & (unit - 1);
        if (2 * rest > unit || (2 * rest == unit && (thousandths & 1))) thousandths++;
        whole = (uint32_t)(thousandths / 1000);
        part = (uint32_t)(thousandths % 1000);
    }
    decimal(whole);
    tw_board_send('.');
    tw_board_send((uint8_t)('0' + part / 100));
    tw_board_send((uint8_t)('0' + part / 10 % 10));
    tw_board_send((uint8_t)('0' + part % 10));
}

void tw_stop(const char *format, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    tw_board_leds(ERROR_LED);
    for (;;) {
        int byte;
        tw_print(format, a, b, c, d);
        do byte = tw_board_receive();
        while (byte != '%' && byte != '\n' && byte != '\r');
    }
}

void tw_trapped(uint32_t cause, uint32_t address) {
    tw_stop("e-[the core stopped with cause %u at 0x%x]\r\n", cause, address, 0, 0);
}
