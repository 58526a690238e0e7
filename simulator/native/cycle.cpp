// The cycle-level simulator: the machine, cycle by cycle, without its data.
//
// Every cycle is looked at in the order of its combinational paths (memory, GEMM, VECTOR, STORE's reader, LOAD, bursts,
// semaphores), then all registers step. A cycle in which no register changes is repeated until the memory, the watchdog
// or the timeout does something: those repetitions are counted, not evaluated. The same holds while only GEMM steps and
// neither VECTOR nor the reader of STORE could meet its reads.
#include "cycle.h"

#include "cycle_compute.h"
#include "cycle_fetch.h"
#include "cycle_load.h"
#include "cycle_store.h"

namespace tw::cycle {

using tilewright::NEVER;

class Machine {
  public:
    explicit Machine(tw_cycle_run &run);
    void execute();

  private:
    struct Owner {
        bool load;
    };
    struct Events {
        bool waiting[ENGINES], stalled[ENGINES];
        uint8_t missing[ENGINES];
    };
    // Errors of one cycle, the first in this order counts.
    enum Order { FETCH_ERROR, LOAD_OPERAND, LOAD_WINDOW, LOAD_BUS, LOAD_RANGE, LOAD_CODE, GEMM_RANGE, VECTOR_RANGE, STORE_WINDOW,
                 STORE_RANGE, STORE_BUS, OVERFLOW_ERROR, EXPIRED, LATE, NONE };

    tw_cycle_run &r_;
    const tw_cycle_config &c_;
    tilewright::MemoryTiming timing_;
    tilewright::ReadChannel reads_;
    tilewright::WriteChannel writes_;
    Fetch fetch_;
    Load load_;
    Gemm gemm_;
    Vector vector_;
    Store store_;
    Fifo<Entry> queues_[ENGINES], *queue_of_[ENGINES];  // with instructions of the engine
    Fifo<Owner> owners_;
    std::vector<uint8_t> bad_responses_;
    size_t responses_taken_ = 0;
    uint32_t semaphores_[TW_MAX_SEMAPHORES + 1] = {};
    bool held_[ENGINES] = {};   // the head of the queue has its semaphores
    bool taken_[ENGINES] = {};  // since the cycle before
    bool popped_[ENGINES] = {};   // a queue an entry, in the cycle before
    bool blocked_[ENGINES] = {};  // by a semaphore, in the cycle before
    uint64_t now_ = 0;            // the cycle at hand
    uint32_t still_ = 0;          // cycles in which no engine moved, nor was one given an instruction
    bool quiet_engines_ = false;  // enough of them
    uint64_t quiet_ = 0;
    struct {
        bool found;
        uint64_t engine, pc, semaphore;
    } overflow_ = {};  // of the cycle before

    Order first_error_ = NONE;
    uint64_t code_ = 0, engine_ = 0, pc_ = 0, address_ = 0;

    void fail(Order order, uint64_t code, uint64_t engine, uint64_t pc, uint64_t address) {
        if (order >= first_error_) return;
        first_error_ = order;
        code_ = code;
        engine_ = engine;
        pc_ = pc;
        address_ = address;
    }
    bool outside(uint64_t address) const {
        return address >= r_.memory_bytes || r_.memory_bytes - address < c_.bus_bytes;
    }
    void fail_watchdog(uint64_t fetch_pc, const Events &seen) {
        for (int e = TW_ENGINE_LOAD; e < ENGINES; e++)
            if (seen.waiting[e]) return fail(EXPIRED, TW_ERROR_CODE_WATCHDOG, uint64_t(e), queue_of(e).head().pc, seen.missing[e]);
        fail(EXPIRED, TW_ERROR_CODE_WATCHDOG, TW_ENGINE_FETCH, fetch_pc, 0);
    }
    bool finished() const {
        if (!fetch_.ended || !owners_.empty() || gave_) return false;
        for (int e = TW_ENGINE_LOAD; e < ENGINES; e++)
            if (!queues_[e].empty()) return false;
        return !load_.running() && !gemm_.running() && !vector_.running() && !store_.running();
    }
    Fifo<Entry> &queue_of(int engine) { return *queue_of_[engine]; }
    // Whether the head of its queue is an instruction of the engine, and there by now.
    bool has_head(int engine) {
        return !queue_of(engine).empty() && queue_of(engine).head().engine() == engine && queue_of(engine).head().from <= now_;
    }
    // Whether an instruction is still on its way to the head.
    bool arrives() {
        for (auto &queue : queues_)
            if (!queue.empty() && queue.head().from > now_) return true;
        return false;
    }
    bool lacks(uint8_t semaphore) const { return semaphore && !semaphores_[semaphore]; }
    uint32_t missing(const Entry &e) const {
        return lacks(e.wait0) ? e.wait0 : e.wait1;
    }
    enum Moved { NOTHING, ONLY_GEMM, SOMETHING };
    Moved cycle(uint64_t now, bool &progress);
    bool nobody_reads() const {
        return !vector_.active && vector_.drained(now_) && !store_.act_read;
    }
    void configure(int engine, const Entry &e);
    void start(int engine, const Entry &e);
    void give(uint64_t now, int engine, const Completion &end);

