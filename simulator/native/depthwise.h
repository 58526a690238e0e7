// DEPTHWISE: the window is a ring of the last pushes; an emission reads as many slots as have weights.
#pragma once

#include "machine.h"

namespace tw {

// Slots with weights, as operands: a group is what was pushed `age` pushes before the newest, and before that.
struct WindowTile {
    static constexpr int W = lanes_of(D);
    struct Group {
        int age;
        wgt_t weights[D][GROUP];
    } groups[BI];
    int count = 0;
    int32_t correction[D];  // as in PackedTile

    // `weights` is a tile as WGT has it; its segments are `delay` pushes apart.
    void prepare(const int8_t *weights, int segment, int delay) {
        count = 0;
        if (!delay) segment = BI;
        for (int first = 0; first < BI; first += segment) {
            const int end = std::min(first + segment, BI);
            for (int slot = first; slot < end; slot += GROUP) {
                Group &group = groups[count];
                group.age = slot + delay * (first / segment);
                int any = 0;
                if (sizeof(wgt_t) == 1 && slot + GROUP <= end)
                    for (int o = 0; o < D; o++) {
                        std::memcpy(group.weights[o], weights + o * BI + slot, GROUP);
                        any |= group_at(group.weights[o]);
                    }
                else
                    for (int o = 0; o < D; o++)
                        for (int k = 0; k < GROUP; k++) {
                            const int8_t weight = slot + k < end ? weights[o * BI + slot + k] : int8_t(0);
                            group.weights[o][k] = weight;
                            any |= weight;
                        }
                count += any != 0;
            }
        }
        for (int o = 0; o < D; o += W) {
            Lanes<W> sum = Lanes<W>::zero();
            for (int g = 0; g < count; g++)
                sum = sum.dot(Lanes<W>::broadcast(ZERO_OPERANDS), Lanes<W>::load(groups[g].weights[o]));
            sum.store(correction + o);
        }
        for (int o = 0; o < D; o++) correction[o] = -correction[o];
    }
};

constexpr int ring_size(int slots) {
    int size = 1;
    while (size < slots) size *= 2;
    return size;
}
// Pushes that are kept: the oldest slot of segments of at least 4, behind the longest delays.
constexpr int RING = ring_size(BI + (BI / 4) * ((1 << TW_DEPTHWISE_DELAY_BITS) - 1));

// Ring entry p holds, per channel, the pushes p, p-1, ... as the operands of one group, so that a dot product takes
// a whole group of slots.
class Window {
  public:
    // `oldest`: pushes before the newest that are looked at.
    explicit Window(int oldest) {
        for (L &group : newest_) group = L::broadcast(ZERO_OPERANDS);
        for (int age = 0; age <= oldest; age++) std::fill_n(ring_[(head_ - unsigned(age)) & (RING - 1)], D, ZERO_OPERANDS);
    }

    // Pushes `count` rows of lanes, `stride` bytes apart, and emits behind push `next` and every `step` pushes after it,
    // to rows `moved` sums apart. GROUPS: those of the tile, 0 where only the tile knows.
    template <int GROUPS>
    void run(const WindowTile &tile, const int8_t *lanes, int64_t stride, int64_t count, int64_t next, int64_t step,
             int32_t *row, int64_t moved, bool accumulate) {
        const int groups = GROUPS ? GROUPS : tile.count;
        unsigned head = head_;  // locals: the sums may alias members
        L newest[D / W];
        std::copy_n(newest_, D / W, newest);
        for (int64_t i = 0; i < count; i++, lanes += stride) {
            int32_t *entry = ring_[++head & (RING - 1)];
#pragma GCC unroll 8
            for (int v = 0; v < D / W; v++) {
                newest[v] = newest[v].shifted_in(L::operands(lanes + v * W));
                newest[v].store(entry + v * W);
            }
            if (i != next) continue;
#pragma GCC unroll 8
            for (int v = 0; v < D / W; v++) {
                const int o = v * W;
                L sum = OFFSET ? L::load(tile.correction + o) : L::zero();
                if (accumulate) sum = sum + L::load(row + o);
#pragma GCC unroll 4
                for (int g = 0; g < groups; g++)
                    sum = sum.dot(L::load(ring_[(head - unsigned(tile.groups[g].age)) & (RING - 1)] + o),
                                  L::load(tile.groups[g].weights[o]));
                sum.store(row + o);
            }
            row += moved;
            next += step;
        }
        head_ = head;
        std::copy_n(newest, D / W, newest_);
    }

