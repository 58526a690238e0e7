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

// Every type below has: zero, load, broadcast; operands(p): one operand of the lanes' activations p[0..] each;
// shifted_in(x): the oldest operand of the group leaves, x enters lowest; store; +; dot(a, w): this + a . w.

#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__) && !defined(TW_NO_VNNI)
#define TW_VNNI 1
using act_t = uint8_t;
using wgt_t = int8_t;
constexpr int GROUP = 4, MAX_LANES = 16, ACCUMULATORS = 16, WEIGHT_VECTORS = 8;
constexpr int32_t OFFSET = 128;  // added to activations

template <int N> struct Lanes;
template <> struct Lanes<16> {
    __m512i v;
    static Lanes zero() { return {_mm512_setzero_si512()}; }
    static Lanes load(const void *p) { return {_mm512_loadu_si512(p)}; }
    static Lanes broadcast(int32_t x) { return {_mm512_set1_epi32(x)}; }
    static Lanes operands(const int8_t *p) {
        return {_mm512_cvtepu8_epi32(_mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8(-128)))};
    }
    Lanes shifted_in(Lanes x) const { return {_mm512_or_si512(_mm512_slli_epi32(v, 8), x.v)}; }
    void store(void *p) const { _mm512_storeu_si512(p, v); }
    Lanes operator+(Lanes b) const { return {_mm512_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm512_dpbusd_epi32(v, a.v, w.v)}; }
};
template <> struct Lanes<8> {
    __m256i v;
    static Lanes zero() { return {_mm256_setzero_si256()}; }
    static Lanes load(const void *p) { return {_mm256_loadu_si256((const __m256i *)p)}; }
    static Lanes broadcast(int32_t x) { return {_mm256_set1_epi32(x)}; }
    static Lanes operands(const int8_t *p) {
        return {_mm256_cvtepu8_epi32(_mm_xor_si128(_mm_loadl_epi64((const __m128i *)p), _mm_set1_epi8(-128)))};
    }
    Lanes shifted_in(Lanes x) const { return {_mm256_or_si256(_mm256_slli_epi32(v, 8), x.v)}; }
    void store(void *p) const { _mm256_storeu_si256((__m256i *)p, v); }
    Lanes operator+(Lanes b) const { return {_mm256_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm256_dpbusd_epi32(v, a.v, w.v)}; }
};
template <> struct Lanes<4> {
    __m128i v;
    static Lanes zero() { return {_mm_setzero_si128()}; }
    static Lanes load(const void *p) { return {_mm_loadu_si128((const __m128i *)p)}; }
    static Lanes broadcast(int32_t x) { return {_mm_set1_epi32(x)}; }
    static Lanes operands(const int8_t *p) {
        int32_t x;
        std::memcpy(&x, p, 4);
        return {_mm_cvtepu8_epi32(_mm_xor_si128(_mm_cvtsi32_si128(x), _mm_set1_epi8(-128)))};
    }
    Lanes shifted_in(Lanes x) const { return {_mm_or_si128(_mm_slli_epi32(v, 8), x.v)}; }
    void store(void *p) const { _mm_storeu_si128((__m128i *)p, v); }
    Lanes operator+(Lanes b) const { return {_mm_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm_dpbusd_epi32(v, a.v, w.v)}; }
};

#else
using act_t = int16_t;
using wgt_t = int16_t;
constexpr int GROUP = 2, MAX_LANES = 8;
constexpr int32_t OFFSET = 0;

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
    static Lanes operands(const int8_t *p) {
        Lanes r;
        for (int i = 0; i < N; i++) r.v[i] = uint16_t(int16_t(p[i]));
        return r;
    }
    Lanes shifted_in(Lanes x) const {
        for (int i = 0; i < N; i++) x.v[i] |= v[i] << 16;
        return x;
    }
    void store(void *p) const { std::memcpy(p, v, sizeof v); }
    Lanes operator+(Lanes b) const {
        for (int i = 0; i < N; i++) b.v[i] += v[i];
        return b;
    }
    Lanes dot(Lanes a, Lanes w) const {
        Lanes r;
        for (int i = 0; i < N; i++) {
            int32_t low = int16_t(a.v[i]) * int16_t(w.v[i]);
            int32_t high = (int32_t(a.v[i]) >> 16) * (int32_t(w.v[i]) >> 16);
            r.v[i] = v[i] + uint32_t(low + high);
        }
        return r;
    }
};

