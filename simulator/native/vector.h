// VECTOR: one step after another, the lanes of a step side by side; the loops are written for the vectoriser.
#pragma once

#include <cmath>

#include "machine.h"

namespace tw {

// A PRM row with its scales as floats that multiply to what tilewright.isa.numerics.requantize computes: exponent 0 is zero, and
// with exponent 255 every non-zero accumulator saturates, as it does with the largest float.
struct PrmRow {
    int64_t row = -1;
    uint32_t bias[BI];
    float scale[BI];

    void load(const uint32_t *source, int64_t index) {
        row = index;
        for (int i = 0; i < BI; i++) {
            bias[i] = source[2 * i];
            uint32_t bits = source[2 * i + 1], exponent = bits >> 23 & 0xff;
            if (exponent == 0) bits &= 0x80000000u;
            if (exponent == 255) bits = (bits & 0x80000000u) | 0x7f7fffffu;
            std::memcpy(&scale[i], &bits, 4);
        }
    }
};

constexpr float ROUND_TO_EVEN = 12582912.0f;  // 1.5 * 2**23: adding and subtracting it rounds |x| < 2**22 to integers

template <int MODE>
inline void requantize(int32_t *value, const PrmRow &prm, const PostConstants &k) {
    const float zp = float(k.zp);
    TW_LANES for (int i = 0; i < BI; i++) {
        float x = float(int32_t(uint32_t(value[i]) + prm.bias[i])) * prm.scale[i];
        int32_t y;
        if (MODE == TW_ROUNDING_EVEN_ZERO_POINT_INSIDE) x = x + zp;
        x = x < -1024.0f ? -1024.0f : x;  // far beyond every clamp, and small enough to convert
        x = x > 1024.0f ? 1024.0f : x;
        if (MODE == TW_ROUNDING_HALF_AWAY) {
            float whole = float(int32_t(x));
            float rest = x - whole;
            y = int32_t(whole) + (rest >= 0.5f) - (rest <= -0.5f) + k.zp;
        } else {
            y = int32_t((x + ROUND_TO_EVEN) - ROUND_TO_EVEN);
            if (MODE == TW_ROUNDING_EVEN) y += k.zp;
        }
        y = y < k.lo ? k.lo : y;
        value[i] = y > k.hi ? k.hi : y;
    }
}

inline void Machine::vector(tw_word w) {
    const int levels = int(c_.vector_loops);
    const uint32_t source = tw_vector_source(w), rounding = tw_vector_rounding(w);
    const bool reduces = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX;
    const int reduce = reduces ? int(tw_vector_reduce(w)) : 0;
    const bool requantizes = source == TW_SOURCE_ACC || source == TW_SOURCE_MUL || source == TW_SOURCE_SUM;
    const bool add = tw_vector_add(w), lut = tw_vector_lut(w), needs_b = source == TW_SOURCE_MUL || add;
    spend(TW_ENGINE_VECTOR, iterations(vector_, 0, levels));

    const uint8_t *table = r_.lut + post_.table * 256;
    const uint32_t ma = uint32_t(add_.ma), mb = uint32_t(add_.mb), c = uint32_t(add_.c), shift = add_.shift;
    const PostConstants k = post_;  // a local: int8 stores may alias members
    PrmRow prm;
    int32_t v[BI];
    Walker<4> outer(vector_, reduce, levels, {tw_vector_a(w), tw_vector_b(w), tw_vector_dst(w), tw_vector_prm(w)});
    do {
        heed();
        if (source == TW_SOURCE_ACC) {
            int64_t row = checked(ACC, outer.address[0], int64_t(c_.acc_rows) * BO / BI);
            std::memcpy(v, r_.acc + row * BI, sizeof v);
        } else {
            Walker<1> inner(vector_, 0, reduce, {outer.address[0]});
            const int8_t *a = r_.act + checked(ACT, inner.address[0], c_.act_rows) * BI;
            TW_LANES for (int i = 0; i < BI; i++) v[i] = a[i];
            while (inner.next()) {
                heed();
                a = r_.act + checked(ACT, inner.address[0], c_.act_rows) * BI;
                if (source == TW_SOURCE_SUM)
                    TW_LANES for (int i = 0; i < BI; i++) v[i] = int32_t(uint32_t(v[i]) + uint32_t(int32_t(a[i])));
                else
                    TW_LANES for (int i = 0; i < BI; i++) v[i] = v[i] < a[i] ? a[i] : v[i];
            }
        }
        const int8_t *b = needs_b ? r_.act + checked(ACT, outer.address[1], c_.act_rows) * BI : nullptr;
        if (source == TW_SOURCE_MUL)
            TW_LANES for (int i = 0; i < BI; i++) v[i] = (v[i] - k.za) * (b[i] - k.zb);
        if (requantizes) {
            int64_t row = checked(PRM, outer.address[3], c_.prm_rows);
            if (row != prm.row) prm.load(r_.prm + row * BI * 2, row);
            if (rounding == TW_ROUNDING_EVEN) requantize<TW_ROUNDING_EVEN>(v, prm, k);
            else if (rounding == TW_ROUNDING_HALF_AWAY) requantize<TW_ROUNDING_HALF_AWAY>(v, prm, k);
            else requantize<TW_ROUNDING_EVEN_ZERO_POINT_INSIDE>(v, prm, k);
        }
        if (add)
            TW_LANES for (int i = 0; i < BI; i++) {
                int32_t y = int32_t(uint32_t(v[i]) * ma + uint32_t(int32_t(b[i])) * mb + c) >> shift;
                y = y < k.add_lo ? k.add_lo : y;
                v[i] = y > k.add_hi ? k.add_hi : y;
            }
        if (lut)
            for (int i = 0; i < BI; i++) v[i] = int8_t(table[v[i] & 255]);
        int64_t dst = checked(ACT, outer.address[2], c_.act_rows);
        int8_t *out = r_.act + dst * BI;
        act_t *shadow = shadow_.get() + dst * BI;
        TW_LANES for (int i = 0; i < BI; i++) {
            out[i] = int8_t(v[i]);
            shadow[i] = operand(int8_t(v[i]));
        }
    } while (outer.next());
}

// 48 bits of a sum, wrapped.
inline int64_t wrap48(uint64_t x) { return int64_t(x << 16) >> 16; }

inline void Machine::vector_wide(tw_word w) {
    const int levels = int(c_.vector_loops), reduce = int(tw_vector_wide_reduce(w));
    const int32_t low = tw_vector_wide_low(w), high = tw_vector_wide_high(w);
    const bool upper = tw_vector_wide_byte(w) == TW_WIDE_BYTE_HIGH;
    spend(TW_ENGINE_VECTOR, iterations(vector_, 0, levels));
    const int64_t vectors = int64_t(c_.acc_rows) * BO / BI;
    Walker<4> outer(vector_, reduce, levels, {tw_vector_wide_a(w), 0, tw_vector_wide_dst(w), tw_vector_wide_prm(w)});
    do {
        int64_t v[BI] = {};
        Walker<1> inner(vector_, 0, reduce, {outer.address[0]});
        do {
            heed();
            const int32_t *row = r_.acc + checked(ACC, inner.address[0], vectors) * BI;
            for (int i = 0; i < BI; i++) v[i] = wrap48((uint64_t(v[i]) << 8) + uint64_t(int64_t(row[i])));
        } while (inner.next());
        const uint32_t *prm = r_.prm + checked(PRM, outer.address[3], c_.prm_rows) * BI * 2;
        const int64_t dst = checked(ACT, outer.address[2], c_.act_rows);
        int8_t *out = r_.act + dst * BI;
        act_t *shadow = shadow_.get() + dst * BI;
        for (int i = 0; i < BI; i++) {
            const uint32_t scale = prm[2 * i + 1];
            const uint64_t rest = uint64_t(int64_t(int32_t(scale) >> 22)) << 32;  // of the bias
            const int64_t sum = wrap48(uint64_t(v[i]) + uint64_t(int64_t(int32_t(prm[2 * i]))) + rest);
            int64_t y = ((sum * int64_t(scale & 0x7fff) >> (scale >> 16 & 63)) + 1) >> 1;
            y = y < low ? low : y;
            y = y > high ? high : y;
            out[i] = int8_t(upper ? y >> 8 : (y & 255) - 128);
            shadow[i] = operand(out[i]);
        }
    } while (outer.next());
}

}  // namespace tw
