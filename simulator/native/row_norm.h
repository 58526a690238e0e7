// Norms of rows in integers, as isa/row_norm.py has them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "machine.h"

namespace tw {

// tilewright.isa.numerics.quotient.
inline uint32_t quotient(uint64_t rest, uint64_t divisor) {
    uint32_t found = 0;
    for (int i = 0; i < 26; i++) {
        const bool fits = rest >= divisor;
        found = found << 1 | uint32_t(fits);
        rest = (fits ? rest - divisor : rest) << 1 & ((UINT64_C(1) << 37) - 1);
    }
    return found;
}

struct RowNorm {
    int32_t factor, offset, exponent;
};

constexpr int MEAN_FRACTION = 20, COUNT_BITS = 13, EPSILON_FRACTION = 16;

// tilewright.isa.row_norm.mean_of.
inline uint32_t mean_of(uint32_t total, uint32_t count) {
    uint32_t rest = total >> 8, mean = 0;
    for (int place = 27; place >= 0; place--) {
        rest = rest << 1 | (place >= MEAN_FRACTION ? total >> (place - MEAN_FRACTION) & 1 : 0);
        const bool fits = rest >= count;
        mean = mean << 1 | uint32_t(fits);
        rest = (fits ? rest - count : rest) & ((1u << COUNT_BITS) - 1);
    }
    return mean;
}

// tilewright.isa.row_norm.row_norm.
inline RowNorm row_norm(uint64_t squares, uint64_t total, uint32_t count, int64_t epsilon, bool centred) {
    constexpr int RADICAND_BITS = 40 + EPSILON_FRACTION;
    squares &= (1u << 28) - 1;
    total &= (1u << 20) - 1;
    count &= (1u << COUNT_BITS) - 1;
    const uint64_t variance = count * squares - (centred ? total * total : 0);
    uint64_t radicand = ((variance << EPSILON_FRACTION) + uint64_t(epsilon)) & ((UINT64_C(1) << RADICAND_BITS) - 1);
    int32_t exponent = 0;
    for (int i = 0; i < 20; i++)
        if (radicand >> (RADICAND_BITS - 2) == 0) {
            radicand <<= 2;
            exponent++;
        }
    radicand >>= EPSILON_FRACTION;
    uint64_t root = 0;
    for (int bit = 25; bit >= 0; bit--) {
        const uint64_t more = root | UINT64_C(1) << bit;
        if (more * more <= radicand << 12) root = more;
    }
    const int64_t factor = quotient(UINT64_C(1) << 33, (root | 1) << 10) & ((1u << 23) - 1);
    const int64_t mean = int64_t(mean_of(uint32_t(total), count)) - (INT64_C(128) << MEAN_FRACTION);
    const int64_t product = mean * factor - (INT64_C(1) << (MEAN_FRACTION - 1));
    return {int32_t(factor), int32_t(uint32_t(~(product >> MEAN_FRACTION))), exponent};
}

// tilewright.isa.row_norm.normalise, of one lane.
inline int32_t normalise(int32_t value, RowNorm row, int32_t bias, uint32_t scale, const PostConstants &k) {
    constexpr int FRACTION = 26;
    const int32_t start = int32_t(uint32_t(value) * uint32_t(row.factor) + uint32_t(row.offset));
    const int exponent = int(scale >> 23 & 0xff);
    const double factor = exponent ? std::ldexp(double((scale & 0x7fffff) | 0x800000), exponent - 150) : 0.0;
    int power;
    const double mantissa = std::frexp(double(float(start)) * factor, &power);  // exact, but for the sign
    const double exact = std::ldexp(std::fabs(double(float(mantissa))), std::min(power + row.exponent, 9) + FRACTION);
    int64_t fixed = int64_t(exact);
    fixed |= double(fixed) != exact;
    if ((start < 0) != (scale >> 31 != 0)) fixed = -fixed;
    const int64_t total = fixed + int64_t(bias) * 8;
    const int64_t whole = total >> FRACTION, rest = total & ((INT64_C(1) << FRACTION) - 1);
    const int64_t half = INT64_C(1) << (FRACTION - 1);
    int64_t y = whole + (rest > half || (rest == half && (whole & 1))) + k.zp;
    y = y < k.lo ? k.lo : y;
    return int32_t(y > k.hi ? k.hi : y);
}

}  // namespace tw