#if defined(__AVX2__) && !defined(TW_NO_AVX2)
constexpr int ACCUMULATORS = 8, WEIGHT_VECTORS = 2;

template <> struct Lanes<8> {
    __m256i v;
    static Lanes zero() { return {_mm256_setzero_si256()}; }
    static Lanes load(const void *p) { return {_mm256_loadu_si256((const __m256i *)p)}; }
    static Lanes broadcast(int32_t x) { return {_mm256_set1_epi32(x)}; }
    static Lanes operands(const int8_t *p) {
        __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
        return {_mm256_and_si256(x, _mm256_set1_epi32(0xffff))};
    }
    Lanes shifted_in(Lanes x) const { return {_mm256_or_si256(_mm256_slli_epi32(v, 16), x.v)}; }
    void store(void *p) const { _mm256_storeu_si256((__m256i *)p, v); }
    Lanes operator+(Lanes b) const { return {_mm256_add_epi32(v, b.v)}; }
    Lanes dot(Lanes a, Lanes w) const { return {_mm256_add_epi32(v, _mm256_madd_epi16(a.v, w.v))}; }
};
#else
constexpr int ACCUMULATORS = 4, WEIGHT_VECTORS = 1;
#endif
#endif

constexpr int lanes_of(int n) { return n < MAX_LANES ? n : MAX_LANES; }

// An activation as operand, and what 0 looks like in a whole lane.
inline act_t operand(int8_t x) { return act_t(x + OFFSET); }
constexpr int32_t ZERO_OPERANDS = OFFSET ? int32_t(0x80808080) : 0;

inline int32_t group_at(const void *p) {
    int32_t x;
    static_assert(GROUP * sizeof(act_t) == sizeof x && sizeof(act_t) == sizeof(wgt_t), "a group fills a lane");
    std::memcpy(&x, p, sizeof x);
    return x;
}

// A weight tile as the products read it: for every group of inputs, the weights of every output side by side.
struct alignas(64) PackedTile {
    wgt_t weights[BI / GROUP][BO][GROUP];
    int32_t correction[BO];  // -OFFSET * sum of the weights of an output
};

inline void pack(PackedTile &tile, const int8_t *source) {
    constexpr int G = BI / GROUP, W = lanes_of(BO);
    for (int o = 0; o < BO; o += 4) {
        int g = 0;
#if defined(TW_VNNI)
        for (; g + 4 <= G; g += 4) {  // transposes 4 x 4 groups
            __m128i r[4];
            for (int k = 0; k < 4; k++) r[k] = _mm_loadu_si128((const __m128i *)(source + (o + k) * BI + g * GROUP));
            __m128i a = _mm_unpacklo_epi32(r[0], r[1]), b = _mm_unpackhi_epi32(r[0], r[1]);
            __m128i c = _mm_unpacklo_epi32(r[2], r[3]), d = _mm_unpackhi_epi32(r[2], r[3]);
            _mm_storeu_si128((__m128i *)tile.weights[g][o], _mm_unpacklo_epi64(a, c));
            _mm_storeu_si128((__m128i *)tile.weights[g + 1][o], _mm_unpackhi_epi64(a, c));
            _mm_storeu_si128((__m128i *)tile.weights[g + 2][o], _mm_unpacklo_epi64(b, d));
            _mm_storeu_si128((__m128i *)tile.weights[g + 3][o], _mm_unpackhi_epi64(b, d));
        }
#endif
        for (; g < G; g++)
            for (int k = 0; k < 4; k++)
                for (int i = 0; i < GROUP; i++)
                    tile.weights[g][o + k][i] = source[(o + k) * BI + g * GROUP + i];
    }
    if (OFFSET) {
        const Lanes<W> offsets = Lanes<W>::broadcast(ZERO_OPERANDS);
        for (int o = 0; o < BO; o += W) {
            Lanes<W> sum = Lanes<W>::zero();
            for (int g = 0; g < G; g++) sum = sum.dot(offsets, Lanes<W>::load(tile.weights[g][o]));
            sum.store(tile.correction + o);
        }
        for (int o = 0; o < BO; o++) tile.correction[o] = -tile.correction[o];
    }
}

}  // namespace tw
