// DEPTHWISE: the window is a ring of the last pushes; an emission reads as many slots as have weights.
#pragma once

#include "machine.h"

namespace tw {

constexpr int RING = 64;  // at least block_in, a power of two
static_assert(BI <= RING, "the window fits the ring");

#ifdef TW_VNNI
constexpr int DW = D < 16 ? D : 16, DV = D / DW;

// Ring entry p holds, per channel, the pushes p, p-1, p-2, p-3 as four bytes moved by 128.
class Window {
  public:
    Window() { std::memset(ring_, 0x80, sizeof ring_); }

    void push(const int8_t *lanes) {
        const int32_t *last = ring_[head_ & (RING - 1)];
        int32_t *next = ring_[++head_ & (RING - 1)];
        for (int v = 0; v < DV; v++)
            Lanes<DW>::load(last + v * DW).shifted_in(Lanes<DW>::bytes(lanes + v * DW)).store(next + v * DW);
    }

    void weights(const int8_t *tile) {
        used_ = 0;
        for (int o = 0; o < D; o++) {
            int32_t sum = 0;
            for (int i = 0; i < BI; i++) {
                int8_t weight = tile[o * BI + i];
                weights_[i / 4][o][i % 4] = weight;
                sum += weight;
                if (weight && i / 4 >= used_) used_ = i / 4 + 1;
            }
            correction_[o] = -128 * sum;
        }
    }

    void emit(int32_t *row, bool accumulate) const {
        for (int v = 0; v < DV; v++) {
            Lanes<DW> sum = Lanes<DW>::load(correction_ + v * DW);
            if (accumulate) sum = sum + Lanes<DW>::load(row + v * DW);
            for (int g = 0; g < used_; g++)
                sum = sum.dot(Lanes<DW>::load(ring_[(head_ - 4 * g) & (RING - 1)] + v * DW),
                              Lanes<DW>::load(&weights_[g][v * DW][0]));
            sum.store(row + v * DW);
        }
    }

  private:
    int32_t ring_[RING][D];
    unsigned head_ = 0;
    int8_t weights_[BI / 4][D][4];
    int32_t correction_[D];
    int used_ = 0;  // groups of four slots that have weights
};
#else
class Window {
  public:
    Window() { std::memset(ring_, 0, sizeof ring_); }

    void push(const int8_t *lanes) {
        int16_t *next = ring_[++head_ & (RING - 1)];
        for (int o = 0; o < D; o++) next[o] = lanes[o];
    }

    void weights(const int8_t *tile) {
        used_ = 0;
        for (int o = 0; o < D; o++)
            for (int i = 0; i < BI; i++) {
                weights_[i][o] = tile[o * BI + i];
                if (tile[o * BI + i] && i >= used_) used_ = i + 1;
            }
    }

    void emit(int32_t *row, bool accumulate) const {
        uint32_t sum[D];
        for (int o = 0; o < D; o++) sum[o] = accumulate ? uint32_t(row[o]) : 0;
        for (int i = 0; i < used_; i++) {
            const int16_t *slot = ring_[(head_ - i) & (RING - 1)];
            for (int o = 0; o < D; o++) sum[o] += uint32_t(int32_t(slot[o]) * weights_[i][o]);
        }
        for (int o = 0; o < D; o++) row[o] = int32_t(sum[o]);
    }

  private:
    int16_t ring_[RING][D], weights_[BI][D];
    unsigned head_ = 0;
    int used_ = 0;
};
#endif

inline void Machine::depthwise(tw_word w) {
    const int levels = int(c_.gemm_loops);
    const uint64_t steps = iterations(gemm_, 0, levels);
    spend(TW_ENGINE_GEMM, steps);
    r_.macs += steps * BI * BO;
    const int64_t start0 = tw_depthwise_start0(w), step0 = tw_depthwise_step0(w);
    const int64_t start1 = tw_depthwise_start1(w), step1 = tw_depthwise_step1(w);
    const int64_t acc_rows = int64_t(c_.acc_rows) * BO / D;
    const int8_t *act = r_.act + tw_depthwise_slice(w) * D;
    const bool accumulate = tw_depthwise_accumulate(w);
    const Level *l0 = &gemm_[0], *l1 = &gemm_[1];

    Window window;
    int64_t packed = -1;
    // Levels 0 and 1 count emissions for ACC, so their ACC strides are applied here.
    Level nest[TW_MAX_LOOPS];
    std::copy(gemm_, gemm_ + levels, nest);
    nest[0].stride[2] = nest[1].stride[2] = 0;
    Walker<3> outer(nest, 2, levels, {tw_depthwise_act(w), tw_depthwise_wgt(w), tw_depthwise_acc(w)});
    do {
        for (int64_t i1 = 0, e1 = 0; i1 < l1->count; i1++) {
            const bool emits1 = i1 == start1 + e1 * step1;
            int64_t address = outer.address[0] + i1 * l1->stride[0], next0 = emits1 ? start0 : l0->count, e0 = 0;
            for (int64_t i0 = 0; i0 < l0->count; i0++, address += l0->stride[0]) {
                window.push(act + checked(ACT, address, c_.act_rows) * BI);
                if (i0 != next0) continue;
                int64_t tile = outer.address[1] + i0 * l0->stride[1] + i1 * l1->stride[1];
                int64_t row = outer.address[2] + e0 * l0->stride[2] + e1 * l1->stride[2];
                tile = checked(WGT, tile, c_.wgt_tiles);
                row = checked(ACC, row, acc_rows);
                if (tile != packed) window.weights(r_.wgt + (packed = tile) * BI * BO);
                window.emit(r_.acc + row * D, accumulate);
                next0 += step0;
                e0++;
            }
            e1 += emits1;
        }
    } while (outer.next());
}

}  // namespace tw
