// Expansion: operations of a tile program, given as loop nests, become runs.
//
// Nests that have more levels than the machine are split, registers are set where they change, and of every run the
// rows it touches are found.
#pragma once

#include <cmath>

#include "runs.h"

namespace tilewright {

// Reads the numbers of a tile program one by one.
class Tape {
  public:
    Tape(const int64_t *at, size_t length) : at_(at), end_(at + length) {}
    bool more() const { return at_ < end_; }
    int64_t next() {
        if (at_ == end_) throw AssemblyError("a tile program ends in the midst of an operation");
        return *at_++;
    }
    // Levels whose operands are the first `operands` ones.
    void loops(Nest &nest, int64_t length, int operands) {
        nest.clear();
        for (int64_t i = 0; i < length; i++) {
            Loop loop{next(), {0, 0, 0, 0}};
            for (int k = 0; k < operands; k++) loop.stride[k] = next();
            nest.push_back(loop);
        }
    }

  private:
    const int64_t *at_, *end_;
};

class Expander {
  public:
    // counts_only: no runs are made, only their work is counted.
    Expander(const tw_assembler &machine, bool counts_only) : machine_(machine), counts_only_(counts_only) {}

    std::vector<Run> runs;
    std::vector<int64_t> first;  // run of each operation
    int64_t work[ENGINES] = {};  // steps or cycles of the bus, and one for each run of bytes

    void all(Tape tape) {
        while (tape.more()) {
            first.push_back(int64_t(runs.size()));
            one(tape);
        }
    }

  private:
    void one(Tape &tape) {
        const int64_t kind = tape.next();
        switch (kind) {
            case TW_OPERATION_LOAD: return load(tape, false);
            case TW_OPERATION_LOAD_PACKED: return load(tape, true);
            case TW_OPERATION_LOAD_CODED: return load_coded(tape);
            case TW_OPERATION_FILL: return fill(tape);
            case TW_OPERATION_STORE: return store(tape);
            case TW_OPERATION_GEMM: return gemm(tape);
            case TW_OPERATION_DEPTHWISE: return depthwise(tape);
            case TW_OPERATION_VECTOR: return vector(tape);
            case TW_OPERATION_VECTOR_WIDE: return vector_wide(tape);
            case TW_OPERATION_ROW: return row(tape);
            case TW_OPERATION_RUN: return given_run(tape);
        }
        throw AssemblyError("no operation of a tile program: " + std::to_string(kind));
    }

    // Transfers.

    struct Level {
        int64_t count, rows, bytes;
    };
    struct Pad {
        int64_t left = 0, right = 0, top = 0, bottom = 0, fill = 0;
        bool any() const { return left || right || top || bottom; }
    };
    static constexpr int64_t LONGEST_RUN = 0xFFFF, MOST_LINES = 255;

    static Level level(Tape &tape) {
        Level found;
        found.count = tape.next(), found.rows = tape.next(), found.bytes = tape.next();
        return found;
    }

    static bool join(int64_t &count, Level &level, int64_t row_bytes) {
        if (level.rows != count || level.bytes != count * row_bytes || count * level.count > LONGEST_RUN) return false;
        count *= level.count;
        level = {1, 0, 0};
        return true;
    }

    // The same transfer with longer runs and fewer levels, where runs follow each other on both sides.
    static void join_levels(int64_t &count, Level &y, Level &z, int64_t row_bytes) {
        if (y.count > 1) join(count, y, row_bytes);
        if (y.count == 1 && z.count > 1) {
            y = z;
            z = {1, 0, 0};
            join(count, y, row_bytes);
        }
    }

    // Adds the cycles of a transfer, and one for the start of each run.
    void count_bus(int engine, int64_t nbytes, int64_t starts) {
        const int64_t beats = (nbytes + machine_.bus_bytes - 1) / machine_.bus_bytes;
        const double interval = engine == TW_ENGINE_LOAD ? machine_.read_interval : machine_.write_interval;
        work[engine] += int64_t(std::ceil(double(beats) * interval)) + starts;
    }

