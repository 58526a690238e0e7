// FETCH (hw/issue/fetch.py) and the read side of AXI (hw/memory/axi_read.py).
#pragma once

#include "cycle.h"

namespace tw::cycle {

struct Fetch {
    uint64_t address = 0, beats_left = 0, base = 0;  // address in beats
    uint32_t offset = 0, length = 0, present = 0, pc = 0;
    bool active = false, ended = false, enough = false;  // enough: room for the next burst, as of the cycle before
    uint32_t bus = 0, low = 0, depth = 0, chunk = 0, parts = 0, free = 0, part = 0;
    Fifo<uint8_t> buffer;  // whether the beat is bad
    bool left = false;      // a beat left the buffer in the cycle before
    bool word_valid = false, word_bad = false;
    uint32_t word_pc = 0;
    bool held = false, held_bad = false, is_end = false;
    int code = 0;  // of the decoder
    Entry entry{};
    const uint8_t *memory = nullptr;
    uint64_t memory_bytes = 0;
    tw_limits limits{};

    void configure(const tw_cycle_run &r) {
        const tw_cycle_config &c = r.config;
        const tw_region &region = r.regions[r.program_region];
        bus = c.bus_bytes;
        low = log2_of(bus);
        depth = free = c.fetch_buffer_bytes / bus;
        chunk = c.fetch_burst_bytes / bus;
        buffer.resize(depth);
        base = region.base;
        offset = uint32_t(r.program_offset);
        length = uint32_t(r.program_length);
        memory = r.memory;
        memory_bytes = r.memory_bytes;
        limits = r.limits;
        const bool inside = (region.flags & 1) && region.size > offset;
        const uint64_t whole = (inside ? region.size - offset : 0) / TW_INSTRUCTION_BYTES;
        present = whole < length ? 0 : length;
        address = (base + offset) >> low;
        if (bus >= TW_INSTRUCTION_BYTES) {
            parts = bus / TW_INSTRUCTION_BYTES;
            part = (offset & (bus - 1)) / TW_INSTRUCTION_BYTES;
            beats_left = (uint64_t(present) + part + parts - 1) / parts;
        } else {
            parts = TW_INSTRUCTION_BYTES / bus;
            beats_left = uint64_t(present) * parts;
        }
    }

    uint32_t request_beats() const {
        const uint32_t to_end = chunk - uint32_t(address & (chunk - 1));
        return beats_left < to_end ? uint32_t(beats_left) : to_end;
    }
    bool requests() const { return active && enough; }
    bool beyond() const { return active && pc == present; }
    bool offers() const { return active && held && !beyond() && !code && !held_bad; }
    bool fails() const { return active && (beyond() || (held && (code || held_bad))); }

    void decode() {
        const uint64_t at = base + offset + uint64_t(TW_INSTRUCTION_BYTES) * word_pc;
        entry.word = {0, 0};
        if (memory_bytes >= TW_INSTRUCTION_BYTES && at <= memory_bytes - TW_INSTRUCTION_BYTES)
            std::memcpy(&entry.word, memory + at, TW_INSTRUCTION_BYTES);
        entry.pc = word_pc++;
        entry.opcode = uint8_t(tw_header_opcode(entry.word));
        entry.wait0 = uint8_t(tw_header_wait0(entry.word));
        entry.wait1 = uint8_t(tw_header_wait1(entry.word));
        entry.signal0 = uint8_t(tw_header_signal0(entry.word));
        entry.signal1 = uint8_t(tw_header_signal1(entry.word));
        code = tw_check(entry.word, &limits);
        is_end = entry.opcode == TW_OP_END;
        entry.configures = tw_configures(entry.opcode);
    }

    // The edge. `dispatched`: the held instruction leaves; `asked`: a burst is accepted; `beat`: one arrives.
    bool step(bool dispatched, bool asked, bool beat, bool bad) {
        const bool ends = dispatched && is_end;
        const bool word_take = word_valid && (!held || dispatched), room = !word_valid || word_take;
        const bool room_now = active && !asked && beats_left != 0 && free >= request_beats();
        bool moved = dispatched || asked || beat || word_take || enough != room_now;
        enough = room_now;
        if (word_take) {
            held = true;
            held_bad = word_bad;
            decode();
            word_valid = false;
            if (bus < TW_INSTRUCTION_BYTES) word_bad = false;
        } else if (dispatched) {
            held = false;
        }
        bool popped = false;
        if (room && !buffer.empty()) {
            moved = true;
            const bool from_bad = buffer.head();
            if (bus < TW_INSTRUCTION_BYTES) {
                popped = true;
                word_bad = word_bad || from_bad;
                word_valid = part == parts - 1;
            } else {
                popped = part == parts - 1;
                word_bad = from_bad;
                word_valid = true;
            }
            part = part == parts - 1 ? 0 : part + 1;
            if (popped) buffer.pop();
        }
        if (asked) {
            const uint32_t n = request_beats();
            free -= n;
            address += n;
            beats_left -= n;
        }
        moved |= left;
        free += std::exchange(left, popped);
        if (beat) buffer.push(bad);
        pc += dispatched;
        if (ends) {
            active = false;
            ended = true;
        }
        return moved;
    }
};

}  // namespace tw::cycle
