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
        uint32_t words[BI];
        TW_LANES for (int i = 0; i < BI; i++) {
            bias[i] = source[2 * i];
            const uint32_t bits = source[2 * i + 1], exponent = bits >> 23 & 0xff, sign = bits & 0x80000000u;
            const uint32_t saturates = exponent == 255 ? sign | 0x7f7fffffu : bits;
            words[i] = exponent == 0 ? sign : saturates;
        }
        std::memcpy(scale, words, sizeof scale);
    }
};

constexpr float ROUND_TO_EVEN = 12582912.0f;  // 1.5 * 2**23: adding and subtracting it rounds |x| < 2**22 to integers

// The lanes of a step in pieces that fit the registers there are.
constexpr int PIECE = BI < 16 ? BI : 16;
typedef float Floats __attribute__((vector_size(PIECE * 4)));
typedef int32_t Ints __attribute__((vector_size(PIECE * 4)));
typedef uint32_t Words __attribute__((vector_size(PIECE * 4)));
typedef int8_t Bytes __attribute__((vector_size(PIECE)));
typedef act_t ActLanes __attribute__((vector_size(PIECE * sizeof(act_t))));

template <class T>
inline T piece_at(const void *p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
inline Ints ints_at(const int8_t *p) { return __builtin_convertvector(piece_at<Bytes>(p), Ints); }

// No lane is NaN.
#if defined(__AVX512F__) && TW_BLOCK_IN >= 16  // GCC makes a mask and a move of each of the comparisons below
inline Ints clamped(Ints x, int32_t lo, int32_t hi) {
    return Ints(_mm512_min_epi32(_mm512_max_epi32(__m512i(x), _mm512_set1_epi32(lo)), _mm512_set1_epi32(hi)));
}
inline Floats clamped(Floats x, float lo, float hi) {
    return _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(lo)), _mm512_set1_ps(hi));
}
#else
template <class T, class S>
inline T clamped(T x, S lo, S hi) {
    x = x < lo ? T{} + lo : x;
    return x > hi ? T{} + hi : x;
}
#endif

template <int MODE>
inline Ints requantize(Ints value, const PrmRow &prm, int at, const PostConstants &k) {
    const Ints biased = Ints(Words(value) + piece_at<Words>(prm.bias + at));
    Floats x = __builtin_convertvector(biased, Floats) * piece_at<Floats>(prm.scale + at);
    Ints y;
    if (MODE == TW_ROUNDING_EVEN_ZERO_POINT_INSIDE) x = x + float(k.zp);
    x = clamped(x, -1024.0f, 1024.0f);  // far beyond every clamp, and small enough to convert
    if (MODE == TW_ROUNDING_HALF_AWAY) {
        const Ints whole = __builtin_convertvector(x, Ints);
        const Floats rest = x - __builtin_convertvector(whole, Floats);
        y = whole - (rest >= 0.5f) + (rest <= -0.5f) + k.zp;  // a comparison that holds is -1
    } else {
        y = __builtin_convertvector((x + ROUND_TO_EVEN) - ROUND_TO_EVEN, Ints);
        if (MODE == TW_ROUNDING_EVEN) y += k.zp;
    }
    return clamped(y, k.lo, k.hi);
}

template <int MODE>
inline void requantize(int32_t *value, const PrmRow &prm, const PostConstants &k) {
    for (int at = 0; at < BI; at += PIECE) {
        const Ints y = requantize<MODE>(piece_at<Ints>(value + at), prm, at, k);
        std::memcpy(value + at, &y, sizeof y);
    }
}

