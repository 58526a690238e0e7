// ROW: functions of rows that lie along the channels.
#pragma once

#include "row_norm.h"
#include "vector.h"

namespace tw {

// tilewright.isa.numerics.row_scale.
inline uint32_t row_scale(uint64_t total, uint32_t number, uint32_t exponent) {
    constexpr int SUM = 36, QUOTIENT = 26;
    total &= (UINT64_C(1) << SUM) - 1;
    uint32_t zeros = 0;
    for (uint32_t shift : {8u, 4u, 2u, 1u})
        if (total >> (SUM - shift) == 0) {
            total <<= shift;
            zeros += shift;
        }
    const uint32_t found = quotient(uint64_t(number) << (SUM - 18), total);
    const uint32_t large = found >> (QUOTIENT - 1);
    const uint32_t mantissa = found >> (large ? QUOTIENT - 24 : QUOTIENT - 25);
    return ((exponent + zeros - (1 - large)) & 0xff) << 23 | (mantissa & 0x7fffff);
}

inline void Machine::row(tw_word w) {
    const int levels = int(c_.vector_loops);
    const uint32_t function = tw_row_function(w), tail = tw_row_tail(w);
    const bool writes = function == TW_ROW_FUNCTION_EXP || function == TW_ROW_FUNCTION_NORM;
    const bool divides = function == TW_ROW_FUNCTION_EXP_SUM;
    const bool adds = function == TW_ROW_FUNCTION_MOMENTS || function == TW_ROW_FUNCTION_POWER;
    const int reduce = writes ? 0 : int(tw_row_reduce(w));
    spend(TW_ENGINE_VECTOR, iterations(vector_, 0, levels));

    const int lanes = int(c_.vector_lanes), lane_bits = __builtin_ctz(c_.vector_lanes);
    const int word_bits = 24 + lane_bits, square_bits = 16 + lane_bits;
    const uint8_t *table = r_.lut + (post_.table & ~3u) * 256;
    const PostConstants k = post_;
    auto word_of = [&](int index) {
        uint32_t word;
        std::memcpy(&word, table + 4 * (index & 255), 4);
        return word & ((1u << word_bits) - 1);
    };
    Walker<4> outer(vector_, reduce, levels, {tw_row_a(w), tw_row_number(w), tw_row_dst(w), tw_row_prm(w)});
    do {
        heed();
        Walker<1> inner(vector_, 0, reduce, {outer.address[0]});
        const int8_t *a = r_.act + checked(ACT, inner.address[0], c_.act_rows) * BI;
        int64_t prm = wrapped(outer.address[3]);
        const bool there = prm < c_.prm_rows;  // if not, that is told when the row ends
        if (writes) {
            const int64_t stat =
                function == TW_ROW_FUNCTION_NORM ? checked(STAT, outer.address[1], c_.prm_rows) : 0;
            prm = checked(PRM, prm, c_.prm_rows);
            int32_t v[BI];
            if (function == TW_ROW_FUNCTION_NORM) {
                const int32_t *n = r_.norms + stat * 3;
                for (int i = 0; i < BI; i++) {
                    const uint32_t *channel = r_.prm + (prm * BI + i) * 2;
                    v[i] = normalise(a[i], {n[0], n[1], n[2]}, int32_t(channel[0]), channel[1], k);
                }
            } else {
                PrmRow row;
                row.load(r_.prm + prm * BI * 2, prm);
                for (int i = 0; i < BI; i++) {
                    v[i] = int32_t(word_of(a[i] - r_.maxima[prm]));
                    row.bias[i] = 0;
                }
                requantize<TW_ROUNDING_EVEN>(v, row, k);
            }
            const int64_t dst = checked(ACT, outer.address[2], c_.act_rows);
            for (int i = 0; i < BI; i++) {
                r_.act[dst * BI + i] = int8_t(v[i]);
                operands_.act[dst * BI + i] = operand(int8_t(v[i]));
            }
            continue;
        }
        int8_t most = INT8_MIN;
        uint64_t total = 0, squares = 0;
        for (bool last = false; !last;) {
            heed();
            a = r_.act + checked(ACT, inner.address[0], c_.act_rows) * BI;
            last = !inner.next();
            const int elements = last && tail ? int(tail) : BI;
            for (int first = 0; first < elements; first += lanes) {  // a pass
                uint64_t sum = 0;
                for (int i = first; i < std::min(first + lanes, elements); i++) {
                    most = a[i] > most ? a[i] : most;
                    if (divides && there) sum += word_of(a[i] - r_.maxima[prm]);
                    if (adds) sum += word_of(a[i] - k.za);
                }
                squares += adds ? sum & ((1u << square_bits) - 1) : 0;
                total += adds ? sum >> square_bits : sum;
            }
        }
        prm = checked(PRM, prm, c_.prm_rows);
        if (function == TW_ROW_FUNCTION_MAXIMUM) {
            r_.maxima[prm] = most;
        } else if (divides) {
            const uint32_t scale = row_scale(total, tw_row_number(w), tw_row_exponent(w));
            for (int i = 0; i < BI; i++) r_.prm[(prm * BI + i) * 2 + 1] = scale;
        } else {
            const bool centred = function == TW_ROW_FUNCTION_MOMENTS;
            const int64_t epsilon = int64_t(add_.c) * (1 << EPSILON_FRACTION) | (add_.ma & ((1 << EPSILON_FRACTION) - 1));
            const RowNorm n = row_norm(squares, total, tw_row_number(w), epsilon, centred);
            r_.norms[prm * 3] = n.factor;
            r_.norms[prm * 3 + 1] = n.offset;
            r_.norms[prm * 3 + 2] = n.exponent;
        }
    } while (outer.next());
}

}  // namespace tw