    // Whether a load is left out, as of weights that a run before left in WGT.
    bool stays(int64_t region, int target) const {
        return machine_.weights_stay && target == TW_MEMORY_WGT && region == machine_.constant_region;
    }

    void load(Tape &tape, bool packed) {
        const int64_t region = tape.next(), offset = tape.next(), target = tape.next(), row = tape.next();
        const int64_t count = tape.next();
        const Level y = level(tape), z = level(tape);
        Pad pad;
        pad.left = tape.next(), pad.right = tape.next(), pad.top = tape.next(), pad.bottom = tape.next();
        pad.fill = tape.next();
        load_box(region, offset, int(target), row, count, y, z, pad, packed);
    }

    void load_box(int64_t region, int64_t offset, int target, int64_t row, int64_t count, Level y, Level z, Pad pad,
                  bool packed = false) {
        if (stays(region, target)) return;
        const int64_t row_bytes = machine_.row_bytes[target] / (packed ? 2 : 1);
        if (!pad.any()) {
            join_levels(count, y, z, row_bytes);
            pad.fill = 0;
        }
        if (pad.top + y.count + pad.bottom == 1) y = {y.count, 0, 0};
        if (z.count == 1) z = {1, 0, 0};
        const int64_t lines = pad.top + y.count + pad.bottom, data = count * y.count;
        count_bus(TW_ENGINE_LOAD, data * z.count * row_bytes, y.count * z.count);
        work[TW_ENGINE_LOAD] += (lines * (pad.left + count + pad.right) - data) * z.count;
        if (counts_only_) return;
        tw_word word = instruction(packed ? TW_OP_LOAD_PACKED : TW_OP_LOAD);  // fields in the same places
        TW_PUT(word, load_region, region);
        TW_PUT(word, load_offset, offset);
        TW_PUT(word, load_target, target);
        TW_PUT(word, load_row, row);
        TW_PUT(word, load_count, count);
        Run &run = add(TW_ENGINE_LOAD, word, true);
        run.settings = {{LOAD_DIM, {y.count, y.rows, y.bytes}},
                        {LOAD_DIM + 1, {z.count, z.rows, z.bytes}},
                        {LOAD_PAD, {pad.left, pad.right, pad.top, pad.bottom, pad.fill & 0xFF}}};
        add_spans(run.writes, target, row, {{lines, y.rows}, {z.count, z.rows}}, pad.left + count + pad.right);
        if (data && region == machine_.arena_region)
            add_spans(run.reads, MEMORY, offset, {{y.count, y.bytes}, {z.count, z.bytes}}, count * row_bytes);
    }

    void load_coded(Tape &tape) {
        const int64_t region = tape.next(), offset = tape.next(), mode = tape.next(), row = tape.next();
        const int64_t count = tape.next(), beats = tape.next();
        if (stays(region, TW_MEMORY_WGT)) return;
        count_bus(TW_ENGINE_LOAD, beats * machine_.bus_bytes, 1);
        if (counts_only_) return;
        tw_word word = instruction(TW_OP_LOAD_CODED);
        TW_PUT(word, load_coded_region, region);
        TW_PUT(word, load_coded_offset, offset);
        TW_PUT(word, load_coded_mode, mode);
        TW_PUT(word, load_coded_row, row);
        TW_PUT(word, load_coded_count, count);
        TW_PUT(word, load_coded_beats, beats);
        Run &run = add(TW_ENGINE_LOAD, word, false);
        if (mode == TW_CODE_MODE_WEIGHTS) add_spans(run.writes, TW_MEMORY_WGT, row, {}, count);
    }

    void fill(Tape &tape) {
        const int64_t row = tape.next(), length = tape.next(), value = tape.next(), dims = tape.next();
        std::vector<Dim> folded;
        for (int64_t i = 0; i < dims; i++) {
            const int64_t count = tape.next(), stride = tape.next();
            if (count > 1) folded.push_back({count, stride});
        }
        std::stable_sort(folded.begin(), folded.end(), [](const Dim &a, const Dim &b) { return a.stride < b.stride; });
        fill_rows(row, folded, length, value);
    }

