// The cycle-level simulator: interface, and the pieces its engines share.
//
// One object mirrors one module of the RTL (docs/machine.md); a member with the name of a register holds its value in
// the cycle being looked at. Data are not moved: the functional simulator does that. Field positions come from
// tilewright_isa.h, latencies and sizes from the caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tilewright_isa.h"
#include "tilewright_memory.h"

#include "structs.h"

namespace tw::cycle {

constexpr int ENGINES = TW_ENGINE_STORE + 1;

inline uint32_t log2_of(uint32_t power) { return uint32_t(__builtin_ctz(power)); }

// A queue with the levels of hw/parts/queue.py; its owner pops before it pushes in one cycle, and asks `full` before both.
template <typename T>
class Fifo {
  public:
    void resize(uint32_t depth) {
        depth_ = depth;
        uint32_t size = 1;
        while (size < depth) size *= 2;
        entries_.resize(size);
        mask_ = size - 1;
    }
    bool empty() const { return level_ == 0; }
    bool full() const { return level_ == depth_; }
    uint32_t level() const { return level_; }
    T &head() { return entries_[first_ & mask_]; }
    void push(const T &value) { entries_[(first_ + level_++) & mask_] = value; }
    void pop() {
        first_++;
        level_--;
    }

  private:
    std::vector<T> entries_;
    uint32_t depth_ = 0, mask_ = 0, first_ = 0, level_ = 0;
};

struct Entry {
    tw_word word;
    uint32_t pc;
    uint8_t opcode, wait0, wait1, signal0, signal1;
    bool configures;
    uint64_t from;  // the first cycle in which it can be at the head of its queue
    int engine() const { return opcode >> 4; }
    // The semaphores it takes, a bit each.
    uint64_t waits() const { return (UINT64_C(1) << wait0 | UINT64_C(1) << wait1) & ~UINT64_C(1); }
};

// What an engine gives when an instruction completes.
struct Completion {
    uint32_t pc = 0;
    uint8_t signal0 = 0, signal1 = 0;
};

// Things that happen a fixed number of cycles later; at most one per cycle.
class Delay {
  public:
    void put(uint64_t cycle, uint8_t value) {
        slots_[cycle & MASK] = value;
        pending_++;
    }
    // What is due in this cycle, 0 for nothing.
    uint8_t take(uint64_t cycle) {
        uint8_t &slot = slots_[cycle & MASK];
        const uint8_t value = slot;
        if (value) {
            slot = 0;
            pending_--;
        }
        return value;
    }
    bool empty() const { return pending_ == 0; }
    void clear() { *this = Delay(); }
    static constexpr uint64_t MASK = 63;

  private:
    uint8_t slots_[MASK + 1] = {};
    uint32_t pending_ = 0;
};

// hw/issue/loop_nest.py with K addresses. A bit of `gates` lets an address take its stride.
template <int K>
struct Nest {
    struct Level {
        uint32_t count = 1;
        int32_t stride[K] = {};
    };
    Level configured[TW_MAX_LOOPS], level[TW_MAX_LOOPS];
    uint32_t left[TW_MAX_LOOPS] = {};
    uint32_t held[TW_MAX_LOOPS][K] = {};
    int levels = 0;
    uint32_t mask = 0;  // of an address
    uint32_t first[K] = {};
    int open = 0;  // levels 0..open-1 are enough: the ones above have count 1

