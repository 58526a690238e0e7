// LOAD: address half (hw/transfer/load.py) and data half (hw/transfer/load_data.py).
#pragma once

#include "codes.h"
#include "cycle.h"

namespace tw::cycle {

struct Box {
    uint32_t count[2] = {1, 1};
    int32_t row_stride[2] = {0, 0}, mem_stride[2] = {0, 0};
};

struct LoadDescriptor {
    bool null, coded, packed;
    uint32_t mode, beats;
    uint32_t target, row, count, low, left, right, top, bottom;
    Box box;
    Completion end;
};

struct Load {
    Box box;
    uint32_t left = 0, right = 0, top = 0, bottom = 0;
    uint32_t bursts = 0;  // in flight
    Walker walker;
    Fifo<LoadDescriptor> descriptors;
    uint32_t most_descriptors = 0;
    bool room = true;  // for one at least, whatever happened in the cycle before

    // Data half: rows that follow each other, of fill or data.
    struct Segment {
        bool null, last, data, jumps, coded, packed;
        uint32_t target, row, rows, low, mode, beats;
        Completion end;
    };
    struct Chunk {
        bool null, ends, beyond;
        uint32_t target, row, rows;
        Completion end;
    };
    // Finding segments.
    LoadDescriptor d{};
    bool finding = false, fresh = false;
    enum Part { LEFT, MIDDLE, RIGHT } part = LEFT;
    uint32_t y = 0, planes_left = 0, line_row = 0, plane_row = 0, line_low = 0, plane_low = 0;
    // Steps of the first segment.
    Fifo<Segment> segments;
    Fifo<Chunk> chunks;
    bool skips = false, failed = false;
    uint32_t row = 0, rows_left = 0, chunk = 0;
    // Of LOAD_CODED: its first cycle is over; an error; parts of the tile that were written.
    WeightCodes codes;
    bool opened = false, code_error = false;
    uint32_t part_of_tile = 0, parts = 1;
    // Given in the cycle after the last write.
    bool gives = false;
    Completion given;

    uint32_t row_mask = 0, bus = 0, rows_per_beat = 1, banks_mask = 0, table_chunk_cycles = 1;
    uint32_t table_cycle = 0;  // of the oldest chunk, if it is one of a table
    uint32_t row_bytes[4] = {}, last_chunk[4] = {}, limit[4] = {}, last_packed_chunk = 0;

    // Of the cycle at hand.
    bool go = false, needs_beat = false, beat_ready = false, writes = false, part_of_table = false;

    void configure(const tw_cycle_config &c) {
        bus = c.bus_bytes;
        row_mask = (1u << c.address_bits) - 1;
        walker.configure(bus, c.offset_bits, c.burst_beats, c.out_bursts, false);
        descriptors.resize(c.load_descriptors);
        most_descriptors = c.load_descriptors;
        segments.resize(2);
        chunks.resize(2);
        rows_per_beat = std::max(1u, bus / c.block_in);
        banks_mask = c.act_banks - 1;
        table_chunk_cycles = c.table_chunk_cycles;
        codes.configure(c.weight_codes, bus);
        parts = c.block_in * c.block_out / std::max(1u, c.weight_codes);
        const uint32_t bytes[4] = {c.block_in, c.block_in * c.block_out, c.block_in * 8, 256};
        const uint32_t rows[4] = {c.act_rows, c.wgt_tiles, c.prm_rows, c.lut_tables};
        for (int t = 0; t < 4; t++) {
            row_bytes[t] = bytes[t];
            last_chunk[t] = std::max(1u, bytes[t] / bus) - 1;
            limit[t] = rows[t];
        }
        last_packed_chunk = std::max(1u, c.block_in * c.block_out / 2 / bus) - 1;
    }
    bool ready() const { return !walker.active && room; }
    bool running() const {
        return !descriptors.empty() || finding || !segments.empty() || !chunks.empty() || walker.busy() || gives;
    }
    bool at_work() const { return !segments.empty(); }

    // Whether the oldest chunk is for a bank that VECTOR writes in this cycle.
    bool refused(uint32_t vector_bank) {
        if (chunks.empty()) return false;
        const Chunk &head = chunks.head();
        return !head.null && head.target == TW_MEMORY_ACT && ((vector_bank - head.row) & banks_mask) < head.rows;
    }