    // Fills rows by loads of padding alone.
    void fill_rows(int64_t row, std::vector<Dim> dims, int64_t length, int64_t value) {
        if (dims.size() > 1) {
            const Dim outer = dims.back();
            dims.pop_back();
            for (int64_t i = 0; i < outer.count; i++) fill_rows(row + i * outer.stride, dims, length, value);
            return;
        }
        const Dim dim = dims.empty() ? Dim{1, 0} : dims[0];
        for (int64_t lines = 0, part; lines < dim.count; lines += part) {  // top padding holds so many lines
            part = std::min(MOST_LINES, dim.count - lines);
            for (int64_t at = 0, width; at < length; at += width) {
                width = std::min(2 * MOST_LINES, length - at);
                const Pad pad{std::min(MOST_LINES, width), std::max<int64_t>(0, width - MOST_LINES), part, 0, value};
                load_box(machine_.constant_region, 0, TW_MEMORY_ACT, row + lines * dim.stride + at, 0,
                         {0, dim.stride, 0}, {1, 0, 0}, pad);
            }
        }
    }

    void store(Tape &tape) {
        const int64_t region = tape.next(), offset = tape.next(), row = tape.next();
        int64_t count = tape.next();
        Level y = level(tape), z = level(tape);
        const int64_t row_bytes = machine_.row_bytes[TW_MEMORY_ACT];
        join_levels(count, y, z, row_bytes);
        if (y.count <= 1) y = {1, 0, 0};
        if (z.count <= 1) z = {1, 0, 0};
        count_bus(TW_ENGINE_STORE, count * y.count * z.count * row_bytes, y.count * z.count);
        if (counts_only_) return;
        tw_word word = instruction(TW_OP_STORE);
        TW_PUT(word, store_region, region);
        TW_PUT(word, store_offset, offset);
        TW_PUT(word, store_row, row);
        TW_PUT(word, store_count, count);
        Run &run = add(TW_ENGINE_STORE, word, false);
        set(run, STORE_DIM, {y.count, y.rows, y.bytes});
        set(run, STORE_DIM + 1, {z.count, z.rows, z.bytes});
        add_spans(run.reads, TW_MEMORY_ACT, row, {{y.count, y.rows}, {z.count, z.rows}}, count);
        if (region == machine_.arena_region)
            add_spans(run.writes, MEMORY, offset, {{y.count, y.bytes}, {z.count, z.bytes}}, count * row_bytes);
        else  // a window begins anywhere in the arena
            add_spans(run.writes, MEMORY, 0, {}, machine_.rows[MEMORY] * machine_.memory_grain);
    }

    // Products.

    enum { GEMM_ACT, GEMM_WGT, GEMM_ACC };

    void gemm(Tape &tape) {
        const int64_t act = tape.next(), wgt = tape.next(), acc = tape.next();
        const bool accumulate = tape.next();
        nest_of(tape, 3);
        gemm_nest(act, wgt, acc, reduce_, outer_, accumulate);
    }

