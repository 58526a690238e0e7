// Vectors of int32 lanes with a small dot product per lane, for the instruction sets there are.
//
// A group is the number of neighbouring inputs one lane multiplies at once. VNNI multiplies 4 unsigned by 4 signed
// bytes: activations are kept moved by 128 and every tile carries the correction -128 * (sum of its weights). The
// others multiply pairs of 16-bit values exactly.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tw {

constexpr int BI = TW_BLOCK_IN, BO = TW_BLOCK_OUT;

#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__) && !defined(TW_NO_VNNI)
#define TW_VNNI 1
using act_t = uint8_t;
using wgt_t = int8_t;
constexpr int GROUP = 4, MAX_LANES = 16, ACCUMULATORS = 16, WEIGHT_VECTORS = 8;
inline act_t operand(int8_t x) { return uint8_t(x) ^ 0x80; }

template <int N> struct Lanes;
template <> struct Lanes<16> {
    __m512i v;
    static Lanes zero() { return {_mm512_setzero_si512()}; }
    static Lanes load(const void *p) { return {_mm512_loadu_si512(p)}; }
    static Lanes broadcast(int32_t x) { return {_mm512_set1_epi32(x)}; }
    static Lanes bytes(const int8_t *p) {  // 16 activations, each moved by 128, one per lane
        return {_mm512_cvtepu8_epi32(_mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8(-128)))};
    }
    Lanes shifted_in(Lanes byte) const { return {_mm512_or_si512(_mm512_slli_epi32(v, 8), byte.v)}; }
    void store(void *p) const { _mm512_storeu_si512(p, v); }
    Lanes operator+(Lanes b) const { return {_mm512_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm512_dpbusd_epi32(v, a.v, w.v)}; }
};
template <> struct Lanes<8> {
    __m256i v;
    static Lanes zero() { return {_mm256_setzero_si256()}; }
    static Lanes load(const void *p) { return {_mm256_loadu_si256((const __m256i *)p)}; }
    static Lanes broadcast(int32_t x) { return {_mm256_set1_epi32(x)}; }
    static Lanes bytes(const int8_t *p) {
        return {_mm256_cvtepu8_epi32(_mm_xor_si128(_mm_loadl_epi64((const __m128i *)p), _mm_set1_epi8(-128)))};
    }
    Lanes shifted_in(Lanes byte) const { return {_mm256_or_si256(_mm256_slli_epi32(v, 8), byte.v)}; }
    void store(void *p) const { _mm256_storeu_si256((__m256i *)p, v); }
    Lanes operator+(Lanes b) const { return {_mm256_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm256_dpbusd_epi32(v, a.v, w.v)}; }
};
template <> struct Lanes<4> {
    __m128i v;
    static Lanes zero() { return {_mm_setzero_si128()}; }
    static Lanes load(const void *p) { return {_mm_loadu_si128((const __m128i *)p)}; }
    static Lanes broadcast(int32_t x) { return {_mm_set1_epi32(x)}; }
    static Lanes bytes(const int8_t *p) {
        int32_t x;
        std::memcpy(&x, p, 4);
        return {_mm_cvtepu8_epi32(_mm_xor_si128(_mm_cvtsi32_si128(x), _mm_set1_epi8(-128)))};
    }
    Lanes shifted_in(Lanes byte) const { return {_mm_or_si128(_mm_slli_epi32(v, 8), byte.v)}; }
    void store(void *p) const { _mm_storeu_si128((__m128i *)p, v); }
    Lanes operator+(Lanes b) const { return {_mm_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm_dpbusd_epi32(v, a.v, w.v)}; }
};

#elif defined(__AVX2__) && !defined(TW_NO_AVX2)
using act_t = int16_t;
using wgt_t = int16_t;
constexpr int GROUP = 2, MAX_LANES = 8, ACCUMULATORS = 8, WEIGHT_VECTORS = 2;
inline act_t operand(int8_t x) { return x; }

template <int N> struct Lanes;
template <> struct Lanes<8> {
    __m256i v;
    static Lanes zero() { return {_mm256_setzero_si256()}; }
    static Lanes load(const void *p) { return {_mm256_loadu_si256((const __m256i *)p)}; }
    static Lanes broadcast(int32_t x) { return {_mm256_set1_epi32(x)}; }
    void store(void *p) const { _mm256_storeu_si256((__m256i *)p, v); }
    Lanes operator+(Lanes b) const { return {_mm256_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm256_add_epi32(v, _mm256_madd_epi16(a.v, w.v))}; }
};
template <> struct Lanes<4> {
    __m128i v;
    static Lanes zero() { return {_mm_setzero_si128()}; }
    static Lanes load(const void *p) { return {_mm_loadu_si128((const __m128i *)p)}; }
    static Lanes broadcast(int32_t x) { return {_mm_set1_epi32(x)}; }
    void store(void *p) const { _mm_storeu_si128((__m128i *)p, v); }
    Lanes operator+(Lanes b) const { return {_mm_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm_add_epi32(v, _mm_madd_epi16(a.v, w.v))}; }
};

#else
using act_t = int16_t;
using wgt_t = int16_t;
constexpr int GROUP = 2, MAX_LANES = 8, ACCUMULATORS = 4, WEIGHT_VECTORS = 1;
inline act_t operand(int8_t x) { return x; }

template <int N> struct Lanes {  // loops that any compiler vectorises
    uint32_t v[N];
    static Lanes zero() { return broadcast(0); }
    static Lanes load(const void *p) {
        Lanes r;
        std::memcpy(r.v, p, sizeof r.v);
        return r;
    }
    static Lanes broadcast(int32_t x) {
        Lanes r;
        for (int i = 0; i < N; i++) r.v[i] = uint32_t(x);
        return r;
    }
    void store(void *p) const { std::memcpy(p, v, sizeof v); }
    Lanes operator+(Lanes b) const {
        for (int i = 0; i < N; i++) b.v[i] += v[i];
        return b;
    }
    Lanes dot(Lanes a, Lanes w) const {
        Lanes r;
        for (int i = 0; i < N; i++)
            r.v[i] = v[i] + uint32_t(int16_t(a.v[i]) * int16_t(w.v[i]) + (int32_t(a.v[i]) >> 16) * (int32_t(w.v[i]) >> 16));
        return r;
    }
};
#endif

// A weight tile as the products read it: for every group of inputs, the weights of every output side by side.
struct PackedTile {
    wgt_t weights[BI / GROUP][BO][GROUP];
#ifdef TW_VNNI
    int32_t correction[BO];
#endif
};

inline void pack(PackedTile &tile, const int8_t *source) {
    for (int g = 0; g < BI / GROUP; g++)
        for (int o = 0; o < BO; o++)
            for (int k = 0; k < GROUP; k++) tile.weights[g][o][k] = source[o * BI + g * GROUP + k];
#ifdef TW_VNNI
    for (int o = 0; o < BO; o++) {
        int32_t sum = 0;
        for (int i = 0; i < BI; i++) sum += source[o * BI + i];
        tile.correction[o] = -128 * sum;
    }
#endif
}

inline int32_t group_at(const act_t *p) {
    int32_t x;
    static_assert(GROUP * sizeof(act_t) == sizeof x, "a group fills a lane");
    std::memcpy(&x, p, sizeof x);
    return x;
}

}  // namespace tw