    // Whether the oldest chunk is for PRM.
    bool writes_prm() { return !chunks.empty() && !chunks.head().null && chunks.head().target == TW_MEMORY_PRM; }

    uint32_t most_rows(const Segment &s) const { return s.data && s.target == TW_MEMORY_ACT ? rows_per_beat : 1; }

    void look(bool granted) {
        writes = !chunks.empty() && !chunks.head().beyond && (chunks.head().null || granted);
        part_of_table = writes && !chunks.head().null && chunks.head().target == TW_MEMORY_LUT && table_cycle + 1 < table_chunk_cycles;
        writes = writes && !part_of_table;
        go = !segments.empty() && !chunks.full() && !failed;
        needs_beat = false;
        if (go) {
            const Segment &s = segments.head();
            const bool rest = s.low != 0 && !skips && rows_left < rows_per_beat && rows_left * row_bytes[s.target] + s.low <= bus;
            needs_beat = s.data && !(s.target == TW_MEMORY_ACT && rest);
            if (s.coded) needs_beat = opened && codes.needs_beat();
        }
        beat_ready = go && needs_beat;
    }
    bool completes() { return writes && chunks.head().ends; }
    // A chunk beyond its memory is told in its turn.
    bool range_error() { return !chunks.empty() && chunks.head().beyond; }
    uint32_t range_row() { return std::max(chunks.head().row, limit[chunks.head().target]); }

    struct Outcome {
        bool step, moved;
    };

    // A cycle of LOAD_CODED. Returns true in the last one.
    bool decode(const Segment &s, const uint8_t *data) {
        if (!opened) {
            opened = true;
            part_of_tile = 0;
            code_error = failed = codes.open(s.mode, uint64_t(s.rows) * parts, s.beats) == WeightCodes::FAULT;
            return false;
        }
        const WeightCodes::Outcome outcome = codes.cycle(data);
        if (codes.has_weights() && row >= limit[TW_MEMORY_WGT]) {
            chunks.push({false, false, true, TW_MEMORY_WGT, row, 1, s.end});
            failed = true;
            return false;
        }
        code_error = failed = outcome == WeightCodes::FAULT;
        if (codes.has_weights() && ++part_of_tile == parts) {
            part_of_tile = 0;
            row = (row + 1) & row_mask;
        }
        if (outcome != WeightCodes::DONE) return false;
        chunks.push({true, true, false, s.target, row, 1, s.end});
        opened = false;
        return true;
    }

    // The edge of the data half, after `look`; `data` of the beat.
    Outcome step(bool beat, const uint8_t *data) {
        Outcome out{go && (beat || !needs_beat), false};
        const bool finds = finding && !segments.full();
        const bool enters = !descriptors.empty() && (!finding || (finds && one_segment()));
        bool idle = segments.empty();
        const bool had_room = std::exchange(room, descriptors.level() + 1 < most_descriptors);
        table_cycle = part_of_table ? table_cycle + 1 : 0;
        out.moved = out.step || finds || enters || writes || part_of_table || room != had_room;
        if (writes) chunks.pop();
        if (out.step && segments.head().coded) {
            if (decode(segments.head(), data)) {
                segments.pop();
                idle = true;
            }
        } else if (out.step) {
            const Segment &s = segments.head();
            const bool whole = s.null || (!s.data && (s.target == TW_MEMORY_ACT || s.target == TW_MEMORY_WGT));
            const bool ends_row = whole || chunk == (s.packed ? last_packed_chunk : last_chunk[s.target]);
            const uint32_t rows = std::min(rows_left, most_rows(s));
            const bool emits = !skips, last = emits && ends_row && rows_left == rows;
            skips = false;
            if (emits) {
                const bool beyond = !s.null && row + rows > limit[s.target];
                chunks.push({s.null, last && s.last, beyond, s.target, row, rows, s.end});
                failed = failed || beyond;
                chunk = ends_row ? 0 : chunk + 1;
                if (ends_row) {
                    row = (row + rows) & row_mask;
                    rows_left -= rows;
                }
            }
            if (last) {
                segments.pop();
                idle = true;
            }
        }
        if (finds) find();
        if (idle && !segments.empty()) {
            const Segment &s = segments.head();
            if (s.jumps) row = s.row;
            rows_left = s.rows;
            skips = s.data && s.low != 0;
        }
        if (enters) {
            d = descriptors.head();
            descriptors.pop();
            finding = true;
            planes_left = d.box.count[1];
            plane_row = d.row;
            plane_low = d.low;
            enter_plane();
        }
        return out;
    }