    void gemm_nest(int64_t act, int64_t wgt, int64_t acc, const Nest &reduce, const Nest &outer, bool accumulate) {
        Nest inner = folded(reduce.data(), reduce.size()), rest = folded(outer.data(), outer.size());
        if (inner.size() + rest.size() > machine_.gemm_loops) {
            const bool split_outer = !rest.empty();
            Nest &split = split_outer ? rest : inner;
            const Loop last = split.back();
            split.pop_back();
            for (int64_t i = 0; i < last.count; i++)
                gemm_nest(act + i * last.stride[GEMM_ACT], wgt + i * last.stride[GEMM_WGT],
                          split_outer ? acc + i * last.stride[GEMM_ACC] : acc, inner, rest,
                          accumulate || (!split_outer && i > 0));
            return;
        }
        work[TW_ENGINE_GEMM] += steps(inner) * steps(rest) + machine_.overhead;
        if (counts_only_) return;
        tw_word word = instruction(TW_OP_GEMM);
        TW_PUT(word, gemm_act, act);
        TW_PUT(word, gemm_wgt, wgt);
        TW_PUT(word, gemm_acc, acc);
        TW_PUT(word, gemm_reduce, inner.size());
        TW_PUT(word, gemm_accumulate, accumulate);
        Run &run = add(TW_ENGINE_GEMM, word, false);
        const size_t reductions = inner.size();
        inner.insert(inner.end(), rest.begin(), rest.end());
        set_nest(run, GEMM_LOOP, machine_.gemm_loops, inner, 3);
        add_walk(run.reads, TW_MEMORY_ACT, act, inner, GEMM_ACT);
        add_walk(run.reads, TW_MEMORY_WGT, wgt, inner, GEMM_WGT);
        add_walk(run.writes, ACC, acc, inner, GEMM_ACC, reductions, machine_.block_out / machine_.acc_grain);
    }

    void depthwise(Tape &tape) {
        const int64_t act = tape.next(), wgt = tape.next(), acc = tape.next();
        int64_t start[2], step[2];
        for (int i = 0; i < 2; i++) start[i] = tape.next(), step[i] = tape.next();
        const int64_t slice = tape.next(), delay = tape.next();
        const bool accumulate = tape.next();
        nest_of(tape, 3);
        tw_word word = instruction(TW_OP_DEPTHWISE);
        TW_PUT(word, depthwise_accumulate, accumulate);
        TW_PUT(word, depthwise_start0, start[0]);
        TW_PUT(word, depthwise_step0, step[0]);
        TW_PUT(word, depthwise_start1, start[1]);
        TW_PUT(word, depthwise_step1, step[1]);
        TW_PUT(word, depthwise_slice, slice);
        TW_PUT(word, depthwise_delay, delay);
        const Nest walk{outer_.begin(), outer_.begin() + 2};  // pushes of a column, and columns
        depthwise_nest(act, wgt, acc, walk, {outer_.begin() + 2, outer_.end()}, start, step, word);
    }

    void depthwise_nest(int64_t act, int64_t wgt, int64_t acc, const Nest &walk, const Nest &outer,
                        const int64_t start[2], const int64_t step[2], tw_word word) {
        Nest rest = folded(outer.data(), outer.size());
        if (2 + rest.size() > machine_.gemm_loops) {
            const Loop last = rest.back();
            rest.pop_back();
            for (int64_t i = 0; i < last.count; i++)
                depthwise_nest(act + i * last.stride[GEMM_ACT], wgt + i * last.stride[GEMM_WGT],
                               acc + i * last.stride[GEMM_ACC], walk, rest, start, step, word);
            return;
        }
        work[TW_ENGINE_GEMM] += steps(walk) * steps(rest) + machine_.overhead;
        if (counts_only_) return;
        TW_PUT(word, depthwise_act, act);
        TW_PUT(word, depthwise_wgt, wgt);
        TW_PUT(word, depthwise_acc, acc);
        Run &run = add(TW_ENGINE_GEMM, word, false);
        Nest nest = walk;
        nest.insert(nest.end(), rest.begin(), rest.end());
        set_nest(run, GEMM_LOOP, machine_.gemm_loops, nest, 3);
        add_walk(run.reads, TW_MEMORY_ACT, act, nest, GEMM_ACT);
        add_walk(run.reads, TW_MEMORY_WGT, wgt, nest, GEMM_WGT);
        for (int i = 0; i < 2; i++) nest[i].count = (nest[i].count - 1 - start[i] + step[i]) / step[i];  // emissions
        add_walk(run.writes, ACC, acc, nest, GEMM_ACC, 0, machine_.dw_lanes / machine_.acc_grain);
    }

    // Vectors.

    enum { A, B, DST, PRM };

