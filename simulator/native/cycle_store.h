// STORE: reader and realigner (hw/transfer/store_data.py), bursts and responses (hw/memory/axi_write.py).
#pragma once

#include "cycle_load.h"

namespace tw::cycle {

struct Store {
    struct Request {
        uint32_t row, rows, low;
        bool last, bad;
    };
    struct Row {
        uint32_t low, bytes;
        bool last, bad;
    };
    struct Pending {
        bool last, null;
        Completion tag;
        uint64_t address;
    };
    Box box;
    Walker walker;

    // Reader: finding reads, and making them.
    bool active = false;
    uint32_t row = 0, line = 0, plane = 0, low = 0, plane_low = 0, left = 0, left0 = 0, left1 = 0, count = 0,
             current_pc = 0, bad_row = 0, bad_pc = 0;
    bool bad = false;  // a row found does not exist: no more are
    Box now;
    Fifo<Request> requests;
    uint32_t done = 0;  // rows of the oldest request that are read
    std::vector<std::optional<Row>> under_way;  // what reads will give, the one asked for last first
    Fifo<Row> rows;

    // Realigner.
    bool started = false, flushing = false;
    uint32_t index = 0, position = 0, pieces = 0, beats_held = 0;

    // Bursts and beats.
    Fifo<Pending> responses;
    uint32_t beats_left = 0;
    bool wvalid = false;
    // Given in the cycle after the last response.
    bool gives = false;
    Completion given;

    uint32_t row_mask = 0, bus = 0, store_rows = 0, block_in = 0, act_rows = 0, rows_per_beat = 1;

    // Of the cycle at hand.
    bool act_read = false, beat_step = false, begin = false, skip = false, at_null = false;

    void configure(const tw_cycle_config &c) {
        bus = c.bus_bytes;
        row_mask = (1u << c.address_bits) - 1;
        block_in = c.block_in;
        act_rows = c.act_rows;
        store_rows = c.store_rows;
        walker.configure(bus, c.offset_bits, c.burst_beats, c.out_bursts, true);
        requests.resize(2);
        under_way.assign(c.act_read_cycles, {});
        rows.resize(c.store_rows);
        responses.resize(c.write_outstanding);
        rows_per_beat = std::max(1u, bus / block_in);
        pieces = std::max(1u, block_in / bus);
    }
    bool running() const {
        return active || !requests.empty() || reads_under_way() || !rows.empty() || beats_held || flushing || started || walker.busy() ||
               wvalid || beats_left || !responses.empty() || gives;
    }
    uint32_t reads_under_way() const {
        return std::count_if(under_way.begin(), under_way.end(), [](const auto &row) { return row.has_value(); });
    }
    // What a read asks for.
    uint32_t first_row() { return requests.head().row + done; }
    uint32_t wanted() { return requests.head().rows - done; }
    bool finds() const { return active && !bad && !requests.full(); }
    bool last_read() const { return left <= rows_per_beat && left0 == 1 && left1 == 1; }

    void look(bool wready) {
        act_read = !requests.empty() && rows.level() + reads_under_way() < store_rows;
        const bool room = !wvalid || wready;
        const bool next = beats_left == 0 && walker.offers() && !responses.full();
        skip = next && walker.out.head().null;
        begin = next && !skip && beats_held && room;
        beat_step = begin || (beats_held && room && beats_left != 0);
        at_null = !responses.empty() && responses.head().null;
    }
    bool bad_head() { return !rows.empty() && rows.head().bad; }
    // The row is missing once the beats before it are sent and its burst is known to lie in the window.
    bool range_error() { return bad_head() && !beats_held && !flushing && (beats_left != 0 || burst_waits()); }
    bool burst_waits() { return walker.offers() && !walker.out.head().null; }
    bool window_error() const { return walker.failed() && beats_left == 0; }
    bool stalled() { return (burst_waits() || beats_left != 0) && !beat_step; }
    bool ready() const { return !active && !walker.active; }

