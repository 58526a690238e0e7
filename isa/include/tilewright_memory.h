// External memory as the Verilated NPU and the cycle-level simulator see it: one timing model for both.
//
// The rules are those of docs/machine.md, "Memory timing". Cycles count up from any origin; a channel is asked
// "when is the next handshake possible" and told when it happened, so that a caller may step or jump.
#ifndef TILEWRIGHT_MEMORY_H
#define TILEWRIGHT_MEMORY_H

#include <cstdint>
#include <deque>

namespace tilewright {

// Cycles, as tilewright.isa.timing.MemoryTiming.
struct MemoryTiming {
    uint32_t read_latency, write_latency;
    double read_interval, write_interval;
};

constexpr uint64_t NEVER = UINT64_MAX;

// When the next beat may be handed over, where beats are some interval apart that need not be whole cycles: the memory
// keeps its pace as long as beats are handed over in the first cycle they can be, and goes on from there when not.
class Pace {
  public:
    uint64_t from() const { return (due_ + PARTS - 1) / PARTS; }
    void take(uint64_t cycle, double interval) {
        uint64_t held = cycle > from() ? cycle * PARTS : due_;
        due_ = held + static_cast<uint64_t>(interval * PARTS + 0.5);
    }

  private:
    static constexpr uint64_t PARTS = 1 << 16;  // of a cycle
    uint64_t due_ = 0;                          // in parts
};

struct Burst {
    uint64_t address;  // of the next beat
    uint32_t beats;    // still to come
    uint64_t ready;    // first cycle of the first beat (reads)
};

// AR and R. The address channel is always ready.
class ReadChannel {
  public:
    explicit ReadChannel(const MemoryTiming &timing) : t_(timing) {}

    // The AR handshake of a burst.
    void request(uint64_t cycle, uint64_t address, uint32_t beats) {
        bursts_.push_back({address, beats, cycle + t_.read_latency});
    }
    // The first cycle in which a beat is offered; NEVER without a burst.
    uint64_t offered_from() const {
        if (bursts_.empty()) return NEVER;
        return bursts_.front().ready > pace_.from() ? bursts_.front().ready : pace_.from();
    }
    bool offers(uint64_t cycle) const { return cycle >= offered_from(); }
    uint64_t address() const { return bursts_.front().address; }
    bool last() const { return bursts_.front().beats == 1; }
    // The offered beat is taken.
    void take(uint64_t cycle, uint32_t bus_bytes) {
        pace_.take(cycle, t_.read_interval);
        Burst &burst = bursts_.front();
        burst.address += bus_bytes;
        if (--burst.beats == 0) bursts_.pop_front();
        else burst.ready = 0;
    }
    bool idle() const { return bursts_.empty(); }

  private:
    const MemoryTiming &t_;
    std::deque<Burst> bursts_;
    Pace pace_;
};

// AW, W and B. The address channel is always ready; a burst's address comes with or before its first beat.
class WriteChannel {
  public:
    explicit WriteChannel(const MemoryTiming &timing) : t_(timing) {}

    void request(uint64_t address, uint32_t beats) { bursts_.push_back({address, beats, 0}); }
    // The first cycle in which a beat is accepted.
    uint64_t accepts_from() const { return pace_.from(); }
    bool accepts(uint64_t cycle) const { return cycle >= accepts_from(); }
    uint64_t address() const { return bursts_.front().address; }
    bool open() const { return !bursts_.empty(); }
    bool last() const { return bursts_.front().beats == 1; }
    // A beat is accepted. Returns true for the last one of a burst.
    bool take(uint64_t cycle, uint32_t bus_bytes) {
        pace_.take(cycle, t_.write_interval);
        Burst &burst = bursts_.front();
        burst.address += bus_bytes;
        if (--burst.beats) return false;
        bursts_.pop_front();
        responses_.push_back(cycle + t_.write_latency);
        return true;
    }
    // The first cycle in which a response is offered; NEVER without one.
    uint64_t responds_from() const {
        if (responses_.empty()) return NEVER;
        return responses_.front() > next_response_ ? responses_.front() : next_response_;
    }
    bool responds(uint64_t cycle) const { return cycle >= responds_from(); }
    // The offered response is taken; the next one follows a cycle later at the earliest.
    void respond(uint64_t cycle) {
        next_response_ = cycle + 1;
        responses_.pop_front();
    }
    bool idle() const { return bursts_.empty() && responses_.empty(); }

  private:
    const MemoryTiming &t_;
    std::deque<Burst> bursts_;
    std::deque<uint64_t> responses_;
    Pace pace_;
    uint64_t next_response_ = 0;
};

}  // namespace tilewright

#endif