    bool one_segment() const {
        const bool one_part = bool(d.left) + bool(d.count) + bool(d.right) == 1;
        return d.null || (d.top + d.box.count[0] + d.bottom == 1 && d.box.count[1] == 1 && one_part);
    }
    void enter_line() {
        part = d.left ? LEFT : d.count ? MIDDLE : RIGHT;
        fresh = true;
    }
    void enter_plane() {
        y = 0;
        line_row = plane_row & row_mask;
        line_low = plane_low & (bus - 1);
        enter_line();
    }
    void find() {
        const bool middle = y >= d.top && y < d.top + d.box.count[0];
        const uint32_t rows = d.coded ? d.count : d.null ? 0 : part == LEFT ? d.left : part == MIDDLE ? d.count : d.right;
        const bool ends_line = part == RIGHT || !(d.right || (part == LEFT && d.count));
        const bool last_line = y + 1 == d.top + d.box.count[0] + d.bottom;
        const bool last = d.null || (ends_line && last_line && planes_left == 1);
        segments.push({d.null, last, !d.null && part == MIDDLE && middle, fresh, d.coded, d.packed, d.target, line_row, rows, line_low,
                       d.mode, d.beats, d.end});
        if (last) {
            finding = false;
        } else if (!ends_line) {
            part = part == LEFT && d.count ? MIDDLE : RIGHT;
            fresh = false;
        } else if (last_line) {
            planes_left--;
            plane_row += uint32_t(d.box.row_stride[1]);
            plane_low += uint32_t(d.box.mem_stride[1]);
            enter_plane();
        } else {
            y++;
            line_row = (line_row + uint32_t(d.box.row_stride[0])) & row_mask;
            if (middle) line_low = (line_low + uint32_t(d.box.mem_stride[0])) & (bus - 1);
            enter_line();
        }
    }

    void set_dim(tw_word w) {
        const uint32_t k = tw_load_dim_level(w);
        box.count[k] = tw_load_dim_count(w);
        box.row_stride[k] = tw_load_dim_row_stride(w);
        box.mem_stride[k] = tw_load_dim_mem_stride(w);
    }
    void set_pad(tw_word w) {
        left = tw_load_pad_left(w);
        right = tw_load_pad_right(w);
        top = tw_load_pad_top(w);
        bottom = tw_load_pad_bottom(w);
    }
    // Returns false for a box without rows.
    bool start(const Entry &e, const tw_region *regions) {
        const tw_word w = e.word;
        const bool sync = e.opcode == TW_OP_LOAD_SYNC, coded = e.opcode == TW_OP_LOAD_CODED, null = sync || coded;
        const bool packed = e.opcode == TW_OP_LOAD_PACKED;  // fields in the places of LOAD
        const uint32_t count = sync ? 0 : coded ? tw_load_coded_count(w) : tw_load_count(w);
        if (!null && (left + count + right == 0 || top + box.count[0] + bottom == 0 || box.count[1] == 0)) return false;
        const uint32_t beats = coded ? tw_load_coded_beats(w) : 0;
        LoadDescriptor entry{null, coded, packed, tw_load_coded_mode(w), beats, coded ? uint32_t(TW_MEMORY_WGT) : tw_load_target(w),
                             coded ? tw_load_coded_row(w) : tw_load_row(w), count, uint32_t(tw_load_offset(w)), left,
                             right, top, bottom, box, {e.pc, e.signal0, e.signal1}};
        descriptors.push(entry);
        if (beats)
            walker.start(regions[tw_load_coded_region(w)], uint32_t(tw_load_coded_offset(w)) & ~(bus - 1),
                         uint64_t(beats) * bus, 1, 1, 0, 0, entry.end, false);
        if (!null && count != 0 && box.count[0] != 0)
            walker.start(regions[tw_load_region(w)], uint32_t(tw_load_offset(w)),
                         uint64_t(count) * row_bytes[tw_load_target(w)] >> packed, box.count[0], box.count[1],
                         uint32_t(box.mem_stride[0]), uint32_t(box.mem_stride[1]), entry.end, false);
        return true;
    }
};

}  // namespace tw::cycle