// CHECKED: addresses may leave their memories or wrap around. SOURCE, ROUNDING, ADD, LUT: those of the instruction, of a
// kind that is frequent enough for code of its own; -1 where only the instruction knows.
template <bool CHECKED, int SOURCE, int ROUNDING, int ADD, int LUT>
void Machine::vector_steps(tw_word w) {
    const int levels = int(c_.vector_loops);
    const uint32_t source = SOURCE < 0 ? tw_vector_source(w) : uint32_t(SOURCE);
    const uint32_t rounding = ROUNDING < 0 ? tw_vector_rounding(w) : uint32_t(ROUNDING);
    const bool reduces = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX;
    const int reduce = reduces ? int(tw_vector_reduce(w)) : 0;
    const bool requantizes = source == TW_SOURCE_ACC || source == TW_SOURCE_MUL || source == TW_SOURCE_SUM;
    const bool add = ADD < 0 ? tw_vector_add(w) : ADD, lut = LUT < 0 ? tw_vector_lut(w) : LUT;
    const bool needs_b = source == TW_SOURCE_MUL || add;
    auto row_of = [&](MemoryId memory, int64_t address, int64_t rows) {
        return CHECKED ? checked(memory, address, rows) : address;
    };

    const uint8_t *table = r_.lut + post_.table * 256;
    const uint32_t ma = uint32_t(add_.ma), mb = uint32_t(add_.mb), c = uint32_t(add_.c), shift = add_.shift;
    const PostConstants k = post_;  // locals: int8 stores may alias members
    const int64_t act_rows = c_.act_rows, acc_vectors = int64_t(c_.acc_rows) * BO / BI, prm_rows = c_.prm_rows;
    int8_t *const act = r_.act;
    act_t *const operands = operands_.act;
    const int32_t *const sums = r_.acc;
    PrmRow prm;
    auto step = [&](const int64_t (&at_step)[4]) {
        Ints v[BI / PIECE];
        if (source == TW_SOURCE_ACC) {
            const int64_t row = row_of(ACC, at_step[0], acc_vectors);
            std::memcpy(v, sums + row * BI, sizeof v);
        } else {
            Walker<1> inner(vector_, 0, reduce, {at_step[0]});
            const int8_t *a = act + row_of(ACT, inner.address[0], act_rows) * BI;
            for (int i = 0; i < BI / PIECE; i++) v[i] = ints_at(a + i * PIECE);
            while (inner.next()) {
                heed();
                a = act + row_of(ACT, inner.address[0], act_rows) * BI;
                for (int i = 0; i < BI / PIECE; i++) {
                    const Ints x = ints_at(a + i * PIECE);
                    if (source == TW_SOURCE_SUM) v[i] = Ints(Words(v[i]) + Words(x));
                    else v[i] = v[i] < x ? x : v[i];
                }
            }
        }
        const int8_t *b = needs_b ? act + row_of(ACT, at_step[1], act_rows) * BI : nullptr;
        if (requantizes) {
            const int64_t row = row_of(PRM, at_step[3], prm_rows);
            if (row != prm.row) prm.load(r_.prm + row * BI * 2, row);
        }
        const int64_t dst = row_of(ACT, at_step[2], act_rows);
        for (int i = 0; i < BI / PIECE; i++) {
            const int at = i * PIECE;
            if (source == TW_SOURCE_MUL) v[i] = (v[i] - k.za) * (ints_at(b + at) - k.zb);
            if (requantizes) {
                if (rounding == TW_ROUNDING_EVEN) v[i] = requantize<TW_ROUNDING_EVEN>(v[i], prm, at, k);
                else if (rounding == TW_ROUNDING_HALF_AWAY) v[i] = requantize<TW_ROUNDING_HALF_AWAY>(v[i], prm, at, k);
                else v[i] = requantize<TW_ROUNDING_EVEN_ZERO_POINT_INSIDE>(v[i], prm, at, k);
            }
            if (add) {
                const Ints y = Ints(Words(v[i]) * ma + Words(ints_at(b + at)) * mb + c) >> int32_t(shift);
                v[i] = clamped(y, k.add_lo, k.add_hi);
            }
            Bytes out = __builtin_convertvector(v[i], Bytes);
            if (lut)
                for (int lane = 0; lane < PIECE; lane++) out[lane] = int8_t(table[uint8_t(out[lane])]);
            std::memcpy(act + dst * BI + at, &out, sizeof out);
            const ActLanes moved = __builtin_convertvector(out, ActLanes) + act_t(OFFSET);
            std::memcpy(operands + dst * BI + at, &moved, sizeof moved);
        }
    };
    const int64_t base[4] = {tw_vector_a(w), tw_vector_b(w), tw_vector_dst(w), tw_vector_prm(w)};
    const int in_a_row = run_level(vector_, reduce, levels);
    const Level run = in_a_row < levels ? vector_[in_a_row] : Level{};
    Walker<4> outer(vector_, in_a_row + 1, levels, base);
    do {
        heed();
        int64_t at_step[4] = {outer.address[0], outer.address[1], outer.address[2], outer.address[3]};
        int64_t left = run.count;
        do {
            step(at_step);
            for (int i = 0; i < 4; i++) at_step[i] += run.stride[i];
        } while (--left > 0);
    } while (outer.next());
}

inline void Machine::vector(tw_word w) {
    const int levels = int(c_.vector_loops);
    const uint32_t source = tw_vector_source(w);
    const bool add = tw_vector_add(w), from_acc = source == TW_SOURCE_ACC;
    const bool scales = from_acc || source == TW_SOURCE_MUL || source == TW_SOURCE_SUM;
    spend(TW_ENGINE_VECTOR, iterations(vector_, 0, levels));
    const int reduce = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX ? int(tw_vector_reduce(w)) : 0;
    const int64_t sums = int64_t(c_.acc_rows) * BO / BI;
    const bool within =
        in_range(vector_, 0, levels, 0, tw_vector_a(w), from_acc ? sums : int64_t(c_.act_rows)) &&
        (!(add || source == TW_SOURCE_MUL) || in_range(vector_, reduce, levels, 1, tw_vector_b(w), c_.act_rows)) &&
        in_range(vector_, reduce, levels, 2, tw_vector_dst(w), c_.act_rows) &&
        (!scales || in_range(vector_, reduce, levels, 3, tw_vector_prm(w), c_.prm_rows));
    if (!within) return vector_steps<true, -1, -1, -1, -1>(w);
    if (!from_acc) return vector_steps<false, -1, -1, -1, -1>(w);
    switch (tw_vector_rounding(w)) {
    case TW_ROUNDING_EVEN: return vector_sums<TW_ROUNDING_EVEN>(w);
    case TW_ROUNDING_HALF_AWAY: return vector_sums<TW_ROUNDING_HALF_AWAY>(w);
    default: return vector_sums<TW_ROUNDING_EVEN_ZERO_POINT_INSIDE>(w);
    }
}

// Steps that requantise sums of GEMM.
template <int ROUNDING>
void Machine::vector_sums(tw_word w) {
    const bool add = tw_vector_add(w), lut = tw_vector_lut(w);
    if (add) vector_steps<false, TW_SOURCE_ACC, ROUNDING, 1, -1>(w);
    else if (lut) vector_steps<false, TW_SOURCE_ACC, ROUNDING, 0, 1>(w);
    else vector_steps<false, TW_SOURCE_ACC, ROUNDING, 0, 0>(w);
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
        act_t *shadow = operands_.act + dst * BI;
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