    void start(const uint32_t (&base)[K]) {
        open = 0;
        std::copy(base, base + K, first);
        for (int k = 0; k < levels; k++) {
            level[k] = configured[k];
            left[k] = level[k].count - 1;
            if (left[k]) open = k + 1;
            for (int a = 0; a < K; a++) held[k][a] = base[a] & mask;
        }
    }
    uint32_t address(int a) const { return held[0][a]; }
    // The level, `k` at least, that the next step advances, `open` in the last step.
    int carry(int k = 0) const {
        while (k < open && left[k] == 0) k++;
        return k;
    }
    bool last() const { return carry() == open; }
    bool inner_last(int reduce) const {
        for (int k = 0; k < reduce && k < open; k++)
            if (left[k]) return false;
        return true;
    }
    bool inner_first(int reduce) const {
        for (int k = 0; k < reduce && k < open; k++)
            if (left[k] != level[k].count - 1) return false;
        return true;
    }
    // Steps that follow the present one.
    uint64_t following() const {
        uint64_t total = 0;
        for (int k = open - 1; k >= 0; k--)
            if (__builtin_mul_overflow(total, uint64_t(level[k].count), &total) ||
                __builtin_add_overflow(total, uint64_t(left[k]), &total))
                return UINT64_MAX;
        return total;
    }
    // As many steps at once, no more than `following()`.
    template <typename Gate>
    void jump(uint64_t steps, Gate gate) {
        for (int k = 0; k < open; k++) {
            const uint64_t index = level[k].count - 1 - left[k] + steps;
            steps = index / level[k].count;
            left[k] = level[k].count - 1 - uint32_t(index % level[k].count);
        }
        for (int a = 0; a < K; a++) {
            uint32_t address = first[a];
            for (int k = levels - 1; k >= 0; k--) {
                if (k < open && gate(a, k)) address += (level[k].count - 1 - left[k]) * uint32_t(level[k].stride[a]);
                held[k][a] = address & mask;
            }
        }
    }
    template <typename Gate>
    void step(int carry, Gate gate) {
        if (carry == open) return;
        left[carry]--;
        for (int a = 0; a < K; a++) {
            uint32_t next = held[carry][a];
            if (gate(a, carry)) next = (next + uint32_t(level[carry].stride[a])) & mask;
            for (int k = 0; k <= carry; k++) held[k][a] = next;
        }
        for (int k = 0; k < carry; k++) left[k] = level[k].count - 1;
    }
};

// hw/transfer/bursts.py.
struct Walker {
    bool active = false, null1 = false, valid2 = false, last2 = false, null2 = false, valid3 = false, last3 = false,
         null3 = false, inside2 = false, turn3 = false;  // turn3: the next burst of the run is being cut
    uint32_t mask = 0;  // of an offset
    uint32_t now = 0, plane = 0, stride0 = 0, stride1 = 0, left0 = 0, most0 = 0, left1 = 0;
    uint64_t bytes = 0, first2 = 0, address3 = 0, beats2 = 0, beats3 = 0;
    Completion tag1, tag2, tag3;
    struct Burst {
        uint64_t address;
        uint32_t beats;
        bool last, null;
        Completion tag;
    };
    Fifo<Burst> out;
    uint32_t bus = 0, low = 0, burst_beats = 0;
    tw_region region{};
    bool writes = false;

    void configure(uint32_t bus_bytes, uint32_t offset_bits, uint32_t longest, uint32_t bursts, bool writing) {
        writes = writing;
        mask = uint32_t((uint64_t(1) << offset_bits) - 1);
        bus = bus_bytes;
        low = log2_of(bus_bytes);
        burst_beats = longest;
        out.resize(bursts);
    }
    bool busy() const { return active || valid2 || valid3 || !out.empty(); }
    bool offers() const { return !out.empty(); }
    uint64_t reach() const { return burst_beats - (address3 & (burst_beats - 1)); }
    bool final_burst() const { return null3 || beats3 <= reach(); }
    uint32_t beats() const { return uint32_t(std::min(beats3, reach())); }
    bool last1() const { return null1 || (left0 == 0 && left1 == 0); }
    // Combinational: what moves if a burst is sent to the output.
    bool take2(bool sent) const { return valid2 && inside2 && (!valid3 || (sent && final_burst())); }
    bool take1(bool sent) const { return active && (!valid2 || take2(sent)); }

    // Whether the run in stage 1 lies in its region.
    bool inside() const { return null1 || ((region.flags >> writes & 1) && uint64_t(now) + bytes <= region.size); }
    bool failed() const { return valid2 && !inside2 && !valid3 && out.empty(); }

    void start(const tw_region &where, uint32_t offset, uint64_t nbytes, uint32_t count0, uint32_t count1,
               uint32_t mem_stride0, uint32_t mem_stride1, Completion tag, bool null) {
        active = true;
        region = where;
        now = plane = offset & mask;
        stride0 = mem_stride0;
        stride1 = mem_stride1;
        bytes = nbytes;
        left0 = most0 = (count0 - 1) & 0xffff;
        left1 = (count1 - 1) & 0xffff;
        tag1 = tag;
        null1 = null;
    }
    // The edge; `taken`: the burst at the output. Returns true if anything moved.
    bool step(bool taken) {
        const bool sent = valid3 && !turn3 && !out.full();
        if (taken) out.pop();
        if (sent) out.push({address3 << low, beats(), final_burst() && last3, null3, tag3});
        const bool t2 = take2(sent), t1 = take1(sent), turned = turn3;
        turn3 = sent && !final_burst();
        if (sent) {
            const uint64_t n = beats();
            if (!turn3) valid3 = false;
            address3 += n;
            beats3 -= n;
        }
        if (t2) {
            valid3 = true;
            last3 = last2;
            address3 = first2 >> low;
            beats3 = beats2;
            tag3 = tag2;
            null3 = null2;
            valid2 = false;
        }
        if (t1) {
            valid2 = true;
            last2 = last1();
            inside2 = inside();
            first2 = region.base + now;
            beats2 = ((now & (bus - 1)) + bytes + bus - 1) >> low;
            tag2 = tag1;
            null2 = null1;
            if (last1()) active = false;
            if (left0) {
                left0--;
                now = (now + stride0) & mask;
            } else {
                left0 = most0;
                left1 = (left1 - 1) & 0xffff;
                now = plane = (plane + stride1) & mask;
            }
        }
        return taken || sent || t2 || t1 || turned;
    }
};

}  // namespace tw::cycle