    Events seen_ = {}, before_ = {};  // of the cycle at hand, of the one before
    bool address_handshake_ = false;  // AR or AW in the next cycle
    struct Given {
        int engine;
        Completion end;
    };
    int gives_ = 0, gave_ = 0;  // the latter in the cycle before: they count from the next one on
    Given given_[ENGINES], given_before_[ENGINES];
};

Machine::Machine(tw_cycle_run &run)
    : r_(run), c_(run.config),
      timing_{c_.read_latency, c_.write_latency, c_.read_interval, c_.write_interval}, reads_(timing_), writes_(timing_) {
    fetch_.configure(run);
    load_.configure(c_);
    gemm_.configure(c_);
    vector_.configure(c_);
    store_.configure(c_);
    for (auto &q : queues_) q.resize(c_.queue_depth);
    for (int e = 0; e < ENGINES; e++) queue_of_[e] = &queues_[tw_queue_of(e, c_.vector_queue)];
    owners_.resize(c_.read_outstanding);
}

void Machine::configure(int engine, const Entry &e) {
    switch (e.opcode) {
    case TW_OP_LOAD_DIM: load_.set_dim(e.word); break;
    case TW_OP_LOAD_PAD: load_.set_pad(e.word); break;
    case TW_OP_GEMM_LOOP: gemm_.set_loop(e.word); break;
    case TW_OP_VECTOR_LOOP: vector_.set_loop(e.word); break;
    case TW_OP_STORE_DIM: store_.set_dim(e.word); break;
    default: (void)engine;  // constants of VECTOR take no time
    }
}

void Machine::start(int engine, const Entry &e) {
    switch (engine) {
    case TW_ENGINE_LOAD:
        if (!load_.start(e, r_.regions)) fail(LOAD_OPERAND, TW_ERROR_CODE_ILLEGAL_OPERAND, TW_ENGINE_LOAD, e.pc, 0);
        break;
    case TW_ENGINE_GEMM: gemm_.start(e); break;
    case TW_ENGINE_VECTOR: vector_.start(e); break;
    default: store_.start(e, r_.regions);
    }
}

void Machine::give(uint64_t now, int engine, const Completion &end) {
    given_[gives_++] = {engine, end};
    if (r_.times) r_.times[end.pc].ended = now;
}

// One cycle: everything is looked at before anything changes. Returns what changed.
Machine::Moved Machine::cycle(uint64_t now, bool &progress) {
    gives_ = 0;
    now_ = now;
    before_ = seen_;
    std::memset(&seen_, 0, sizeof seen_);

    // What the memory offers.
    const bool rvalid = reads_.offers(now), wready = writes_.accepts(now), bvalid = writes_.responds(now);

    // Scratchpads, in order of priority.
    const bool gemm_steps = gemm_.active;
    const bool acc_read = gemm_.acc_read_due.take(now);
    vector_.look(gemm_, !acc_read, now);
    store_.look(wready);
    uint32_t store_granted = 0;  // rows, up to the first whose bank is taken
    for (const uint32_t wanted = store_.act_read ? store_.wanted() : 0; store_granted < wanted; store_granted++) {
        const uint32_t bank = (store_.first_row() + store_granted) & vector_.banks_mask;
        if (gemm_.reads(bank) || vector_.refuses(bank)) break;
    }
    const uint8_t vector_write = vector_.write_due.take(now);
    const bool scale_write = vector_.scale_due.take(now);
    load_.look(!(vector_write && load_.refused(vector_write - 1u)) && !(scale_write && load_.writes_prm()));

    // Reads from the bus: beats, then requests.
    const bool to_load = !owners_.empty() && owners_.head().load;
    const bool taken = rvalid && (!to_load || load_.beat_ready);
    const bool load_beat = taken && to_load, fetch_beat = taken && !to_load;
    const bool last_beat = taken && reads_.last();
    const uint64_t beat_address = taken ? reads_.address() : 0;
    const bool bad_beat = taken && outside(beat_address);
    const bool can = !owners_.full(), fetch_asks = can && fetch_.requests(), load_asks = can && !fetch_.requests() && load_.walker.offers();
    const bool response = bvalid && !store_.at_null;

    // Completions.
    if (load_.gives) give(now, TW_ENGINE_LOAD, load_.given);
    const bool load_completes = load_.completes();
    if (load_completes) load_.given = load_.chunks.head().end;
    const bool gemm_ends = gemm_.end_due.take(now), vector_ends = vector_.end_due.take(now);
    if (gemm_ends) give(now, TW_ENGINE_GEMM, gemm_.ends.head());
    if (vector_ends) give(now, TW_ENGINE_VECTOR, vector_.ends.head());
    const bool bad_response = response && bad_responses_[responses_taken_];
    if (store_.gives) give(now, TW_ENGINE_STORE, store_.given);
    const Store::Pending *completes = nullptr;
    if (store_.at_null || response) {
        const Store::Pending &p = store_.responses.head();
        if (bad_response) fail(STORE_BUS, TW_ERROR_CODE_BUS_WRITE, TW_ENGINE_STORE, p.tag.pc, p.address);
        else if (p.null || p.last) completes = &p;
    }

    // Front ends and semaphores.
    const bool row_next = has_head(TW_ENGINE_VECTOR) && queue_of(TW_ENGINE_VECTOR).head().opcode == TW_OP_ROW;
    const bool vector_ready = vector_.ready(row_next, now);
    const bool core_ready[ENGINES] = {false, load_.ready(), gemm_.ready(), vector_ready, store_.ready()};
    bool configures[ENGINES] = {}, starts[ENGINES] = {}, takes[ENGINES] = {}, blocks[ENGINES] = {};
    uint64_t shared = 0;  // semaphores somebody took in the cycle before, or a lower engine could take
    for (int e = TW_ENGINE_LOAD; e < ENGINES; e++)
        if (taken_[e]) shared |= queue_of(e).head().waits();
    bool moved = vector_write != 0 || scale_write || arrives();  // LOAD, or an engine, may go on in the next cycle
    for (int e = TW_ENGINE_LOAD; e < ENGINES; e++) {
        if (!has_head(e)) continue;
        const Entry &entry = queue_of(e).head();
        if (entry.configures) {
            configures[e] = true;
        } else if (held_[e]) {
            starts[e] = core_ready[e];
        } else {
            const bool able = !lacks(entry.wait0) && !lacks(entry.wait1);
            takes[e] = able && !(shared & entry.waits());
            blocks[e] = !takes[e];
            seen_.waiting[e] = blocks[e] && core_ready[e];
            seen_.missing[e] = uint8_t(missing(entry));
            if (able) shared |= entry.waits();
            if (r_.times && seen_.waiting[e] && !r_.times[entry.pc].waited) r_.times[entry.pc].waited = now;
        }
    }

    // FETCH. Its errors wait until no engine can move any more.
    const bool running[ENGINES] = {false, load_.running(), gemm_.running(), vector_.running(), store_.running()};
    bool quiet = true;
    for (int e = TW_ENGINE_LOAD; e < ENGINES; e++)
        quiet = quiet && !running[e] && (!has_head(e) || blocked_[e]);
    const int target = fetch_.offers() ? tw_queue_of(fetch_.entry.engine(), c_.vector_queue) : TW_ENGINE_FETCH;
    // What was popped in the cycle before makes room in the next.
    const bool dispatched = fetch_.offers() && (fetch_.is_end || queues_[target].level() + popped_[target] < c_.queue_depth);
    const bool was_quiet = std::exchange(quiet_engines_, still_ == c_.quiet_cycles);
    const uint32_t was_still = still_;
    const bool cleared = now == 1;  // the core leaves its reset a cycle after the run has begun
    still_ = cleared || !quiet || fetch_.offers() ? 0 : std::min(still_ + 1, c_.quiet_cycles);
    moved |= still_ != was_still || was_quiet != quiet_engines_;
    if (was_quiet && fetch_.fails()) {
        const uint64_t at = fetch_.base + fetch_.offset + uint64_t(TW_INSTRUCTION_BYTES) * fetch_.pc;
        if (fetch_.beyond()) {
            const bool no_end = fetch_.present == fetch_.length;
            fail(FETCH_ERROR, no_end ? TW_ERROR_CODE_NO_END : TW_ERROR_CODE_WINDOW, TW_ENGINE_FETCH, fetch_.pc, at);
        } else if (fetch_.held_bad) {
            fail(FETCH_ERROR, TW_ERROR_CODE_BUS_READ, TW_ENGINE_FETCH, fetch_.pc, at);
        } else {
            fail(FETCH_ERROR, uint64_t(fetch_.code), TW_ENGINE_FETCH, fetch_.pc, 0);
        }
    }

    // Errors that can be seen before anything steps.
    if (load_.beat_ready && load_.bursts == 0 && load_.walker.failed())
        fail(LOAD_WINDOW, TW_ERROR_CODE_WINDOW, TW_ENGINE_LOAD, load_.walker.tag2.pc, load_.walker.first2);
    if (store_.window_error())
        fail(STORE_WINDOW, TW_ERROR_CODE_WINDOW, TW_ENGINE_STORE, store_.walker.tag2.pc, store_.walker.first2);
    if (store_.range_error())
        fail(STORE_RANGE, TW_ERROR_CODE_SCRATCHPAD_RANGE, TW_ENGINE_STORE, store_.bad_pc, store_.bad_row);
    if (load_beat && bad_beat) fail(LOAD_BUS, TW_ERROR_CODE_BUS_READ, TW_ENGINE_LOAD, load_.segments.head().end.pc, beat_address);

    if (taken) {
        reads_.take(now, c_.bus_bytes);
        if (last_beat) owners_.pop();
        load_.bursts -= last_beat && to_load;
        r_.bytes_read += c_.bus_bytes;
    }
    if (fetch_asks) {
        reads_.request(now + 1, fetch_.address << fetch_.low, fetch_.request_beats());
        owners_.push({false});
    } else if (load_asks) {
        reads_.request(now + 1, load_.walker.out.head().address, load_.walker.out.head().beats);
        owners_.push({true});
        load_.bursts++;
    }
    const bool writes = store_.wvalid && wready;
    if (writes) {
        if (outside(writes_.address())) bad_responses_.back() = 1;
        writes_.take(now, c_.bus_bytes);
        r_.bytes_written += c_.bus_bytes;
    }
    if (store_.begin) {
        writes_.request(store_.walker.out.head().address, store_.walker.out.head().beats);
        bad_responses_.push_back(0);
    }
    address_handshake_ = fetch_asks || load_asks || store_.begin;
    if (response) {
        writes_.respond(now);
        responses_taken_++;
    }

    const bool load_at_work = load_.at_work();
    if (load_.range_error())
        fail(LOAD_RANGE, TW_ERROR_CODE_SCRATCHPAD_RANGE, TW_ENGINE_LOAD, load_.chunks.head().end.pc, load_.range_row());
    moved |= load_.gives || load_completes;
    load_.gives = load_completes;
    const uint32_t load_pc = load_at_work ? load_.segments.head().end.pc : 0;
    const Load::Outcome loaded = load_.step(load_beat, load_beat && !bad_beat ? r_.memory + beat_address : nullptr);
    if (load_.code_error) fail(LOAD_CODE, TW_ERROR_CODE_CODE, TW_ENGINE_LOAD, load_pc, 0);
    moved |= loaded.moved;
    moved |= load_.walker.step(load_asks);
    seen_.stalled[TW_ENGINE_LOAD] = load_at_work && !loaded.step;
    r_.engines[TW_ENGINE_LOAD].busy += loaded.step;

    if (gemm_steps) {
        r_.macs += !gemm_.null;
        const Range range = gemm_.step(now);
        if (range.bad) fail(GEMM_RANGE, TW_ERROR_CODE_SCRATCHPAD_RANGE, TW_ENGINE_GEMM, gemm_.current_pc, range.row);
        r_.engines[TW_ENGINE_GEMM].busy++;
    }
    if (gemm_ends) gemm_.ends.pop();

    seen_.stalled[TW_ENGINE_VECTOR] = vector_.active && !vector_.works;
    if (vector_.active) {
        const bool works = vector_.works;
        const Range range = vector_.step(now);
        if (range.bad) fail(VECTOR_RANGE, TW_ERROR_CODE_SCRATCHPAD_RANGE, TW_ENGINE_VECTOR, vector_.current_pc, range.row);
        r_.engines[TW_ENGINE_VECTOR].busy += works;
        moved = true;
    }
    if (vector_ends) vector_.ends.pop();

    seen_.stalled[TW_ENGINE_STORE] = store_.stalled();
    const bool store_steps = store_.beat_step;
    r_.engines[TW_ENGINE_STORE].busy += store_steps;
    moved |= store_.gives || completes;
    store_.gives = completes;
    if (completes) store_.given = completes->tag;
    moved |= store_.step(store_granted, wready, response);

    // Queues: full or not was decided above.
    if (dispatched) {
        if (r_.times) r_.times[fetch_.entry.pc].dispatched = now;
        r_.instructions++;
    }
    progress = progress || dispatched || store_granted || loaded.step || gemm_steps || vector_.works || store_steps || taken || writes || response;
    for (int e = TW_ENGINE_LOAD; e < ENGINES; e++) {
        r_.engines[e].wait_semaphore += seen_.waiting[e];
        r_.engines[e].wait_memory += seen_.stalled[e];
        if (taken_[e]) {
            const Entry &entry = queue_of(e).head();
            if (entry.wait0) semaphores_[entry.wait0]--;
            if (entry.wait1) semaphores_[entry.wait1]--;
        }
        moved = moved || taken_[e] || takes[e] || popped_[e];
        taken_[e] = takes[e];
        moved = moved || blocked_[e] != blocks[e];
        blocked_[e] = blocks[e];
        held_[e] = (held_[e] || takes[e]) && !starts[e];
        popped_[e] = false;
        if (!configures[e] && !starts[e]) continue;
        popped_[tw_queue_of(e, c_.vector_queue)] = true;  // e or an engine before it
        const Entry entry = queue_of(e).head();
        queue_of(e).pop();
        moved = progress = true;
        if (configures[e]) {
            configure(e, entry);
            continue;
        }
        start(e, entry);
        if (r_.times) r_.times[entry.pc].started = now;
    }
    if (dispatched && !fetch_.is_end) {
        fetch_.entry.from = now + c_.queue_cycles;
        queues_[target].push(fetch_.entry);
    }
    moved |= fetch_.step(dispatched, fetch_asks, fetch_beat, bad_beat);

    moved = moved || gives_ || gave_;
    if (gave_) {
        for (int i = 0; i < gave_; i++) {
            const Completion &end = given_before_[i].end;
            if (end.signal0) semaphores_[end.signal0]++;
            if (end.signal1) semaphores_[end.signal1]++;
        }
        for (int i = 0; i < gave_; i++) {
            const Completion &end = given_before_[i].end;
            const bool over0 = semaphores_[end.signal0] > TW_SEMAPHORE_LIMIT, over1 = semaphores_[end.signal1] > TW_SEMAPHORE_LIMIT;
            if ((end.signal0 && over0) || (end.signal1 && over1)) {
                overflow_ = {true, uint64_t(given_before_[i].engine), end.pc, over0 && end.signal0 ? end.signal0 : end.signal1};
                break;
            }
        }
    }
    gave_ = gives_;
    std::copy(given_, given_ + gives_, given_before_);
    if (moved || !vector_.drained(now)) return SOMETHING;
    if (gemm_steps) return ONLY_GEMM;
    return gemm_.end_due.empty() && gemm_.acc_read_due.empty() ? NOTHING : SOMETHING;
}

void Machine::execute() {
    const uint64_t first = uint64_t(c_.fetch_setup) + 2;  // FETCH is set up
    bool finishing = false, done = false;                  // everything was done in the cycle before, two before
    for (uint64_t now = 1;; now++) {
        r_.cycles = now;
        r_.evaluated++;
        if (now == first) fetch_.active = true;
        const bool stopped = r_.evaluated % 1024 == 0 && r_.stop && __atomic_load_n(r_.stop, __ATOMIC_RELAXED);
        const bool late = stopped || (r_.timeout && r_.timeout == now - 1);
        if (overflow_.found)
            fail(OVERFLOW_ERROR, TW_ERROR_CODE_SEMAPHORE_OVERFLOW, overflow_.engine, overflow_.pc, overflow_.semaphore);
        const bool expired = r_.watchdog && quiet_ == r_.watchdog;
        const uint64_t pc = fetch_.pc;
        if (done) {
            if (expired) fail_watchdog(pc, before_);
            if (late) fail(LATE, TW_ERROR_CODE_TIMEOUT, TW_ENGINE_FETCH, pc, 0);
            break;
        }
        done = finishing;
        finishing = finished();
        bool progress = address_handshake_;
        address_handshake_ = false;
        const Moved moved = cycle(now, progress);
        if (expired) fail_watchdog(pc, before_);
        if (late) fail(LATE, TW_ERROR_CODE_TIMEOUT, TW_ENGINE_FETCH, pc, 0);
        if (first_error_ != NONE) break;
        quiet_ = progress ? 0 : quiet_ + 1;
        if (finishing || moved == SOMETHING || now < first || (moved == ONLY_GEMM && !nobody_reads())) continue;

        // Nothing changes until one of these.
        uint64_t next = NEVER;
        auto at = [&](uint64_t cycle) {
            if (cycle > now && cycle < next) next = cycle;
        };
        at(reads_.offered_from());
        if (store_.wvalid) at(writes_.accepts_from());
        at(writes_.responds_from());
        if (r_.timeout) at(r_.timeout + 1);
        uint64_t skipped;
        if (moved == ONLY_GEMM) {
            skipped = gemm_.unseen(next - now - 1);
            if (!skipped) continue;
            gemm_.jump(skipped);
            r_.macs += skipped;
            r_.engines[TW_ENGINE_GEMM].busy += skipped;
        } else {
            if (r_.watchdog) at(now + 1 + (r_.watchdog - quiet_));
            if (next == NEVER) {
                fail_watchdog(pc, seen_);
                break;
            }
            skipped = next - now - 1;
            quiet_ += skipped;
        }
        for (int e = TW_ENGINE_LOAD; e < ENGINES; e++) {
            r_.engines[e].wait_semaphore += skipped * seen_.waiting[e];
            r_.engines[e].wait_memory += skipped * seen_.stalled[e];
        }
        now += skipped;
    }
    r_.code = code_;
    r_.engine = engine_;
    r_.pc = pc_;
    r_.address = address_;
}

}  // namespace tw::cycle

extern "C" {

uint64_t tw_cycle_size() { return sizeof(tw_cycle_run); }

void tw_cycle_run_program(tw_cycle_run *run) {
    // The registers have 32 bits; the caller checks this too, with a message.
    if (run->program_region >= TW_REGIONS || run->program_offset > UINT32_MAX || run->program_length > UINT32_MAX) {
        run->code = TW_ERROR_CODE_ILLEGAL_OPERAND;
        return;
    }
    tw::cycle::Machine(*run).execute();
}
}
