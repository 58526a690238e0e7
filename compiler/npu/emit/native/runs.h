// Runs: instructions that keep an engine busy, with the registers they need and the rows they touch.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "loops.h"
#include "structs.h"

namespace tilewright {

constexpr int ENGINES = 5;
constexpr int NEVER = -1;

// What cannot be assembled; the message is for the caller.
struct AssemblyError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The registers that instructions set. Levels of one register follow each other.
enum Register {
    LOAD_DIM = 0, LOAD_PAD = 2, STORE_DIM = 3, GEMM_LOOP = 5, VECTOR_LOOP = GEMM_LOOP + TW_MAX_LOOPS,
    VECTOR_POST = VECTOR_LOOP + TW_MAX_LOOPS, VECTOR_ADD, REGISTERS
};

// Whether a register counts iterations, of which there is one when a program starts; all else is 0 then.
inline bool counts(int reg) { return reg != LOAD_PAD && reg < VECTOR_POST; }

// The fields of a register in the order of the table, without its level.
constexpr int FIELDS = 8;
using Values = std::array<int64_t, FIELDS>;
struct Setting {
    int reg;
    Values values;
};

class Registers {
  public:
    Registers() { forget(); }
    const Values &get(int reg) const { return held_[reg]; }
    // Sets a register; false if it holds these values.
    bool change(const Setting &setting) {
        if (held_[setting.reg] == setting.values) return false;
        held_[setting.reg] = setting.values;
        return true;
    }
    void forget() {
        for (int reg = 0; reg < REGISTERS; reg++) held_[reg] = {counts(reg) ? 1 : 0};
    }

  private:
    std::array<Values, REGISTERS> held_;
};

// An instruction that is to be written.
struct Run {
    int engine;
    tw_word word;                   // without semaphores
    bool movable = false;           // may be issued before earlier ones: nothing of it is left in its engine
    int64_t work = 0;               // its cycles, estimated
    std::vector<Setting> settings;  // of LOAD and VECTOR all registers, of other engines those that change
    std::vector<Access> reads, writes;
    // Of a run that may go ahead, found by `Places`: the runs that must be written before it, in order; the last of
    // them that cannot go ahead; those before it that have read the same rows (who overwrites them comes after these).
    std::vector<int> after, hides;
    int behind = NEVER;
    // How it was written: behind the ends of `needs`, with so many instructions; the cycle in which it would end.
    bool written = false;
    int instructions = 0;
    std::vector<int> needs;
    int64_t end = 0;
};

// Setters that raise where a value does not fit its field.
template <class Get, class Set>
inline void put(tw_word &word, Get get, Set set, const char *name, int64_t value) {
    set(&word, value);
    if (int64_t(get(word)) != value)
        throw AssemblyError(std::string(name) + " cannot be " + std::to_string(value));
}
#define TW_PUT(word, field, value) \
    put(word, tw_##field, [](tw_word *w, int64_t v) { tw_set_##field(w, v); }, #field, value)

inline tw_word instruction(uint32_t opcode) {
    tw_word word{0, 0};
    tw_set_header_opcode(&word, opcode);
    return word;
}

// The instruction that sets a register.
inline tw_word encode(const Setting &setting) {
    const int reg = setting.reg;
    const Values &v = setting.values;
    tw_word w;
    if (reg < LOAD_PAD) {
        w = instruction(TW_OP_LOAD_DIM);
        TW_PUT(w, load_dim_level, reg - LOAD_DIM);
        TW_PUT(w, load_dim_count, v[0]);
        TW_PUT(w, load_dim_row_stride, v[1]);
        TW_PUT(w, load_dim_mem_stride, v[2]);
    } else if (reg == LOAD_PAD) {
        w = instruction(TW_OP_LOAD_PAD);
        TW_PUT(w, load_pad_left, v[0]);
        TW_PUT(w, load_pad_right, v[1]);
        TW_PUT(w, load_pad_top, v[2]);
        TW_PUT(w, load_pad_bottom, v[3]);
        TW_PUT(w, load_pad_fill, v[4]);
    } else if (reg < GEMM_LOOP) {
        w = instruction(TW_OP_STORE_DIM);
        TW_PUT(w, store_dim_level, reg - STORE_DIM);
        TW_PUT(w, store_dim_count, v[0]);
        TW_PUT(w, store_dim_row_stride, v[1]);
        TW_PUT(w, store_dim_mem_stride, v[2]);
    } else if (reg < VECTOR_LOOP) {
        w = instruction(TW_OP_GEMM_LOOP);
        TW_PUT(w, gemm_loop_level, reg - GEMM_LOOP);
        TW_PUT(w, gemm_loop_count, v[0]);
        TW_PUT(w, gemm_loop_act_stride, v[1]);
        TW_PUT(w, gemm_loop_wgt_stride, v[2]);
        TW_PUT(w, gemm_loop_acc_stride, v[3]);
    } else if (reg < VECTOR_POST) {
        w = instruction(TW_OP_VECTOR_LOOP);
        TW_PUT(w, vector_loop_level, reg - VECTOR_LOOP);
        TW_PUT(w, vector_loop_count, v[0]);
        TW_PUT(w, vector_loop_a_stride, v[1]);
        TW_PUT(w, vector_loop_b_stride, v[2]);
        TW_PUT(w, vector_loop_dst_stride, v[3]);
        TW_PUT(w, vector_loop_prm_stride, v[4]);
    } else if (reg == VECTOR_POST) {
        w = instruction(TW_OP_VECTOR_POST);
        TW_PUT(w, vector_post_zp, v[0]);
        TW_PUT(w, vector_post_lo, v[1]);
        TW_PUT(w, vector_post_hi, v[2]);
        TW_PUT(w, vector_post_add_lo, v[3]);
        TW_PUT(w, vector_post_add_hi, v[4]);
        TW_PUT(w, vector_post_za, v[5]);
        TW_PUT(w, vector_post_zb, v[6]);
        TW_PUT(w, vector_post_table, v[7]);
    } else {
        w = instruction(TW_OP_VECTOR_ADD);
        TW_PUT(w, vector_add_ma, v[0]);
        TW_PUT(w, vector_add_mb, v[1]);
        TW_PUT(w, vector_add_c, v[2]);
        TW_PUT(w, vector_add_shift, v[3]);
    }
    return w;
}

}  // namespace tilewright
