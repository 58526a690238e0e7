// LOAD: address half (hw/load.py) and data half (hw/load_data.py).
#pragma once

#include "cycle.h"

namespace tw::cycle {

struct Box {
    uint32_t count[2] = {1, 1};
    int32_t row_stride[2] = {0, 0}, mem_stride[2] = {0, 0};
};

struct LoadDescriptor {
    bool null;
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

    // Data half.
    LoadDescriptor d{};
    bool active = false, filling = false, data_follows = false, primed = false;
    uint32_t y = 0, lines = 0, left1 = 0, row = 0, line_row = 0, plane_row = 0, low = 0, plane_low = 0, fill_left = 0,
             rows_left = 0, chunk = 0;
    uint64_t beats_left = 0;
    // The chunk register.
    bool valid = false, null = false, ends = false;
    uint32_t write_target = 0, write_row = 0, write_rows = 0;
    Completion write_end;
    // Given in the cycle after the last write.
    bool gives = false;
    Completion given;

    uint32_t bus = 0, rows_per_beat = 1, banks_mask = 0;
    uint32_t row_bytes[4] = {}, last_chunk[4] = {}, limit[4] = {};

    // Of the cycle at hand.
    bool room = false, beat_ready = false, null_step = false, fill_step = false, flush_step = false;

    void configure(const tw_cycle_config &c) {
        bus = c.bus_bytes;
        walker.configure(bus, c.burst_beats, c.out_bursts, false);
        descriptors.resize(c.load_descriptors);
        rows_per_beat = std::max(1u, bus / c.block_in);
        banks_mask = c.act_banks - 1;
        const uint32_t bytes[4] = {c.block_in, c.block_in * c.block_out, c.block_in * 8, 256};
        const uint32_t rows[4] = {c.act_rows, c.wgt_tiles, c.prm_rows, c.lut_tables};
        for (int t = 0; t < 4; t++) {
            row_bytes[t] = bytes[t];
            last_chunk[t] = std::max(1u, bytes[t] / bus) - 1;
            limit[t] = rows[t];
        }
    }
    bool ready() const { return !walker.active && !descriptors.full(); }
    bool running() const { return !descriptors.empty() || active || valid || walker.busy() || gives; }

    // Whether the chunk register writes the bank that VECTOR writes in this cycle.
    bool refused(uint32_t vector_bank) const {
        return valid && !null && write_target == TW_MEMORY_ACT && ((vector_bank - write_row) & banks_mask) < write_rows;
    }

    void enter(uint32_t y_, uint32_t row_, uint32_t low_) {
        const bool padding = d.top > y_ || y_ >= d.top + d.box.count[0];
        const bool only_fill = padding || d.count == 0;
        y = y_;
        row = line_row = row_ & ADDRESS_MASK;
        low = low_ & (bus - 1);
        filling = only_fill || d.left != 0;
        data_follows = !only_fill;
        fill_left = only_fill ? d.left + d.count + d.right : d.left;
        rows_left = d.count;
        beats_left = (uint64_t(d.count) * row_bytes[d.target] + low + bus - 1) / bus;
        primed = false;
        chunk = 0;
    }

    void look(bool granted) {
        room = !valid || null || granted;
        const bool go = active && room, data = go && !d.null && !filling;
        null_step = go && d.null;
        fill_step = go && !d.null && filling;
        beat_ready = data && beats_left != 0;
        flush_step = data && beats_left == 0;
    }
    bool completes() const { return valid && room && ends; }

    struct Outcome {
        bool step, moved, beyond;
        uint32_t range_row;
    };

    // The edge of the data half, after `look`.
    Outcome step(bool beat) {
        const bool beat_step = beat && beat_ready;
        const bool emit = fill_step || (beat_step && (primed || low == 0)) || flush_step;
        const bool whole_fill = filling && d.target != TW_MEMORY_LUT;
        uint32_t rows_now = 1;
        if (rows_per_beat > 1 && d.target == TW_MEMORY_ACT && !filling) rows_now = std::min(rows_left, rows_per_beat);
        const bool row_done = whole_fill || chunk == last_chunk[d.target];
        const bool fill_done = fill_step && row_done && fill_left == 1;
        const bool run_done = emit && !filling && row_done && rows_left == rows_now;
        const bool line_done = (fill_done && !data_follows) || (run_done && d.right == 0);
        const bool last_line = y == lines - 1 && left1 == 0;
        const bool done = (line_done && last_line) || null_step;
        const bool enters = !descriptors.empty() && (!active || done);
        Outcome out{null_step || fill_step || beat_step || flush_step, false, false, 0};
        out.moved = out.step || enters || (valid && room);
        if (emit) {
            out.beyond = row + rows_now > limit[d.target];
            out.range_row = row >= limit[d.target] ? row : limit[d.target];
        }
        if (room) {
            valid = emit || null_step;
            null = null_step;
        }
        if (emit || null_step) {
            write_target = d.target;
            write_row = row;
            write_rows = whole_fill ? 1 : rows_now;
            write_end = d.end;
            ends = done;
        }
        if (beat_step) {
            primed = true;
            beats_left--;
        }
        if (emit) {
            chunk++;
            if (row_done) {
                chunk = 0;
                row = (row + rows_now) & ADDRESS_MASK;
                if (filling) fill_left--;
                else rows_left -= rows_now;
            }
        }
        if (fill_done && data_follows) filling = false;
        if (run_done && d.right != 0) {
            filling = true;
            data_follows = false;
            fill_left = d.right;
        }
        if (line_done) {
            if (y != lines - 1) {
                const bool is_data = y >= d.top && y < d.top + d.box.count[0];
                enter(y + 1, line_row + uint32_t(d.box.row_stride[0]), low + (is_data ? uint32_t(d.box.mem_stride[0]) : 0));
            } else if (left1 != 0) {
                left1--;
                plane_row += uint32_t(d.box.row_stride[1]);
                plane_low += uint32_t(d.box.mem_stride[1]);
                enter(0, plane_row, plane_low);
            } else {
                active = false;
            }
        }
        if (null_step) active = false;
        if (enters) {
            d = descriptors.head();
            descriptors.pop();
            active = true;
            lines = d.top + d.box.count[0] + d.bottom;
            left1 = (d.box.count[1] - 1) & 0xffff;
            plane_row = d.row;
            plane_low = d.low;
            enter(0, d.row, d.low);
        }
        return out;
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
    bool start(const Entry &e, const tw_cycle_region *regions) {
        const tw_word w = e.word;
        const bool sync = e.opcode == TW_OP_LOAD_SYNC;
        const uint32_t count = sync ? 0 : tw_load_count(w);
        if (!sync && (left + count + right == 0 || top + box.count[0] + bottom == 0 || box.count[1] == 0)) return false;
        LoadDescriptor entry{sync, tw_load_target(w), tw_load_row(w), count, uint32_t(tw_load_offset(w)), left, right, top,
                             bottom, box, {e.pc, e.signal0, e.signal1}};
        descriptors.push(entry);
        if (count != 0 && box.count[0] != 0)
            walker.start(regions[tw_load_region(w)], uint32_t(tw_load_offset(w)),
                         uint64_t(count) * row_bytes[tw_load_target(w)], box.count[0], box.count[1],
                         uint32_t(box.mem_stride[0]), uint32_t(box.mem_stride[1]), entry.end, false);
        return true;
    }
};

}  // namespace tw::cycle