    // Fields of VECTOR_POST and VECTOR_ADD, where they are given.
    struct Given {
        bool post = false, add = false;
        Values post_values{}, add_values{};
    };
    static Given given(Tape &tape) {
        Given found;
        found.post = tape.next();
        for (int i = 0; found.post && i < 7; i++) found.post_values[i] = tape.next();
        found.add = tape.next();
        for (int i = 0; found.add && i < 4; i++) found.add_values[i] = tape.next();
        return found;
    }
    static constexpr int TABLE = 7;  // the field of VECTOR_POST

    void vector(Tape &tape) {
        const int64_t source = tape.next(), a = tape.next(), b = tape.next(), dst = tape.next(), prm = tape.next();
        const int64_t add = tape.next(), table = tape.next(), rounding = tape.next();
        const Given given = this->given(tape);
        nest_of(tape, 4);
        const bool uses_b = add || source == TW_SOURCE_MUL;
        const bool uses_prm = source == TW_SOURCE_ACC || source == TW_SOURCE_MUL || source == TW_SOURCE_SUM;
        tw_word word = instruction(TW_OP_VECTOR);
        TW_PUT(word, vector_source, source);
        TW_PUT(word, vector_add, add);
        TW_PUT(word, vector_lut, table >= 0);
        TW_PUT(word, vector_rounding, rounding);
        each_nest(a, b, dst, prm, reduce_, outer_, [&](int64_t a, int64_t b, int64_t dst, int64_t prm, const Nest &nest,
                                                       size_t reductions) {
            if (!uses_b) b = 0;
            if (!uses_prm) prm = 0;
            TW_PUT(word, vector_a, a);
            TW_PUT(word, vector_b, b);
            TW_PUT(word, vector_dst, dst);
            TW_PUT(word, vector_prm, prm);
            TW_PUT(word, vector_reduce, reductions);
            Run &run = this->add(TW_ENGINE_VECTOR, word, true);
            set_vector(run, nest);
            if (given.post || table >= 0) {
                Values values = given.post_values;
                values[TABLE] = std::max<int64_t>(table, 0);
                registers_.change({VECTOR_POST, values});
            }
            if (add && given.add) registers_.change({VECTOR_ADD, given.add_values});
            all_vector_registers(run);
            if (source == TW_SOURCE_ACC) add_walk(run.reads, ACC, a, nest, A, 0, machine_.block_in / machine_.acc_grain);
            else add_walk(run.reads, TW_MEMORY_ACT, a, nest, A);
            if (uses_b) add_walk(run.reads, TW_MEMORY_ACT, b, nest, B, reductions);
            if (uses_prm) add_walk(run.reads, TW_MEMORY_PRM, prm, nest, PRM, reductions);
            if (table >= 0) run.reads.push_back({TW_MEMORY_LUT, table, 1, 1, 0});
            add_walk(run.writes, TW_MEMORY_ACT, dst, nest, DST, reductions);
        });
    }

    void vector_wide(Tape &tape) {
        const int64_t byte = tape.next(), a = tape.next(), dst = tape.next(), prm = tape.next();
        const int64_t low = tape.next(), high = tape.next();
        nest_of(tape, 4);
        tw_word word = instruction(TW_OP_VECTOR_WIDE);
        TW_PUT(word, vector_wide_byte, byte);
        TW_PUT(word, vector_wide_low, low);
        TW_PUT(word, vector_wide_high, high);
        each_nest(a, 0, dst, prm, reduce_, outer_, [&](int64_t a, int64_t, int64_t dst, int64_t prm, const Nest &nest,
                                                       size_t reductions) {
            TW_PUT(word, vector_wide_a, a);
            TW_PUT(word, vector_wide_dst, dst);
            TW_PUT(word, vector_wide_prm, prm);
            TW_PUT(word, vector_wide_reduce, reductions);
            Run &run = add(TW_ENGINE_VECTOR, word, false);
            set_vector(run, nest);
            all_vector_registers(run);
            add_walk(run.reads, ACC, a, nest, A, 0, machine_.block_in / machine_.acc_grain);
            add_walk(run.reads, TW_MEMORY_PRM, prm, nest, PRM, reductions);
            add_walk(run.writes, TW_MEMORY_ACT, dst, nest, DST, reductions);
        });
    }

