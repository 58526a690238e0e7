// GEMM (hw/gemm/gemm.py) and VECTOR (hw/vector/vector.py): steps, reads and completions.
#pragma once

#include "cycle.h"

namespace tw::cycle {

struct Range {
    bool bad = false;
    uint32_t row = 0;
};

struct Gemm {
    enum { ACT, WGT, ACC };
    Nest<3> nest;
    bool active = false, null = false, depthwise = false, accumulate = false, careful = false;
    bool pairs = false, fresh = false;  // pushes of a DEPTHWISE may go in pairs; none was made so far
    int reduce = 0;
    uint32_t wait[2] = {}, start_at[2] = {}, step_by[2] = {};
    uint32_t current_pc = 0;
    Fifo<Completion> ends;
    Delay end_due, acc_read_due;
    uint32_t depth = 0, signal = 0, acc_read_depth = 0, act_rows = 0, wgt_tiles = 0, acc_limit = 0, acc_shift = 0;
    uint32_t wide_shift = 0, physical_rows = 0, banks_mask = 0;
    bool window_pairs = false;

    void configure(const tw_cycle_config &c) {
        nest.levels = int(c.gemm_loops);
        nest.mask = (1u << c.address_bits) - 1;
        ends.resize(64);
        depth = c.gemm_depth;
        signal = c.gemm_signal;
        acc_read_depth = c.gemm_depth - c.accumulate_stages;
        act_rows = c.act_rows;
        banks_mask = c.act_banks - 1;
        window_pairs = c.window_pairs;
        wgt_tiles = c.wgt_tiles;
        const uint32_t most = std::max(c.block_in, c.block_out);
        wide_shift = log2_of(most / c.dw_lanes);
        physical_rows = c.acc_rows * c.block_out / most;
        split_always = c.dw_lanes == c.block_out;
    }
    bool split_always = false;

    bool running() const { return !ends.empty(); }
    bool last_step(int carry) const { return null || carry == nest.open; }
    bool emits() const { return !depthwise || (wait[0] == 0 && wait[1] == 0); }
    // Whether the step pushes the next vector of its line as well.
    bool twice() const { return pairs && !fresh && !emits() && nest.carry() == 0 && nest.open; }
    bool ready() const { return !active || last_step(twice() && nest.left[0] == 1 ? nest.carry(1) : nest.carry()); }
    // Whether this cycle's step reads a bank of ACT.
    bool reads(uint32_t bank) const {
        return active && !null && ((nest.address(ACT) & banks_mask) == bank ||
                                   (twice() && ((nest.address(ACT) + nest.level[0].stride[ACT]) & banks_mask) == bank));
    }

    // The edge of a step.
    Range step(uint64_t cycle) {
        Range range;
        if (twice()) {
            range = push(cycle);
            const Range second = push(cycle);
            if (!range.bad) range = second;
        } else {
            range = push(cycle);
        }
        return range;
    }

    Range push(uint64_t cycle) {
        const int carry = nest.carry();
        Range range;
        fresh = false;
        if (!null) {
            const bool emits = this->emits();
            if (careful) range = check(emits);
            if (emits && accumulate && (depthwise || nest.inner_first(reduce)))
                acc_read_due.put(cycle + acc_read_depth, 1);
            if (depthwise) {
                const bool hit[2] = {wait[0] == 0, wait[1] == 0};
                for (int k = 0; k < 2; k++) {
                    if (carry == k && carry < nest.open) wait[k] = hit[k] ? step_by[k] - 1 : wait[k] - 1;
                    else if (carry > k && carry < nest.open) wait[k] = start_at[k];
                }
                nest.step(carry, [&](int a, int k) { return a != ACC || k >= 2 || hit[k]; });
            } else {
                nest.step(carry, [&](int a, int k) { return a != ACC || k >= reduce; });
            }
        }
        if (last_step(carry)) {
            active = false;
            end_due.put(cycle + signal, 1);
        }
        return range;
    }

    // How many of the `cycles` that follow can be made at once if nobody looks at what GEMM reads: all but those whose
    // reads of ACC or completion are still ahead at the end of them. 0 where it would not pay.
    uint64_t unseen(uint64_t cycles) const {
        if (!active || null || depthwise || careful || !end_due.empty()) return 0;
        cycles = std::min(cycles, nest.following());
        return cycles >= 4 * depth ? cycles - depth : 0;
    }
    // Makes `unseen` steps.
    void jump(uint64_t steps) {
        acc_read_due.clear();  // everything in it happens meanwhile
        nest.jump(steps, [&](int a, int k) { return a != ACC || k >= reduce; });
    }

    Range check(bool emits) const {
        const uint32_t act = nest.address(ACT), wgt = nest.address(WGT), acc = nest.address(ACC);
        if (act >= act_rows) return {true, act};
        if (emits && wgt >= wgt_tiles) return {true, wgt};
        if (emits && acc >> acc_shift >= physical_rows) return {true, acc};
        return {};
    }

