/* What compilers and kernels call of the C library. Words where both ends allow it. */
#include <stdint.h>
#include <string.h>

typedef uint32_t __attribute__((may_alias)) word;

void *memcpy(void *to, const void *from, size_t count) {
    uint8_t *t = to;
    const uint8_t *f = from;
    if (!(((uintptr_t)t | (uintptr_t)f) & 3)) {
        for (; count >= 16; count -= 16, t += 16, f += 16) {
            word a = ((const word *)f)[0], b = ((const word *)f)[1], c = ((const word *)f)[2], d = ((const word *)f)[3];
            ((word *)t)[0] = a;
            ((word *)t)[1] = b;
            ((word *)t)[2] = c;
            ((word *)t)[3] = d;
        }
        for (; count >= 4; count -= 4, t += 4, f += 4) *(word *)t = *(const word *)f;
    }
    while (count--) *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t count) {
    uint8_t *t = to;
    const uint8_t *f = from;
    if (t <= f || t >= f + count) return memcpy(to, from, count);
    while (count--) t[count] = f[count];
    return to;
}

void *memset(void *to, int value, size_t count) {
    uint8_t *t = to;
    word all = (uint8_t)value * 0x01010101u;
    for (; count && ((uintptr_t)t & 3); count--) *t++ = (uint8_t)value;
    for (; count >= 4; count -= 4, t += 4) *(word *)t = all;
    while (count--) *t++ = (uint8_t)value;
    return to;
}

int memcmp(const void *left, const void *right, size_t count) {
    const uint8_t *l = left, *r = right;
    for (; count; count--, l++, r++)
        if (*l != *r) return *l - *r;
    return 0;
}

size_t strlen(const char *text) {
    size_t count = 0;
    while (text[count]) count++;
    return count;
}

int strcmp(const char *left, const char *right) {
    for (; *left && *left == *right; left++, right++) continue;
    return (uint8_t)*left - (uint8_t)*right;
}
