// State and helpers shared by the engines of the functional simulator's fast path.
//
// The library is compiled for one pair of block sizes (TW_BLOCK_IN, TW_BLOCK_OUT); everything else of the
// configuration arrives at run time. Semantics are those of simulator/reference.py; the comments here only say how.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tilewright_isa.h"

#include "codes.h"
#include "lanes.h"
#include "structs.h"

namespace tw {

constexpr int D = BI < BO ? BI : BO;  // lanes of a depthwise row

enum MemoryId { ACT, WGT, PRM, LUT, ACC, STAT };  // as MEMORIES of simulator/state.py

struct Fault {
    uint64_t code, address = 0, memory_id = 0, region = 0, offset = 0, nbytes = 0;
};

// One level of a loop nest: iterations and up to four strides.
struct Level {
    int64_t count = 1;
    int64_t stride[4] = {0, 0, 0, 0};
};

// Loops over lanes: iterations are independent, and are to become vectors before they are unrolled.
#define TW_LANES _Pragma("omp simd")

// Walks levels first..last-1 of a nest, level `first` fastest, keeping K addresses.
template <int K>
class Walker {
  public:
    Walker(const Level *levels, int first, int last, const int64_t (&base)[K])
        : levels_(levels), first_(first), last_(last) {
        for (int k = 0; k < K; k++) address[k] = base[k];
    }

    bool next() {
        for (int l = first_; l < last_; l++) {
            const Level &level = levels_[l];
            if (++index[l] < level.count) {
                for (int k = 0; k < K; k++) address[k] += level.stride[k];
                return true;
            }
            index[l] = 0;
            for (int k = 0; k < K; k++) address[k] -= level.stride[k] * (level.count - 1);
        }
        return false;
    }

    int64_t address[K];
    int64_t index[TW_MAX_LOOPS] = {};

  private:
    const Level *levels_;
    int first_, last_;
};

// Whether base + all index*stride of levels first..last-1 lies in 0..rows-1 before any wrap-around.
inline bool in_range(const Level *levels, int first, int last, int k, int64_t base, int64_t rows) {
    int64_t low = base, high = base;
    for (int l = first; l < last; l++) {
        int64_t reach = (levels[l].count - 1) * levels[l].stride[k];
        (reach < 0 ? low : high) += reach;
    }
    return low >= 0 && high < rows;
}

// Iterations of levels first..last-1, saturating.
inline uint64_t iterations(const Level *levels, int first, int last) {
    uint64_t total = 1;
    for (int l = first; l < last; l++)
        if (__builtin_mul_overflow(total, uint64_t(levels[l].count), &total)) return UINT64_MAX;
    return total;
}

struct Padding {
    uint32_t left = 0, right = 0, top = 0, bottom = 0;
    uint8_t fill = 0;
};

struct AddConstants {
    int64_t ma = 0, mb = 0, c = 0;
    uint32_t shift = 0;
};

struct PostConstants {
    int32_t zp = 0, lo = 0, hi = 0, add_lo = 0, add_hi = 0, za = 0, zb = 0;
    uint32_t table = 0;
};

// One run: the caller's memories, copies of ACT and WGT in the form the products want, configuration registers.
class Machine {
  public:
    explicit Machine(tw_run &run);
    void execute();

  private:
    tw_run &r_;
    const tw_config &c_;
    std::unique_ptr<act_t[]> shadow_;       // ACT as operands, kept up to date by every writer
    std::unique_ptr<PackedTile[]> packed_;  // WGT as operands, made when first used
    std::vector<uint8_t> packed_valid_;

    Level load_box_[2], store_box_[2], gemm_[TW_MAX_LOOPS], vector_[TW_MAX_LOOPS];  // store: strides row, memory
    Padding pad_;
    AddConstants add_;
    PostConstants post_;
    WeightCodes codes_;

    void run_instruction(tw_word w);

    void load(tw_word w);
    void load_coded(tw_word w);
    void store(tw_word w);
    void gemm(tw_word w);
    void gemm_steps(tw_word w);
    template <int P>
    int gemm_group(const int64_t *act, const PackedTile *wgt, const int64_t *acc, bool accumulate);
    void depthwise(tw_word w);
    void depthwise_steps(tw_word w);
    void vector(tw_word w);
    void row(tw_word w);
    void vector_wide(tw_word w);

    uint8_t *span(uint32_t region, uint32_t offset, uint64_t nbytes, bool write);
    uint8_t *row_bytes(uint32_t target, uint64_t &bytes, int64_t &rows);
    void written(uint32_t target, int64_t row, int64_t count);

    void spend(int engine, uint64_t steps) {
        if (__builtin_add_overflow(r_.steps[engine], steps, &r_.steps[engine]) || r_.steps[engine] > r_.step_limit)
            throw Fault{TW_ERROR_CODE_TIMEOUT};
    }

    // Called often enough that a run ends soon after another thread asks for it.
    void heed() const {
        if (r_.stop && __atomic_load_n(r_.stop, __ATOMIC_RELAXED)) throw Fault{TW_ERROR_CODE_TIMEOUT};
    }

    // The offset in a region that an instruction means by this sum.
    uint32_t offset_of(int64_t sum) const { return uint32_t(sum & ((int64_t(1) << c_.offset_bits) - 1)); }
    // A row address, wrapped around.
    int64_t wrapped(int64_t address) const { return address & ((int64_t(1) << c_.address_bits) - 1); }
    int64_t checked(MemoryId memory, int64_t address, int64_t rows) const {
        address = wrapped(address);
        if (address >= rows) throw Fault{TW_ERROR_CODE_SCRATCHPAD_RANGE, uint64_t(address), uint64_t(memory)};
        return address;
    }

    void prepare_tile(int64_t tile) {
        if (packed_valid_[tile]) return;
        pack(packed_[tile], r_.wgt + tile * BI * BO);
        packed_valid_[tile] = 1;
    }

    struct Inner {
        int64_t act;  // elements
        int64_t wgt;  // tiles
    };
    std::vector<Inner> inner_;  // the summed levels of the current GEMM, flattened
};

}  // namespace tw