    // The edge, after `look`; `granted` rows are read. Returns true if anything moved.
    bool step(uint32_t granted, bool wready, bool response) {
        const bool read = granted != 0;
        bool moved = read || reads_under_way() || beat_step || skip || (wvalid && wready) || response || at_null;
        // Responses.
        if (response || at_null) responses.pop();
        const bool sends = begin || skip;
        const uint32_t beats = sends ? walker.out.head().beats : 0;
        if (sends) {
            const Walker::Burst &burst = walker.out.head();
            responses.push({burst.last, burst.null, burst.tag, burst.address});
        }
        // Beats.
        if (beat_step) {
            beats_left = (begin ? beats : beats_left) - 1;
            wvalid = true;
        } else if (wready) {
            wvalid = false;
        }
        // Realigner.
        const bool room = beats_held < 2, flush = flushing && room, take = !rows.empty() && !rows.head().bad && room && !flushing;
        beats_held += flush;
        beats_held -= beat_step;
        if (flush) flushing = false;
        bool pops = false;
        if (take) {
            const Row &r = rows.head();
            const uint32_t place = started ? position : r.low, piece = std::min(bus, r.bytes);
            const bool last_piece = r.last && index == pieces - 1;
            pops = index == pieces - 1;
            beats_held += place + piece >= bus || last_piece;
            index = pops ? 0 : index + 1;
            position = (place + piece) & (bus - 1);
            started = !last_piece;
            flushing = last_piece && place + piece > bus;
        }
        if (pops) rows.pop();
        // Reader.
        const bool found = finds();
        moved = moved || flush || take || found;
        if (under_way.back()) rows.push(*under_way.back());
        std::move_backward(under_way.begin(), under_way.end() - 1, under_way.end());
        under_way.front().reset();
        if (read) {
            const Request &r = requests.head();
            done += granted;
            const bool complete = done == r.rows;
            under_way.front() = Row{r.low, granted * block_in, r.last && complete, r.bad};
            if (complete) {
                requests.pop();
                done = 0;
            }
        }
        if (found) find();
        return walker.step(sends) || moved;
    }

    void find() {
        const uint32_t asked = std::min(left, rows_per_beat);
        const bool last = last_read();
        bad = row + asked > act_rows;
        if (bad) {
            bad_row = std::max(row, act_rows);
            bad_pc = current_pc;
        }
        requests.push({row, asked, low, left == asked, bad});
        if (left > asked) {
            left -= asked;
            row = (row + asked) & row_mask;
        } else if (left0 > 1) {
            left = count;
            left0--;
            row = line = (line + uint32_t(now.row_stride[0])) & row_mask;
            low = (low + uint32_t(now.mem_stride[0])) & (bus - 1);
        } else {
            left = count;
            left0 = now.count[0];
            left1--;
            row = line = plane = (plane + uint32_t(now.row_stride[1])) & row_mask;
            low = plane_low = (plane_low + uint32_t(now.mem_stride[1])) & (bus - 1);
        }
        if (last) active = false;
    }

    void set_dim(tw_word w) {
        const uint32_t k = tw_store_dim_level(w);
        box.count[k] = tw_store_dim_count(w);
        box.row_stride[k] = tw_store_dim_row_stride(w);
        box.mem_stride[k] = tw_store_dim_mem_stride(w);
    }
    void start(const Entry &e, const tw_region *regions) {
        const tw_word w = e.word;
        const bool sync = e.opcode == TW_OP_STORE_SYNC;
        const uint32_t length = tw_store_count(w), offset = uint32_t(tw_store_offset(w));
        walker.start(regions[tw_store_region(w)], offset, uint64_t(length) * block_in, box.count[0], box.count[1],
                     uint32_t(box.mem_stride[0]), uint32_t(box.mem_stride[1]), {e.pc, e.signal0, e.signal1}, sync);
        if (sync) return;
        active = true;
        row = line = plane = tw_store_row(w) & row_mask;
        low = plane_low = offset & (bus - 1);
        left = count = length;
        left0 = box.count[0];
        left1 = box.count[1];
        now = box;
        current_pc = e.pc;
    }
};

}  // namespace tw::cycle
