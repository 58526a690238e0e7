// The decoder of coded weights (isa/codes.py, hw/memory/weight_codes.py), cycle by cycle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tilewright_isa.h"

namespace tw {

class WeightCodes {
  public:
    enum Outcome { NOTHING, WEIGHTS, DONE, FAULT };

    void configure(uint32_t lanes, uint32_t bus_bytes) {
        lanes_.resize(lanes);
        weights_.resize(lanes);
        per_beat_ = bus_bytes * 8 / TW_CODE_WORD_BITS;
    }
    // The first cycle of an instruction; FAULT for weights without a table.
    Outcome open(uint32_t mode, uint64_t rounds, uint64_t beats) {
        table_ = mode == TW_CODE_MODE_TABLE;
        rounds_ = rounds;
        beats_ = beats;
        if (!table_) return complete_ ? NOTHING : FAULT;
        complete_ = false;
        starting_ = TW_CODE_START_ROUNDS;
        made_ = symbol_ = slot_ = run_ = 0;
        return NOTHING;
    }
    // Whether the next cycle takes a beat.
    bool needs_beat() const { return beats_ && level_ <= (TW_CODE_QUEUE_BEATS - 1) * per_beat_; }
    // A cycle. DONE: it was the last one of a table, or has the last weights; FAULT instead if beats are left over.
    Outcome cycle(const uint8_t *beat) {
        const bool takes = needs_beat();
        const Outcome outcome = table_ ? build() : decode();
        if (takes) {
            for (uint32_t i = 0; i < per_beat_; i++)
                queue_[(first_ + level_ + i) % QUEUE] = beat ? uint16_t(beat[2 * i] | beat[2 * i + 1] << 8) : 0;
            level_ += per_beat_;
            beats_--;
        }
        if (outcome == NOTHING && empty_ && !takes) return FAULT;
        return outcome == DONE && beats_ ? FAULT : outcome;
    }
    // Of the round that was made.
    const uint8_t *weights() const { return weights_.data(); }
    bool has_weights() const { return has_weights_; }

  private:
    static constexpr uint32_t SLOTS = 1u << TW_CODE_SLOT_BITS, LOW = SLOTS << TW_CODE_PART_BITS;
    static constexpr uint32_t QUEUE = TW_CODE_QUEUE_BEATS * 32;  // words of the widest bus
    static constexpr uint32_t HELD_UP = 1u << 31, NONE = 1u << 30;      // of a bank
    struct Slot {
        uint8_t symbol, mask;
        uint32_t factor, offset;
    };
    struct Lane {
        uint32_t state = 0, count = 0;
        uint16_t reserve[TW_CODE_RESERVE] = {};
    };
    std::vector<Lane> lanes_;
    std::vector<uint8_t> weights_;
    Slot slots_[SLOTS] = {};
    uint16_t queue_[QUEUE] = {};
    uint32_t next_[64] = {};
    uint32_t per_beat_ = 1, first_ = 0, level_ = 0, starting_ = 0;
    uint32_t made_ = 0, symbol_ = 0, slot_ = 0, run_ = 0;  // of the table
    uint64_t rounds_ = 0, beats_ = 0;
    bool table_ = false, complete_ = false, empty_ = false, has_weights_ = false;

    uint16_t pop() {
        const uint16_t word = queue_[first_ % QUEUE];
        first_ = (first_ + 1) % QUEUE;
        level_--;
        return word;
    }

    Outcome build() {
        empty_ = !level_;
        has_weights_ = false;
        if (!level_) return NOTHING;
        const uint32_t word = queue_[first_ % QUEUE];
        const uint32_t count = word & ((1u << TW_CODE_COUNT_BITS) - 1);
        const uint32_t run = word >> TW_CODE_COUNT_BITS & ((1u << TW_CODE_RUN_BITS) - 1);
        const uint32_t share = std::min<uint32_t>(word >> (TW_CODE_COUNT_BITS + TW_CODE_RUN_BITS), TW_CODE_PART_BITS);
        if (!count) {
            symbol_ = (symbol_ + ((run + 1) << share)) & 255;
            pop();
            return NOTHING;
        }
        slots_[made_++] = {uint8_t(symbol_ ^ TW_CODE_FIRST_WEIGHT), uint8_t((1u << share) - 1),
                           ((share ? 1 : count) << TW_CODE_PART_BITS) >> share, slot_};
        if (++slot_ == count) {
            slot_ = 0;
            symbol_ = (symbol_ + (1u << share)) & 255;
            if (run_++ == run) {
                run_ = 0;
                pop();
            }
        }
        if (made_ < SLOTS) return NOTHING;
        complete_ = true;
        return DONE;
    }

    Outcome decode() {
        bool ready = true;
        uint32_t found[64];
        for (uint32_t i = 0; i < per_beat_; i++) found[i] = NONE;
        for (uint32_t i = 0; i < lanes_.size(); i++) {
            Lane &lane = lanes_[i];
            const Slot &slot = slots_[lane.state % SLOTS];
            const bool first = starting_ == TW_CODE_START_ROUNDS;
            const uint32_t high = lane.state / SLOTS;
            const uint32_t next = first ? 0 : uint32_t(uint64_t(slot.factor) * high >> TW_CODE_PART_BITS) + slot.offset;
            next_[i] = next;
            weights_[i] = uint8_t(slot.symbol | (high & slot.mask));
            const bool held_up = next < LOW && !lane.count;
            uint32_t &bank = found[i % per_beat_];
            if (held_up && !(bank & HELD_UP)) bank = i | HELD_UP;
            if (bank == NONE && lane.count < TW_CODE_RESERVE) bank = i;
            ready = ready && !held_up;
        }
        empty_ = !ready && !level_;
        uint16_t given[64];
        uint32_t grants = 0, to[64];
        for (uint32_t b = 0; b < per_beat_ && level_; b++)
            if (found[b] != NONE) {
                to[grants] = found[b] & ~HELD_UP;
                given[grants++] = pop();
            }
        has_weights_ = ready && !starting_;
        if (ready) {
            for (uint32_t i = 0; i < lanes_.size(); i++) {
                Lane &lane = lanes_[i];
                lane.state = next_[i];
                if (next_[i] < LOW) {
                    lane.state = next_[i] << TW_CODE_WORD_BITS | lane.reserve[0];
                    for (uint32_t k = 1; k < lane.count; k++) lane.reserve[k - 1] = lane.reserve[k];
                    lane.count--;
                }
            }
            if (starting_) starting_--;
        }
        for (uint32_t i = 0; i < grants; i++) {
            Lane &lane = lanes_[to[i]];
            lane.reserve[lane.count++] = given[i];
        }
        if (!has_weights_) return NOTHING;
        return --rounds_ ? WEIGHTS : DONE;
    }

};

}  // namespace tw