    void row(Tape &tape) {
        const int64_t function = tape.next(), a = tape.next(), prm = tape.next(), table = tape.next();
        const int64_t dst = tape.next(), tail = tape.next(), number = tape.next(), exponent = tape.next();
        const Given given = this->given(tape);
        nest_of(tape, 4);
        Nest nest = folded(reduce_.data(), reduce_.size());
        const Nest rest = folded(outer_.data(), outer_.size());
        const size_t reductions = nest.size();
        const bool norms = function == TW_ROW_FUNCTION_MOMENTS || function == TW_ROW_FUNCTION_POWER;
        int64_t cycles = steps(nest) * steps(rest) * machine_.vector_passes;
        if (norms || function == TW_ROW_FUNCTION_EXP_SUM)
            cycles = std::max<int64_t>(cycles, steps(rest) * machine_.row_divide_cycles);
        // What follows waits for the last row that is written.
        work[TW_ENGINE_VECTOR] += cycles + (norms ? machine_.row_norm_write : machine_.vector_depth);
        nest.insert(nest.end(), rest.begin(), rest.end());
        if (nest.size() > machine_.vector_loops) throw AssemblyError("a ROW has more loops than the machine");
        if (counts_only_) return;
        tw_word word = instruction(TW_OP_ROW);
        TW_PUT(word, row_function, function);
        TW_PUT(word, row_a, a);
        TW_PUT(word, row_number, number);
        TW_PUT(word, row_dst, dst);
        TW_PUT(word, row_prm, prm);
        TW_PUT(word, row_reduce, reductions);
        TW_PUT(word, row_tail, tail);
        TW_PUT(word, row_exponent, exponent);
        Run &run = add(TW_ENGINE_VECTOR, word, false);
        set_vector(run, nest);
        Values values = given.post ? given.post_values : registers_.get(VECTOR_POST);
        if (table >= 0) values[TABLE] = table;
        const bool reads_table = function != TW_ROW_FUNCTION_MAXIMUM;
        if (reads_table) registers_.change({VECTOR_POST, values});
        if (given.add) registers_.change({VECTOR_ADD, given.add_values});
        all_vector_registers(run);
        add_walk(run.reads, TW_MEMORY_ACT, a, nest, A);
        if (table >= 0 && reads_table) run.reads.push_back({TW_MEMORY_LUT, table, machine_.wide_table, 1, 0});
        if (function == TW_ROW_FUNCTION_EXP_SUM) add_walk(run.writes, TW_MEMORY_PRM, prm, nest, PRM, reductions);
        if (machine_.row_writes >> function & 1) {
            add_walk(run.reads, TW_MEMORY_PRM, prm, nest, PRM, reductions);
            add_walk(run.writes, TW_MEMORY_ACT, dst, nest, DST, reductions);
        }
    }

    // Calls a function for a nest of VECTOR, in parts where it has more levels than the machine.
    template <class Function>
    void each_nest(int64_t a, int64_t b, int64_t dst, int64_t prm, const Nest &reduce, const Nest &outer,
                   Function function) {
        Nest nest = folded(reduce.data(), reduce.size()), rest = folded(outer.data(), outer.size());
        if (nest.size() + rest.size() > machine_.vector_loops) {
            if (rest.empty()) throw AssemblyError("a reduction has more loops than the machine");
            const Loop last = rest.back();
            rest.pop_back();
            for (int64_t i = 0; i < last.count; i++)
                each_nest(a + i * last.stride[A], b + i * last.stride[B], dst + i * last.stride[DST],
                          prm + i * last.stride[PRM], nest, rest, function);
            return;
        }
        work[TW_ENGINE_VECTOR] += steps(nest) * steps(rest) * machine_.vector_passes + machine_.overhead;
        if (counts_only_) return;
        const size_t reductions = nest.size();
        nest.insert(nest.end(), rest.begin(), rest.end());
        function(a, b, dst, prm, nest, reductions);
    }

