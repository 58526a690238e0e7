// ROW: functions of rows that lie along the channels.
#pragma once

#include "vector.h"

namespace tw {

// isa.numerics.row_scale.
inline uint32_t row_scale(uint64_t total, uint32_t numerator, uint32_t exponent) {
    constexpr int SUM = 36, QUOTIENT = 26;
    total &= (UINT64_C(1) << SUM) - 1;
    uint32_t zeros = 0;
    for (uint32_t shift : {8u, 4u, 2u, 1u})
        if (total >> (SUM - shift) == 0) {
            total <<= shift;
            zeros += shift;
        }
    uint64_t rest = uint64_t(numerator) << (SUM - 18);
    uint32_t quotient = 0;
    for (int i = 0; i < QUOTIENT; i++) {
        const bool fits = rest >= total;
        quotient = quotient << 1 | uint32_t(fits);
        rest = (fits ? rest - total : rest) << 1 & ((UINT64_C(1) << (SUM + 1)) - 1);
    }
    const uint32_t large = quotient >> (QUOTIENT - 1);
    const uint32_t mantissa = quotient >> (large ? QUOTIENT - 24 : QUOTIENT - 25);
    return ((exponent + zeros - (1 - large)) & 0xff) << 23 | (mantissa & 0x7fffff);
}

inline void Machine::row(tw_word w) {
    const int levels = int(c_.vector_loops);
    const uint32_t function = tw_row_function(w), tail = tw_row_tail(w);
    const int reduce = function == TW_ROW_FUNCTION_EXP ? 0 : int(tw_row_reduce(w));
    spend(TW_ENGINE_VECTOR, iterations(vector_, 0, levels));

    const uint8_t *table = r_.lut + (post_.table & ~3u) * 256;
    const PostConstants k = post_;
    auto exponential = [&](int8_t value, int64_t prm) {
        uint32_t word;
        std::memcpy(&word, table + 4 * ((value - r_.maxima[prm]) & 255), 4);
        return word & 0xffffffu;
    };
    Walker<4> outer(vector_, reduce, levels, {tw_row_a(w), 0, tw_row_dst(w), tw_row_prm(w)});
    do {
        heed();
        Walker<1> inner(vector_, 0, reduce, {outer.address[0]});
        const int8_t *a = r_.act + checked(ACT, inner.address[0], c_.act_rows) * BI;
        int64_t prm = wrapped(outer.address[3]);
        const bool there = prm < c_.prm_rows;  // if not, that is told when the row ends
        if (function == TW_ROW_FUNCTION_EXP) {
            prm = checked(PRM, prm, c_.prm_rows);
            PrmRow row;
            row.load(r_.prm + prm * BI * 2, prm);
            int32_t v[BI];
            for (int i = 0; i < BI; i++) {
                v[i] = int32_t(exponential(a[i], prm));
                row.bias[i] = 0;
            }
            requantize<TW_ROUNDING_EVEN>(v, row, k);
            const int64_t dst = checked(ACT, outer.address[2], c_.act_rows);
            for (int i = 0; i < BI; i++) {
                r_.act[dst * BI + i] = int8_t(v[i]);
                shadow_[dst * BI + i] = operand(int8_t(v[i]));
            }
            continue;
        }
        int8_t most = INT8_MIN;
        uint64_t total = 0;
        for (bool last = false; !last;) {
            heed();
            a = r_.act + checked(ACT, inner.address[0], c_.act_rows) * BI;
            last = !inner.next();
            const int lanes = last && tail ? int(tail) : BI;
            for (int i = 0; i < lanes; i++) {
                most = a[i] > most ? a[i] : most;
                if (there && function == TW_ROW_FUNCTION_EXP_SUM) total += exponential(a[i], prm);
            }
        }
        prm = checked(PRM, prm, c_.prm_rows);
        if (function == TW_ROW_FUNCTION_MAXIMUM) {
            r_.maxima[prm] = most;
        } else {
            const uint32_t scale = row_scale(total, tw_row_numerator(w), tw_row_exponent(w));
            for (int i = 0; i < BI; i++) r_.prm[(prm * BI + i) * 2 + 1] = scale;
        }
    } while (outer.next());
}

}  // namespace tw
