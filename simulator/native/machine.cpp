// The fast path of the functional simulator: scheduling and the entry point.
#include "machine.h"

#include "depthwise.h"
#include "gemm.h"
#include "transfer.h"
#include "row.h"
#include "vector.h"

namespace tw {

namespace {

struct Entry {
    uint64_t pc;
    tw_word word;
};

// A queue of `queue_depth` instructions.
class Queue {
  public:
    explicit Queue(uint32_t depth) : entries_(depth) {}
    bool empty() const { return size_ == 0; }
    bool full() const { return size_ == entries_.size(); }
    const Entry &head() const { return entries_[first_]; }
    void push(const Entry &e) { entries_[(first_ + size_++) % entries_.size()] = e; }
    Entry pop() {
        Entry e = head();
        first_ = (first_ + 1) % entries_.size();
        size_--;
        return e;
    }

  private:
    std::vector<Entry> entries_;
    size_t first_ = 0, size_ = 0;
};

constexpr int ENGINES = TW_ENGINE_STORE + 1;

}  // namespace

Machine::Machine(tw_run &run) : r_(run), c_(run.config), operands_(run.operands, run.config) {
    codes_.configure(c_.weight_codes, c_.bus_bytes);
}

void Machine::execute() {
    std::vector<Queue> queues(ENGINES, Queue(c_.queue_depth));
    uint64_t pc = 0;
    bool ended = false;
    r_.engine = TW_ENGINE_FETCH;
    r_.pc = 0;

    // The registers have 32 bits; the caller checks this too, with a message.
    if (r_.program_region >= TW_REGIONS || r_.program_offset > UINT32_MAX || r_.program_length > UINT32_MAX)
        throw Fault{TW_ERROR_CODE_ILLEGAL_OPERAND};
    span(uint32_t(r_.program_region), uint32_t(r_.program_offset), TW_INSTRUCTION_BYTES * r_.program_length, false);
    const uint8_t *program = r_.memory + r_.regions[r_.program_region].base + r_.program_offset;
    uint64_t *semaphores = r_.semaphores;

    auto engine_of = [](tw_word w) { return int(tw_header_opcode(w) >> 4); };
    auto ready = [&](tw_word w) {
        uint32_t a = tw_header_wait0(w), b = tw_header_wait1(w);
        return (!a || semaphores[a]) && (!b || semaphores[b]);
    };
    auto start = [&](const Entry &e) {
        r_.engine = uint64_t(engine_of(e.word));
        r_.pc = e.pc;
        uint32_t waits[2] = {tw_header_wait0(e.word), tw_header_wait1(e.word)};
        for (uint32_t s : waits)
            if (s) semaphores[s]--;
        run_instruction(e.word);
        uint32_t signals[2] = {tw_header_signal0(e.word), tw_header_signal1(e.word)};
        for (uint32_t s : signals)
            if (s) {
                if (semaphores[s] == TW_SEMAPHORE_LIMIT) throw Fault{TW_ERROR_CODE_SEMAPHORE_OVERFLOW, s};
                semaphores[s]++;
            }
    };

    for (;;) {
        int oldest = -1;
        bool waiting = false;
        for (int e = TW_ENGINE_LOAD; e < ENGINES; e++) {
            if (queues[e].empty()) continue;
            waiting = true;
            if (ready(queues[e].head().word) && (oldest < 0 || queues[e].head().pc < queues[oldest].head().pc)) oldest = e;
        }
        if (oldest >= 0) {
            start(queues[oldest].pop());
            continue;
        }
        int full = -1;
        if (!ended) {
            r_.engine = TW_ENGINE_FETCH;
            r_.pc = pc;
            if (pc == r_.program_length) throw Fault{TW_ERROR_CODE_NO_END};
            Entry e = {pc, {0, 0}};
            std::memcpy(&e.word, program + pc * TW_INSTRUCTION_BYTES, TW_INSTRUCTION_BYTES);
            if (int code = tw_check(e.word, &r_.limits)) throw Fault{uint64_t(code)};
            uint32_t opcode = tw_header_opcode(e.word);
            Queue &queue = queues[tw_queue_of(engine_of(e.word), c_.vector_queue)];
            if (opcode == TW_OP_END) ended = true;
            else if (queue.full()) full = int(&queue - queues.data());
            else if (queue.empty() && ready(e.word)) start(e);  // program order, the usual case
            else queue.push(e);
            if (full < 0) {
                pc++;
                continue;
            }
        } else if (!waiting) {
            break;
        }
        std::fill(std::begin(r_.heads), std::end(r_.heads), -1);
        for (const Queue &queue : queues)
            if (!queue.empty()) r_.heads[engine_of(queue.head().word)] = int64_t(queue.head().pc);
        r_.fetch_blocked_on = full;
        throw Fault{TW_ERROR_CODE_WATCHDOG};
    }
    r_.instructions = pc;
    r_.bytes_read += bus_bytes_of(r_.program_offset, TW_INSTRUCTION_BYTES * pc, c_.bus_bytes);
}

void Machine::run_instruction(tw_word w) {
    switch (tw_header_opcode(w)) {
    case TW_OP_LOAD_DIM:
        load_box_[tw_load_dim_level(w)] = {tw_load_dim_count(w), {tw_load_dim_row_stride(w), tw_load_dim_mem_stride(w)}};
        break;
    case TW_OP_LOAD_PAD:
        pad_ = {tw_load_pad_left(w), tw_load_pad_right(w), tw_load_pad_top(w), tw_load_pad_bottom(w),
                uint8_t(tw_load_pad_fill(w))};
        break;
    case TW_OP_LOAD: load(w, false); break;
    case TW_OP_LOAD_PACKED: load(w, true); break;
    case TW_OP_LOAD_CODED: load_coded(w); break;
    case TW_OP_LOAD_SYNC: spend(TW_ENGINE_LOAD, 1); break;
    case TW_OP_GEMM_LOOP:
        gemm_[tw_gemm_loop_level(w)] = {
            tw_gemm_loop_count(w), {tw_gemm_loop_act_stride(w), tw_gemm_loop_wgt_stride(w), tw_gemm_loop_acc_stride(w)}};
        break;
    case TW_OP_GEMM: gemm(w); break;
    case TW_OP_DEPTHWISE: depthwise(w); break;
    case TW_OP_GEMM_SYNC: spend(TW_ENGINE_GEMM, 1); break;
    case TW_OP_VECTOR_LOOP:
        vector_[tw_vector_loop_level(w)] = {tw_vector_loop_count(w),
                                            {tw_vector_loop_a_stride(w), tw_vector_loop_b_stride(w),
                                             tw_vector_loop_dst_stride(w), tw_vector_loop_prm_stride(w)}};
        break;
    case TW_OP_VECTOR_ADD:
        add_ = {tw_vector_add_ma(w), tw_vector_add_mb(w), tw_vector_add_c(w), tw_vector_add_shift(w)};
        break;
    case TW_OP_VECTOR_POST:
        post_ = {tw_vector_post_zp(w),     tw_vector_post_lo(w), tw_vector_post_hi(w), tw_vector_post_add_lo(w),
                 tw_vector_post_add_hi(w), tw_vector_post_za(w), tw_vector_post_zb(w), tw_vector_post_table(w)};
        break;
    case TW_OP_VECTOR: vector(w); break;
    case TW_OP_ROW: row(w); break;
    case TW_OP_VECTOR_WIDE: vector_wide(w); break;
    case TW_OP_VECTOR_SYNC: spend(TW_ENGINE_VECTOR, 1); break;
    case TW_OP_STORE_DIM:
        store_box_[tw_store_dim_level(w)] = {tw_store_dim_count(w),
                                             {tw_store_dim_row_stride(w), tw_store_dim_mem_stride(w)}};
        break;
    case TW_OP_STORE: store(w); break;
    case TW_OP_STORE_SYNC: spend(TW_ENGINE_STORE, 1); break;
    default: throw Fault{TW_ERROR_CODE_ILLEGAL_OPCODE};  // an instruction of the table that has no case here
    }
}

}  // namespace tw

extern "C" {

uint64_t tw_run_size() { return sizeof(tw_run); }

uint64_t tw_operand_bytes(const tw_config *config) { return tw::Operands::bytes(*config); }

void tw_run_program(tw_run *run) {
    run->code = TW_ERROR_CODE_NONE;
    run->instructions = run->macs = run->bytes_read = run->bytes_written = 0;
    std::fill(std::begin(run->steps), std::end(run->steps), 0);
    std::fill(std::begin(run->semaphores), std::end(run->semaphores), 0);
    run->fetch_blocked_on = -1;
    try {
        tw::Machine(*run).execute();
    } catch (const tw::Fault &fault) {
        run->code = fault.code;
        run->address = fault.address;
        run->memory_id = fault.memory_id;
        run->region = fault.region;
        run->offset = fault.offset;
        run->nbytes = fault.nbytes;
    }
}
}