    void set_vector(Run &run, const Nest &nest) {
        set_nest(run, VECTOR_LOOP, machine_.vector_loops, nest, 4);
        run.settings.clear();
    }

    // A run of VECTOR may be written elsewhere than in its turn: it sets all registers that have other values then.
    void all_vector_registers(Run &run) {
        for (uint32_t level = 0; level < machine_.vector_loops; level++)
            run.settings.push_back({int(VECTOR_LOOP + level), registers_.get(VECTOR_LOOP + level)});
        run.settings.push_back({VECTOR_POST, registers_.get(VECTOR_POST)});
        run.settings.push_back({VECTOR_ADD, registers_.get(VECTOR_ADD)});
    }

    // A run as it is.

    void given_run(Tape &tape) {
        const int64_t engine = tape.next();
        tw_word word;
        word.lo = uint64_t(tape.next()), word.hi = uint64_t(tape.next());
        const bool movable = tape.next();
        work[engine] += tape.next();
        const int64_t reads = tape.next(), writes = tape.next();
        Run &run = add(int(engine), word, movable);
        for (auto [count, accesses] : {std::pair{reads, &run.reads}, std::pair{writes, &run.writes}})
            for (int64_t i = 0; i < count; i++) {
                Access access{int(tape.next()), 0, 0, 0, 0};
                access.start = tape.next(), access.length = tape.next();
                access.times = tape.next(), access.stride = tape.next();
                accesses->push_back(access);
            }
    }

    // What all kinds share.

    // Reads the two parts of a nest, innermost level first: what is reduced, and what is not.
    void nest_of(Tape &tape, int operands) {
        const int64_t reduce = tape.next(), outer = tape.next();
        tape.loops(reduce_, reduce, operands);
        tape.loops(outer_, outer, operands);
    }

    static int64_t steps(const Nest &nest) {
        int64_t product = 1;
        for (const Loop &loop : nest) product *= loop.count;
        return product;
    }

    // Appends a run; its work is what has been counted since the run of the engine before.
    Run &add(int engine, tw_word word, bool movable) {
        runs.emplace_back();
        Run &run = runs.back();
        run.engine = engine, run.word = word, run.movable = movable;
        run.work = work[engine] - counted_[engine];
        counted_[engine] = work[engine];
        return run;
    }

    // Sets a register before a run, unless it has these values.
    void set(Run &run, int reg, const Values &values) {
        const Setting setting{reg, values};
        if (registers_.change(setting)) run.settings.push_back(setting);
    }

    // Sets the loop levels of an engine; levels that an earlier nest left behind are set to one iteration.
    void set_nest(Run &run, int reg, uint32_t levels, const Nest &nest, int operands) {
        for (uint32_t level = 0; level < levels; level++, reg++) {
            if (level < nest.size()) {
                Values values{nest[level].count};
                for (int k = 0; k < operands; k++) values[k + 1] = nest[level].stride[k];
                set(run, reg, values);
            } else if (registers_.get(reg)[0] != 1) {
                set(run, reg, {1});
            }
        }
    }

    // Adds the rows that an operand touches in the levels of a nest from `first` on.
    static void add_walk(std::vector<Access> &found, int space, int64_t base, const Nest &nest, int operand,
                         size_t first = 0, int64_t unit = 1) {
        std::vector<Dim> dims;
        for (size_t level = first; level < nest.size(); level++)
            dims.push_back({nest[level].count, nest[level].stride[operand] * unit});
        add_spans(found, space, base * unit, dims, unit);
    }

    const tw_assembler &machine_;
    const bool counts_only_;
    Registers registers_;  // in the order of the program
    int64_t counted_[ENGINES] = {};
    Nest reduce_, outer_;
};

}  // namespace tilewright