  private:
    static constexpr int W = lanes_of(D);
    using L = Lanes<W>;
    alignas(64) int32_t ring_[RING][D];
    L newest_[D / W];  // a copy of the newest entry, which the next push needs sooner than memory gives it back
    unsigned head_ = 0;
};

// Emissions of a level with `count` pushes: behind push `start` and every `step` pushes after it.
inline int64_t emissions(int64_t count, int64_t start, int64_t step) {
    return start >= count ? 0 : step ? (count - 1 - start) / step + 1 : 1;
}

// `window_line_steps` of isa/timing.py.
inline uint64_t line_steps(int64_t pushes, int64_t start, int64_t step, bool emits, bool alone) {
    if (!emits || start >= pushes) return uint64_t(pushes + 1 + alone) / 2;
    const int64_t between = (pushes - 1 - start) / step, behind = (pushes - 1 - start) % step;
    return uint64_t((start + (alone && start > 0)) / 2 + 1 + between * ((step - 1) / 2 + 1) + (behind + 1) / 2);
}

inline uint64_t Machine::window_steps(tw_word w) const {
    const int levels = int(c_.gemm_loops);
    const Level &l0 = gemm_[0], &l1 = gemm_[1];
    // `window_pairs` of isa/timing.py
    if (!c_.window_pairs || l0.stride[0] % int64_t(c_.act_banks) == 0 || l0.stride[1] || tw_depthwise_delay(w) == 1)
        return iterations(gemm_, 0, levels);
    const int64_t start = tw_depthwise_start0(w), step = tw_depthwise_step0(w);
    const auto line = [&](bool emits, bool alone) { return line_steps(l0.count, start, step, emits, alone); };
    const bool first = tw_depthwise_start1(w) == 0;
    const uint64_t emit = uint64_t(emissions(l1.count, tw_depthwise_start1(w), tw_depthwise_step1(w)));
    return iterations(gemm_, 2, levels) * (emit * line(true, false) + (l1.count - emit) * line(false, false)) +
           line(first, true) - line(first, false);
}

inline void Machine::depthwise(tw_word w) {
    const int levels = int(c_.gemm_loops);
    const uint64_t steps = window_steps(w);
    spend(TW_ENGINE_GEMM, steps);
    r_.macs += steps * BI * BO;
    const int64_t start0 = tw_depthwise_start0(w), step0 = tw_depthwise_step0(w);
    const int64_t start1 = tw_depthwise_start1(w), step1 = tw_depthwise_step1(w);
    const int64_t acc_rows = int64_t(c_.acc_rows) * BO / D, act_rows = c_.act_rows;
    const int8_t *act = r_.act + tw_depthwise_slice(w) * D;
    const bool accumulate = tw_depthwise_accumulate(w);
    const Level l0 = gemm_[0], l1 = gemm_[1];
    const int segment = int(c_.window_segment), delay = int(tw_depthwise_delay(w));

    // What a nest whose tiles change between its windows only, and which leaves no memory, does not have to look at.
    const int64_t emits0 = emissions(l0.count, start0, step0), emits1 = emissions(l1.count, start1, step1);
    const int64_t moved0 = std::max<int64_t>(emits0 - 1, 0) * l0.stride[2];
    const int64_t moved1 = std::max<int64_t>(emits1 - 1, 0) * l1.stride[2];
    const Reach rows = reach_of(gemm_, 2, levels, 2, tw_depthwise_acc(w));
    const Reach emitted = {rows.low + std::min<int64_t>(moved0, 0) + std::min<int64_t>(moved1, 0),
                           rows.high + std::max<int64_t>(moved0, 0) + std::max<int64_t>(moved1, 0)};
    const bool plain = !l0.stride[1] && !l1.stride[1] && emitted.within(acc_rows) &&
                       in_range(gemm_, 0, levels, 0, tw_depthwise_act(w), act_rows) &&
                       in_range(gemm_, 2, levels, 1, tw_depthwise_wgt(w), c_.wgt_tiles);

    Window window(BI - 1 + delay * ((BI - 1) / segment));
    WindowTile packed;
    int64_t packed_tile = -1;
    auto prepare = [&](int64_t tile) {
        if (tile == packed_tile) return;
        packed_tile = tile;
        packed.prepare(r_.wgt + tile * BI * BO, segment, delay);
    };
    Walker<3> outer(gemm_, 2, levels, {tw_depthwise_act(w), tw_depthwise_wgt(w), tw_depthwise_acc(w)});
    do {
        for (int64_t i1 = 0, e1 = 0; i1 < l1.count; i1++) {
            heed();
            const bool emits = i1 == start1 + e1 * step1;
            const int64_t next0 = emits ? start0 : l0.count, address = outer.address[0] + i1 * l1.stride[0];
            const int64_t row = outer.address[2] + e1 * l1.stride[2];
            e1 += emits;
            if (plain) {
                prepare(outer.address[1]);
                const auto run = packed.count == 3 ? &Window::run<3> : packed.count == 1 ? &Window::run<1> : &Window::run<0>;
                (window.*run)(packed, act + address * BI, l0.stride[0] * BI, l0.count, next0, step0, r_.acc + row * D,
                              l0.stride[2] * D, accumulate);
                continue;
            }
            for (int64_t i0 = 0, e0 = 0; i0 < l0.count; i0++) {
                const int8_t *lanes = act + checked(ACT, address + i0 * l0.stride[0], act_rows) * BI;
                const bool now = i0 == next0 + e0 * step0;
                int32_t *to = r_.acc;
                if (now) {  // levels 0 and 1 move ACC by emissions
                    const int64_t tile = outer.address[1] + i0 * l0.stride[1] + i1 * l1.stride[1];
                    const int64_t at = checked(WGT, tile, c_.wgt_tiles);
                    to += checked(ACC, row + e0 * l0.stride[2], acc_rows) * D;
                    prepare(at);
                    e0++;
                }
                window.run<0>(packed, lanes, 0, 1, now ? 0 : 1, 1, to, 0, accumulate);
            }
        }
    } while (outer.next());
}

}  // namespace tw
