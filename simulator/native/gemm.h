// GEMM: several positions that share their weights are summed side by side in registers.
#pragma once

#include "machine.h"

namespace tw {

constexpr int W = lanes_of(BO), V = BO / W, G = BI / GROUP;
constexpr int POSITIONS = ACCUMULATORS / V > 1 ? ACCUMULATORS / V : 1;
constexpr int fits(int positions) { return positions < POSITIONS ? positions : POSITIONS; }
constexpr int GB = WEIGHT_VECTORS / V < 1 ? 1 : WEIGHT_VECTORS / V < G ? WEIGHT_VECTORS / V : G;  // groups at a time

// ACC rows `acc[p]` of P positions from ACT elements `act[p]`, all with the weights of `wgt`. The sums are complete
// before the first row is written, and rows are written in order, so rows may coincide. Returns P.
template <int P>
int Machine::gemm_group(const int64_t *act, const PackedTile *wgt, const int64_t *acc, bool accumulate) {
    using L = Lanes<W>;
    constexpr int CHAINS = P >= 4 ? 1 : (4 / P < GB ? 4 / P : GB);  // hides the latency of a few positions
    L sum[P][CHAINS][V];
    const act_t *base[P];
#pragma GCC unroll 64
    for (int p = 0; p < P; p++) {
        base[p] = operands_.act + act[p];
#pragma GCC unroll 64
        for (int c = 0; c < CHAINS * V; c++) sum[p][c / V][c % V] = L::zero();
    }
    L correction[V];
    for (int v = 0; v < V; v++) correction[v] = L::zero();
    for (const Inner &step : inner_) {
        const PackedTile &tile = wgt[step.wgt];
        if (OFFSET) {
#pragma GCC unroll 16
            for (int v = 0; v < V; v++) correction[v] = correction[v] + L::load(&tile.correction[v * W]);
        }
#pragma GCC unroll 64
        for (int block = 0; block < G; block += GB) {
            L weights[GB][V];
#pragma GCC unroll 64
            for (int i = 0; i < GB * V; i++)
                weights[i / V][i % V] = L::load(&tile.weights[block + i / V][i % V * W][0]);
#pragma GCC unroll 64
            for (int p = 0; p < P; p++) {
                const act_t *vector = base[p] + step.act + block * GROUP;
#pragma GCC unroll 64
                for (int g = 0; g < GB; g++) {
                    L x = L::broadcast(group_at(vector + g * GROUP));
#pragma GCC unroll 16
                    for (int v = 0; v < V; v++)
                        sum[p][g % CHAINS][v] = sum[p][g % CHAINS][v].dot(x, weights[g][v]);
                }
            }
        }
    }
#pragma GCC unroll 64
    for (int p = 0; p < P; p++) {
        int32_t *row = r_.acc + acc[p] * BO;
#pragma GCC unroll 16
        for (int v = 0; v < V; v++) {
            L total = sum[p][0][v];
#pragma GCC unroll 4
            for (int c = 1; c < CHAINS; c++) total = total + sum[p][c][v];
            if (OFFSET) total = total + correction[v];
            if (accumulate) total = total + L::load(row + v * W);
            total.store(row + v * W);
        }
    }
    return P;
}

#if defined(TW_VNNI) && TW_BLOCK_IN == 16 && TW_BLOCK_OUT == 16
constexpr bool UNPACKED = true;

// ACC row `acc` from ACT elements `act` and the tiles from `tile` on as WGT has them: four outputs in a vector, all inputs
// of each side by side. Packing a tile takes longer than a single product with it.
inline void Machine::gemm_unpacked(int64_t act, int64_t tile, int64_t acc, bool accumulate) {
    const __m512i offsets = _mm512_set1_epi32(ZERO_OPERANDS);
    __m512i sum[4], moved[4];
    for (int q = 0; q < 4; q++) sum[q] = moved[q] = _mm512_setzero_si512();
    for (const Inner &step : inner_) {
        const __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(operands_.act + act + step.act)));
        const int8_t *weights = r_.wgt + (tile + step.wgt) * BI * BO;
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            const __m512i w = _mm512_loadu_si512(weights + 64 * q);
            sum[q] = _mm512_dpbusd_epi32(sum[q], x, w);
            moved[q] = _mm512_dpbusd_epi32(moved[q], offsets, w);
        }
    }
    for (int q = 0; q < 4; q++) sum[q] = _mm512_sub_epi32(sum[q], moved[q]);
    auto halves = [](__m512i a, __m512i b) {
        return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const __m512i low = halves(sum[0], sum[1]), high = halves(sum[2], sum[3]);
    // Part j of 128 bits has the outputs j, 4 + j, 8 + j, 12 + j.
    __m512i row = _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    row = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), row);
    int32_t *to = r_.acc + acc * BO;
    if (accumulate) row = _mm512_add_epi32(row, _mm512_loadu_si512(to));
    _mm512_storeu_si512(to, row);
}
#else
constexpr bool UNPACKED = false;
inline void Machine::gemm_unpacked(int64_t, int64_t, int64_t, bool) {}
#endif