    void set_loop(tw_word w) {
        auto &level = nest.configured[tw_gemm_loop_level(w)];
        level.count = tw_gemm_loop_count(w);
        level.stride[ACT] = tw_gemm_loop_act_stride(w);
        level.stride[WGT] = tw_gemm_loop_wgt_stride(w);
        level.stride[ACC] = tw_gemm_loop_acc_stride(w);
    }

    void start(const Entry &e) {
        const tw_word w = e.word;
        active = true;
        null = e.opcode == TW_OP_GEMM_SYNC;
        depthwise = e.opcode == TW_OP_DEPTHWISE;
        ends.push({e.pc, e.signal0, e.signal1});
        current_pc = e.pc;
        if (null) return;
        accumulate = depthwise ? tw_depthwise_accumulate(w) : tw_gemm_accumulate(w);
        reduce = depthwise ? 0 : int(tw_gemm_reduce(w));
        acc_shift = split_always || (depthwise && wide_shift) ? wide_shift : 0;
        if (depthwise) nest.start({tw_depthwise_act(w), tw_depthwise_wgt(w), tw_depthwise_acc(w)});
        else nest.start({tw_gemm_act(w), tw_gemm_wgt(w), tw_gemm_acc(w)});
        wait[0] = start_at[0] = tw_depthwise_start0(w);
        wait[1] = start_at[1] = tw_depthwise_start1(w);
        step_by[0] = tw_depthwise_step0(w);
        step_by[1] = tw_depthwise_step1(w);
        careful = may_leave();
        fresh = true;
        pairs = window_pairs && depthwise && (nest.level[0].stride[ACT] & banks_mask) && !nest.level[0].stride[WGT] &&
                tw_depthwise_delay(w) != 1;
    }

    // Whether any address could leave its memory: reaches of the whole nest, emissions or not.
    bool may_leave() const {
        const int64_t rows[3] = {act_rows, wgt_tiles, int64_t(physical_rows) << acc_shift};
        for (int a = 0; a < 3; a++) {
            int64_t low = nest.address(a), high = low;
            for (int k = 0; k < nest.levels; k++) {
                const int64_t reach = (int64_t(nest.level[k].count) - 1) * nest.level[k].stride[a];
                (reach < 0 ? low : high) += reach;
            }
            if (low < 0 || high >= rows[a]) return true;
        }
        return false;
    }
};

struct Vector {
    enum { A, B, DST, PRM };
    Nest<4> nest;
    bool active = false, null = false, phase = false, add = false, reducing = false, from_acc = false, uses_b = false,
         uses_prm = false, writes = true, divides = false, norm = false, norms = false,
         after_norm = false;  // divides: EXP_SUM, and MOMENTS and POWER, which are norms; after_norm: since the last start
    int reduce = 0;
    uint32_t current_pc = 0;
    Fifo<Completion> ends;
    Delay end_due, write_due, scale_due;  // write_due: bank + 1; scale_due: writes of the row unit to PRM
    uint64_t divider_free = 0;            // the first cycle in which the last step of a row of EXP_SUM may begin
    uint64_t norms_written = 0;           // the last cycle in which STAT is written
    uint32_t divide_cycles = 0, scale_write = 0, scale_cycles = 0, norm_write = 0;
    uint32_t depth = 0, signal = 0, act_rows = 0, acc_vectors = 0, prm_rows = 0, banks_mask = 0, passes = 1;
    uint32_t pass = 0;  // of the row at work; a row is read in its first pass, its step is the last one

    // Of the cycle at hand. `works`: it makes a pass.
    bool acc_read = false, a_read = false, b_read = false, same_bank = false, result = false, works = false, steps = false,
         granted = false;

    void configure(const tw_cycle_config &c) {
        nest.levels = int(c.vector_loops);
        nest.mask = (1u << c.address_bits) - 1;
        ends.resize(64);
        depth = c.vector_depth;
        signal = c.vector_signal;
        act_rows = c.act_rows;
        acc_vectors = c.acc_rows * c.block_out / c.block_in;
        prm_rows = c.prm_rows;
        banks_mask = c.act_banks - 1;
        passes = c.vector_passes;
        divide_cycles = c.row_divide_cycles;
        scale_write = c.row_scale_write;
        scale_cycles = c.row_scale_cycles;
        norm_write = c.row_norm_write;
    }

    bool running() const { return !ends.empty(); }
    // Nothing is in its pipeline that anybody else could meet.
    bool drained(uint64_t cycle) const {
        return end_due.empty() && write_due.empty() && scale_due.empty() && norms_written < cycle;
    }
    bool last_step() const { return null || nest.last(); }
    // `is_row`: the instruction to start.
    bool ready(bool is_row, uint64_t cycle) const {
        return !active && !(running() && (is_row || after_norm)) && !(is_row && cycle <= norms_written);
    }
    uint32_t bank_a() const { return nest.address(A) & banks_mask; }
    uint32_t bank_b() const { return nest.address(B) & banks_mask; }

