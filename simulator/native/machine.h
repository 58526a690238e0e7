// State and helpers shared by the engines of the functional simulator's fast path.
//
// The library is compiled for one pair of block sizes (TW_BLOCK_IN, TW_BLOCK_OUT), with TW_PACKED_PRODUCTS or
// without; everything else of the configuration arrives at run time. Semantics are those of simulator/reference.py; the comments here only say how.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tilewright_isa.h"

#include "codes.h"
#include "lanes.h"
#include "structs.h"

namespace tw {

#ifdef TW_PACKED_PRODUCTS
constexpr int OUTPUTS = BO / 2;  // of DEPTHWISE
#else
constexpr int OUTPUTS = BO;
#endif
constexpr int D = BI < OUTPUTS ? BI : OUTPUTS;  // lanes of a depthwise row

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

// The level of a nest whose iterations are made in a row by a loop of their own: the first of first..last-1 that has
// several. Levels behind it are walked by a Walker.
inline int run_level(const Level *levels, int first, int last) {
    while (first + 1 < last && levels[first].count == 1) first++;
    return first;
}

// The least and the greatest of base + all index*stride of levels first..last-1, before any wrap-around.
struct Reach {
    int64_t low, high;
    bool within(int64_t rows) const { return low >= 0 && high < rows; }
};
inline Reach reach_of(const Level *levels, int first, int last, int k, int64_t base) {
    Reach found = {base, base};
    for (int l = first; l < last; l++) {
        int64_t reach = (levels[l].count - 1) * levels[l].stride[k];
        (reach < 0 ? found.low : found.high) += reach;
    }
    return found;
}
inline bool in_range(const Level *levels, int first, int last, int k, int64_t base, int64_t rows) {
    return reach_of(levels, first, last, k, base).within(rows);
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

// Rows of ACT whose operands are made together.
constexpr int64_t FRESH_ROWS = 64;

// Tiles of WGT: not multiplied since they were written, multiplied once as they are, packed.
enum Freshness : uint8_t { UNUSED, USED, PACKED };

// Copies of ACT and WGT in the form the products want, in memory of the caller that outlives a run: a system gives and
// takes pages of this size slowly. Nothing in it is believed at the begin of a run.
struct Operands {
    act_t *act;            // by row; those of the blocks in `act_fresh` are up to date, every writer keeps them so
    PackedTile *wgt;       // by tile; those that `wgt_fresh` calls PACKED are up to date
    uint8_t *wgt_fresh, *act_fresh;

    static size_t tiles_at(const tw_config &c) { return (size_t(c.act_rows) * BI * sizeof(act_t) + 63) / 64 * 64; }
    static size_t flags_at(const tw_config &c) { return tiles_at(c) + c.wgt_tiles * sizeof(PackedTile); }
    static size_t blocks(const tw_config &c) { return (c.act_rows + FRESH_ROWS - 1) / FRESH_ROWS; }
    static size_t bytes(const tw_config &c) { return flags_at(c) + c.wgt_tiles + blocks(c); }

    Operands(uint8_t *memory, const tw_config &c)
        : act(reinterpret_cast<act_t *>(memory)), wgt(reinterpret_cast<PackedTile *>(memory + tiles_at(c))),
          wgt_fresh(memory + flags_at(c)), act_fresh(wgt_fresh + c.wgt_tiles) {
        std::memset(wgt_fresh, 0, c.wgt_tiles + blocks(c));
    }
};

// One run: the caller's memories, operands, configuration registers.
class Machine {
  public:
    explicit Machine(tw_run &run);
    void execute();

  private:
    tw_run &r_;
    const tw_config &c_;
    Operands operands_;

    Level load_box_[2], store_box_[2], gemm_[TW_MAX_LOOPS], vector_[TW_MAX_LOOPS];  // store: strides row, memory
    Padding pad_;
    AddConstants add_;
    PostConstants post_;
    WeightCodes codes_;

    void run_instruction(tw_word w);

    void load(tw_word w, bool packed);
    void load_coded(tw_word w);
    void store(tw_word w);
    void gemm(tw_word w);
    void gemm_steps(tw_word w);
    void gemm_unpacked(int64_t act, int64_t tile, int64_t acc, bool accumulate);
    template <int P>
    int gemm_group(const int64_t *act, const PackedTile *wgt, const int64_t *acc, bool accumulate);
    uint64_t window_steps(tw_word w) const;
    void depthwise(tw_word w);
    void depthwise_steps(tw_word w);
    void vector(tw_word w);
    template <bool CHECKED, int SOURCE, int ROUNDING, int ADD, int LUT>
    void vector_steps(tw_word w);
    template <int ROUNDING>
    void vector_sums(tw_word w);
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
        if (operands_.wgt_fresh[tile] == PACKED) return;
        pack(operands_.wgt[tile], r_.wgt + tile * BI * BO);
        operands_.wgt_fresh[tile] = PACKED;
    }
    // Makes the operands of rows first..last of ACT that nobody has written in this run.
    void prepare_rows(int64_t first, int64_t last) {
        for (int64_t block = first / FRESH_ROWS; block <= last / FRESH_ROWS; block++) {
            if (operands_.act_fresh[block]) continue;
            const int64_t row = block * FRESH_ROWS;
            written(TW_MEMORY_ACT, row, std::min<int64_t>(FRESH_ROWS, c_.act_rows - row));
            operands_.act_fresh[block] = 1;
        }
    }

    struct Inner {
        int64_t act;  // elements
        int64_t wgt;  // tiles
    };
    std::vector<Inner> inner_;  // the summed levels of the current GEMM, flattened
};

}  // namespace tw