inline void Machine::gemm(tw_word w) {
    const int levels = int(c_.gemm_loops), reduce = int(tw_gemm_reduce(w));
    const uint64_t steps = iterations(gemm_, 0, levels);
    spend(TW_ENGINE_GEMM, steps);
    r_.macs += steps * BI * BO;
    const int64_t base[3] = {tw_gemm_act(w), tw_gemm_wgt(w), tw_gemm_acc(w)};
    const uint64_t inner = iterations(gemm_, 0, reduce);
    const Reach rows = reach_of(gemm_, 0, levels, 0, base[0]);
    if (inner > 1 << 20 || !rows.within(c_.act_rows) ||
        !in_range(gemm_, 0, levels, 1, base[1], c_.wgt_tiles) ||
        !in_range(gemm_, reduce, levels, 2, base[2], c_.acc_rows))
        return gemm_steps(w);
    prepare_rows(rows.low, rows.high);

    inner_.clear();
    Walker<2> within(gemm_, 0, reduce, {0, 0});
    do inner_.push_back({within.address[0] * BI, within.address[1]});
    while (within.next());

    const bool accumulate = tw_gemm_accumulate(w);
    int64_t act[POSITIONS], acc[POSITIONS];
    int n = 0;
    bool prepared = false;
    auto flush = [&](int64_t tile) {
        heed();
        if (!n) return;
        if (!prepared && UNPACKED && n == 1 && operands_.wgt_fresh[tile + inner_[0].wgt] == UNUSED) {
            operands_.wgt_fresh[tile + inner_[0].wgt] = USED;
            gemm_unpacked(act[0], tile, acc[0], accumulate);
            n = 0;
            return;
        }
        if (!prepared)
            for (const Inner &step : inner_) prepare_tile(tile + step.wgt);
        prepared = true;
        const PackedTile *wgt = operands_.wgt + tile;
        int p = 0;
        while (p < n) {
            const int left = n - p, done = p;
            if (left >= 16) p += gemm_group<fits(16)>(act + done, wgt, acc + done, accumulate);
            else if (left >= 8) p += gemm_group<fits(8)>(act + done, wgt, acc + done, accumulate);
            else if (left >= 4) p += gemm_group<fits(4)>(act + done, wgt, acc + done, accumulate);
            else if (left >= 2) p += gemm_group<fits(2)>(act + done, wgt, acc + done, accumulate);
            else p += gemm_group<1>(act + done, wgt, acc + done, accumulate);
        }
        n = 0;
    };
    const int in_a_row = run_level(gemm_, reduce, levels);
    const Level run = in_a_row < levels ? gemm_[in_a_row] : Level{};
    Walker<3> outer(gemm_, in_a_row + 1, levels, base);
    int64_t tile = -1;
    do {
        int64_t from = outer.address[0], with = outer.address[1], to = outer.address[2], left = run.count;
        do {
            if (with != tile || n == POSITIONS) {
                flush(tile);
                if (with != tile) {
                    tile = with;
                    prepared = false;
                }
            }
            act[n] = from * BI;
            acc[n++] = to;
            from += run.stride[0], with += run.stride[1], to += run.stride[2];
        } while (--left > 0);
    } while (outer.next());
    flush(tile);
}

// Step by step, for nests that leave a memory or wrap around.
inline void Machine::gemm_steps(tw_word w) {
    const int levels = int(c_.gemm_loops), reduce = int(tw_gemm_reduce(w));
    const int64_t base[3] = {tw_gemm_act(w), tw_gemm_wgt(w), tw_gemm_acc(w)};
    Walker<3> outer(gemm_, reduce, levels, base);
    do {
        uint32_t sum[BO] = {};
        int64_t row = 0;
        Walker<2> inner(gemm_, 0, reduce, {outer.address[0], outer.address[1]});
        do {
            heed();
            const int8_t *vector = r_.act + checked(ACT, inner.address[0], c_.act_rows) * BI;
            const int8_t *tile = r_.wgt + checked(WGT, inner.address[1], c_.wgt_tiles) * BI * BO;
            row = checked(ACC, outer.address[2], c_.acc_rows);
            for (int o = 0; o < BO; o++)
                for (int i = 0; i < BI; i++) sum[o] += uint32_t(int32_t(tile[o * BI + i]) * vector[i]);
        } while (inner.next());
        for (int o = 0; o < BO; o++) {
            uint32_t old = tw_gemm_accumulate(w) ? uint32_t(r_.acc[row * BO + o]) : 0;
            r_.acc[row * BO + o] = int32_t(old + sum[o]);
        }
    } while (outer.next());
}

}  // namespace tw