    // `acc_free`: GEMM does not read ACC.
    void look(const Gemm &gemm, bool acc_free, uint64_t cycle) {
        acc_read = a_read = b_read = same_bank = works = steps = granted = false;
        if (!active) return;
        if (null || pass) {
            works = granted = true;
            steps = null || pass + 1 == passes;
            return;
        }
        result = !reducing || nest.inner_last(reduce);
        if (divides && result && cycle < divider_free) return;
        const bool need_b = uses_b && result;
        same_bank = !from_acc && need_b && bank_a() == bank_b();
        acc_read = from_acc;
        a_read = !from_acc && !phase;
        b_read = need_b && (!same_bank || phase);
        // VECTOR a goes before b, but they never ask for one bank in one cycle.
        granted = !(acc_read && !acc_free) && !(a_read && gemm.reads(bank_a())) && !(b_read && gemm.reads(bank_b()));
        works = granted && (!same_bank || phase);
        steps = works && passes == 1;
    }

    // Whether a read of STORE meets one of VECTOR's, granted or not.
    bool refuses(uint32_t bank) const { return (a_read && bank_a() == bank) || (b_read && bank_b() == bank); }

    // The edge, after `look`.
    Range step(uint64_t cycle) {
        Range range;
        if (!works) {
            if (granted && same_bank && !phase) phase = true;
            return range;
        }
        phase = false;
        const uint32_t a = nest.address(A), b = nest.address(B), dst = nest.address(DST), prm = nest.address(PRM);
        if (!null && !pass) {
            if (a >= (from_acc ? acc_vectors : act_rows)) range = {true, a};
            else if (uses_b && result && b >= act_rows) range = {true, b};
            else if (norm && b >= prm_rows) range = {true, b};
            else if (uses_prm && result && prm >= prm_rows) range = {true, prm};
            else if (result && writes && dst >= act_rows) range = {true, dst};
        }
        if (!steps) {
            pass++;
            return range;
        }
        pass = 0;
        const bool last = last_step();
        if (!null) {
            if (result && writes) write_due.put(cycle + depth + 1, uint8_t((dst & banks_mask) + 1));
            if (result && divides) {
                divider_free = cycle + divide_cycles - (passes - 1);
                if (norms) norms_written = cycle + norm_write;
                else if (!range.bad)
                    for (uint32_t word = 0; word < scale_cycles; word++) scale_due.put(cycle + scale_write + word, 1);
            }
            nest.step(nest.carry(), [&](int address, int k) { return address == A || !reducing || k >= reduce; });
        }
        if (last) {
            active = false;
            end_due.put(cycle + signal, 1);
        }
        return range;
    }

    void set_loop(tw_word w) {
        auto &level = nest.configured[tw_vector_loop_level(w)];
        level.count = tw_vector_loop_count(w);
        level.stride[A] = tw_vector_loop_a_stride(w);
        level.stride[B] = tw_vector_loop_b_stride(w);
        level.stride[DST] = tw_vector_loop_dst_stride(w);
        level.stride[PRM] = tw_vector_loop_prm_stride(w);
    }

    void start(const Entry &e) {
        const tw_word w = e.word;
        active = true;
        phase = false;
        null = e.opcode == TW_OP_VECTOR_SYNC;
        ends.push({e.pc, e.signal0, e.signal1});
        current_pc = e.pc;
        const uint32_t function = tw_row_function(w);
        const bool is_row = e.opcode == TW_OP_ROW;
        after_norm = norm = is_row && function == TW_ROW_FUNCTION_NORM;
        norms = is_row && (function == TW_ROW_FUNCTION_MOMENTS || function == TW_ROW_FUNCTION_POWER);
        divides = norms || (is_row && function == TW_ROW_FUNCTION_EXP_SUM);
        if (null) return;
        if (is_row) {
            from_acc = uses_b = false;
            uses_prm = true;
            writes = norm || function == TW_ROW_FUNCTION_EXP;
            reducing = !writes;
            reduce = int(tw_row_reduce(w));
            nest.start({uint32_t(tw_row_a(w)), uint32_t(tw_row_number(w)), uint32_t(tw_row_dst(w)), uint32_t(tw_row_prm(w))});
            return;
        }
        writes = true;
        if (e.opcode == TW_OP_VECTOR_WIDE) {
            from_acc = reducing = uses_prm = true;
            uses_b = false;
            reduce = int(tw_vector_wide_reduce(w));
            nest.start({uint32_t(tw_vector_wide_a(w)), 0, uint32_t(tw_vector_wide_dst(w)), uint32_t(tw_vector_wide_prm(w))});
            return;
        }
        const uint32_t source = tw_vector_source(w);
        from_acc = source == TW_SOURCE_ACC;
        reducing = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX;
        uses_prm = from_acc || source == TW_SOURCE_MUL || source == TW_SOURCE_SUM;
        uses_b = tw_vector_add(w) || source == TW_SOURCE_MUL;
        reduce = int(tw_vector_reduce(w));
        nest.start({uint32_t(tw_vector_a(w)), uint32_t(tw_vector_b(w)), uint32_t(tw_vector_dst(w)), uint32_t(tw_vector_prm(w))});
    }
};

}  // namespace tw::cycle
