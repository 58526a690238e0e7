// The Verilated NPU with its test memory behind a C interface: registers, a run, counters, a trace.
//
// One cycle is: inputs as the memory model says, an evaluation with the clock low (outputs and handshakes of the cycle
// are read here), then the rising edge. External memory belongs to the caller; an access outside it is answered with
// DECERR or SLVERR. Mirrored by hw/sim/device.py.
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "Vnpu.h"
#include "axi_rules.h"
#include "tilewright_isa.h"
#include "tilewright_memory.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#ifdef TW_TRACE
#include "fst.h"
#include "verilated_vcd_c.h"
#endif

using tilewright::AxiRules;
using tilewright::MemoryTiming;
using tilewright::ReadChannel;
using tilewright::WriteChannel;

namespace {

// What an access outside the memory is answered with: nothing is there, or what is there failed. Pages take turns.
uint32_t outside(uint64_t address) {
    constexpr uint32_t SLVERR = 2, DECERR = 3;
    return address >> 12 & 1 ? DECERR : SLVERR;
}

// Cycles a register access may take, then it is given up and noted; one of the RTL as it is takes some ten.
constexpr int PATIENCE = 1 << 9;

// Sets the port `fault`, which designs with faults have: the number of the one that is there, 0 = none.
template <class T> auto set_fault(T &top, uint32_t number, int) -> decltype(top.fault, void()) { top.fault = number; }
template <class T> void set_fault(T &, uint32_t, long) {}

struct Event {
    uint64_t cycle;
    uint32_t pc;
    uint8_t engine, kind;  // kind: 0 step, 1 start, 2 end
    uint16_t unused;
};

struct Simulation {
    VerilatedContext context;
    std::unique_ptr<Vnpu> top;
    MemoryTiming timing{};
    std::unique_ptr<ReadChannel> reads;
    std::unique_ptr<WriteChannel> writes;
    std::vector<uint32_t> responses;  // of bursts written, in order
    size_t responses_taken = 0, bursts_to_write = 0;  // that were asked for
    uint32_t write_bad = 0;  // of the burst being written
    uint8_t *memory = nullptr;
    uint64_t memory_bytes = 0, origin = 0;  // address of its first byte
    uint64_t cycle = 0, run_cycle = 0;
    bool stuck = false;  // the memory answers nothing
    uint64_t stalls = 0;  // not 0: addresses are taken, and answers of registers are, at random
    int64_t unanswered = -1;  // address of a register access that was given up, or before an answer nobody asked for
    int64_t last_write = 0;
    int writes_open = 0;  // to registers, not yet answered
    AxiRules<Vnpu> rules;
    const char *broken = nullptr;  // the first rule that was
    bool running = false, log_steps = false, log = false;
    std::vector<Event> events;
    uint64_t trace_from = 0, trace_to = 0;
    std::vector<std::string> texts;  // of the instructions of the program
#ifdef TW_TRACE
    std::unique_ptr<tilewright::FstFile> fst;
    std::unique_ptr<VerilatedVcdC> vcd;
    std::array<std::deque<uint32_t>, 5> at_work;  // by engine: the instructions that began and have not ended
#endif

    Simulation() : top(new Vnpu(&context)) { restart_memory(); }

    ~Simulation() {
        close_trace();
        top->final();
    }

    void close_trace() {
#ifdef TW_TRACE
        if (vcd) vcd->close();
        vcd.reset();
        fst.reset();
#endif
    }

    // Opens a waveform; that with texts makes FST of what Verilator writes.
    bool open_trace(const char *file, bool with_texts) {
        close_trace();
#ifdef TW_TRACE
        context.traceEverOn(true);
        if (with_texts) fst.reset(new tilewright::FstFile({"FETCH", "LOAD", "GEMM", "VECTOR", "STORE"}));
        vcd.reset(new VerilatedVcdC(fst.get()));
        top->trace(vcd.get(), 99);
        vcd->open(file);
        return vcd->isOpen();
#else
        (void)file, (void)with_texts;
        return false;
#endif
    }

    void restart_memory() {
        reads.reset(new ReadChannel(timing));
        writes.reset(new WriteChannel(timing));
        responses.clear();
        responses_taken = bursts_to_write = 0;
        write_bad = 0;
    }

    bool inside(uint64_t address) const {
        return address < memory_bytes && memory_bytes - address >= sizeof(top->axi_rdata);
    }

    void dump(uint64_t time) {
#ifdef TW_TRACE
        if (vcd && running && run_cycle >= trace_from && run_cycle < trace_to) vcd->dump(time);
#else
        (void)time;
#endif
    }

    // Shows, with the clock low, the first instruction that each engine works on; FETCH that which it dispatches.
    void dump_texts() {
#ifdef TW_TRACE
        if (!fst || !running) return;
        const Vnpu &t = *top;
        const uint32_t starts[5][2] = {
            {t.dbg_fetch_start, t.dbg_fetch_start_pc}, {t.dbg_load_start, t.dbg_load_start_pc},
            {t.dbg_gemm_start, t.dbg_gemm_start_pc}, {t.dbg_vector_start, t.dbg_vector_start_pc},
            {t.dbg_store_start, t.dbg_store_start_pc}};
        const bool ends[5] = {true, t.dbg_load_end != 0, t.dbg_gemm_end != 0, t.dbg_vector_end != 0,
                              t.dbg_store_end != 0};
        const bool shown = run_cycle >= trace_from && run_cycle < trace_to;
        if (shown) vcd->flush();  // so that the time of the texts is that of the signals
        for (size_t e = 0; e < at_work.size(); e++) {
            auto &begun = at_work[e];
            if (starts[e][0]) begun.push_back(starts[e][1]);
            if (shown) fst->text(e, !begun.empty() && begun[0] < texts.size() ? texts[begun[0]] : "");
            if (ends[e] && !begun.empty()) begun.pop_front();
        }
#endif
    }

    void note(uint8_t engine, uint32_t step, uint32_t start, uint32_t start_pc, uint32_t end, uint32_t end_pc) {
        if (log_steps && step) events.push_back({run_cycle, 0, engine, 0, 0});
        if (start) events.push_back({run_cycle, start_pc, engine, 1, 0});
        if (end) events.push_back({run_cycle, end_pc, engine, 2, 0});
    }

    // Whether who is asked is ready: always, or every other time, by Marsaglia's xorshift64.
    bool ready() {
        if (!stalls) return true;
        stalls ^= stalls << 13;
        stalls ^= stalls >> 7;
        stalls ^= stalls << 17;
        return stalls >> 32 & 1;
    }

    void tick() {
        Vnpu &t = *top;
        t.axi_arready = ready();
        t.axi_awready = ready();
        if (stalls) t.axil_bready = ready();
        t.axi_rvalid = !stuck && reads->offers(cycle);
        if (t.axi_rvalid) {
            const uint64_t address = reads->address() - origin;
            t.axi_rlast = reads->last();
            t.axi_rresp = inside(address) ? 0 : outside(address);
            if (inside(address)) std::memcpy(&t.axi_rdata, memory + address, sizeof(t.axi_rdata));
            else std::memset(&t.axi_rdata, 0, sizeof(t.axi_rdata));
        }
        // A beat may come with the address of its burst, but not be taken before it.
        t.axi_wready = !stuck && writes->accepts(cycle) && (!stalls || bursts_to_write > responses.size());
        t.axi_bvalid = !stuck && writes->responds(cycle);
        if (t.axi_bvalid) t.axi_bresp = responses[responses_taken];
        t.clk = 0;
        t.eval();
        dump(2 * cycle);
        dump_texts();

        // A beat that no burst is open for ends none.
        const bool last = t.axi_wvalid && t.axi_wready && (writes->open() ? writes->last() : t.axi_awvalid && !t.axi_awlen);
        if (const char *rule = rules.broken(t, last); rule && !broken) broken = rule;
        if (t.axil_bvalid && t.axil_bready && --writes_open < 0) unanswered = last_write;
        if (t.axi_rvalid && t.axi_rready) reads->take(cycle, sizeof(t.axi_rdata));
        if (t.axi_arvalid && t.axi_arready) reads->request(cycle, t.axi_araddr, uint32_t(t.axi_arlen) + 1);
        if (t.axi_bvalid && t.axi_bready) {
            writes->respond(cycle);
            responses_taken++;
        }
        if (t.axi_awvalid && t.axi_awready) {
            writes->request(t.axi_awaddr, uint32_t(t.axi_awlen) + 1);
            bursts_to_write++;
        }
        if (t.axi_wvalid && t.axi_wready) {
            const uint64_t address = writes->address() - origin;
            uint64_t strobe = 0;
            std::memcpy(&strobe, &t.axi_wstrb, sizeof(t.axi_wstrb));
            if (inside(address)) {
                const uint8_t *data = reinterpret_cast<const uint8_t *>(&t.axi_wdata);
                for (size_t i = 0; i < sizeof(t.axi_wdata); i++)
                    if (strobe >> i & 1) memory[address + i] = data[i];
            } else {
                write_bad = outside(address);
            }
            if (writes->take(cycle, sizeof(t.axi_wdata))) {
                responses.push_back(write_bad);
                write_bad = 0;
            }
        }
        if (log) {
#define NOTE(E, NAME)                                                                                     \
    note(E, t.dbg_##NAME##_step, t.dbg_##NAME##_start, t.dbg_##NAME##_start_pc, t.dbg_##NAME##_end, \
         t.dbg_##NAME##_end_pc)
            NOTE(TW_ENGINE_FETCH, fetch);
            NOTE(TW_ENGINE_LOAD, load);
            NOTE(TW_ENGINE_GEMM, gemm);
            NOTE(TW_ENGINE_VECTOR, vector);
            NOTE(TW_ENGINE_STORE, store);
#undef NOTE
        }
        t.clk = 1;
        t.eval();
        dump(2 * cycle + 1);
        cycle++;
        run_cycle++;
    }

    void reset() {
        top->rst = 1;
        for (int i = 0; i < 4; i++) tick();
        top->rst = 0;
        writes_open = 0;
        rules.reset();
        tick();
        broken = nullptr;
    }

    // Returns after the edge that takes address and data.
    void write_register(uint32_t address, uint32_t value) {
        Vnpu &t = *top;
        t.axil_awaddr = address;
        t.axil_wdata = value;
        t.axil_wstrb = 15;
        t.axil_awvalid = t.axil_wvalid = t.axil_bready = 1;
        bool taken;
        int left = PATIENCE;
        do {
            t.eval();
            taken = t.axil_awready && t.axil_wready;
            tick();
        } while (!taken && left--);
        if (!taken) unanswered = address;
        else writes_open++;
        last_write = address;
        t.axil_awvalid = t.axil_wvalid = 0;
    }

    uint32_t read_register(uint32_t address) {
        Vnpu &t = *top;
        t.axil_araddr = address;
        t.axil_arvalid = 1;
        t.axil_rready = 0;
        bool taken;
        int left = PATIENCE;
        do {
            t.eval();
            taken = t.axil_arready;
            tick();
        } while (!taken && left--);
        t.axil_arvalid = 0;
        while (!t.axil_rvalid && left-- > 0) tick();
        if (!taken || !t.axil_rvalid) unanswered = address;
        const uint32_t value = t.axil_rdata;
        t.axil_rready = 1;
        tick();
        t.axil_rready = 0;
        return value;
    }
};

}  // namespace

extern "C" {

void *tw_rtl_create() {
    auto *s = new Simulation;
    s->reset();
    return s;
}

void tw_rtl_destroy(void *h) { delete static_cast<Simulation *>(h); }

void tw_rtl_timing(void *h, uint32_t read_latency, uint32_t write_latency, double read_interval, double write_interval) {
    static_cast<Simulation *>(h)->timing = {read_latency, write_latency, read_interval, write_interval};
}

void tw_rtl_write(void *h, uint32_t address, uint32_t value) { static_cast<Simulation *>(h)->write_register(address, value); }

uint32_t tw_rtl_read(void *h, uint32_t address) { return static_cast<Simulation *>(h)->read_register(address); }

// Address of a register access that nothing answered since the last call, or that was answered twice; -1 if all is well.
int64_t tw_rtl_unanswered(void *h) {
    auto &s = *static_cast<Simulation *>(h);
    const int64_t found = s.unanswered;
    s.unanswered = -1;
    return found;
}

// The rule of AXI that was broken first since the last call; null if none was.
const char *tw_rtl_broken(void *h) { return std::exchange(static_cast<Simulation *>(h)->broken, nullptr); }

// Turns on a fault of a design that has some, and begins anew.
void tw_rtl_fault(void *h, uint32_t number) {
    Simulation &s = *static_cast<Simulation *>(h);
    set_fault(*s.top, number, 0);
    s.reset();
}

void tw_rtl_reset(void *h) { static_cast<Simulation *>(h)->reset(); }

// Memory for register writes and cycles outside `tw_rtl_run`; requests under way are forgotten.
void tw_rtl_memory(void *h, uint8_t *memory, uint64_t bytes) {
    Simulation &s = *static_cast<Simulation *>(h);
    s.memory = memory;
    s.memory_bytes = bytes;
    s.restart_memory();
}

// The memory's first byte stands at this address from now on.
void tw_rtl_origin(void *h, uint64_t address) { static_cast<Simulation *>(h)->origin = address; }

// From now on addresses, and answers of registers, are taken at random cycles, by a seed; 0: at once, as usual.
void tw_rtl_stall(void *h, uint64_t seed) { static_cast<Simulation *>(h)->stalls = seed; }

// From now on the memory answers nothing (1) or as usual (0).
void tw_rtl_stuck(void *h, uint32_t stuck) { static_cast<Simulation *>(h)->stuck = stuck; }

// Writes CONTROL and runs until the interrupt line rises or `limit` cycles have passed. Returns 1 on the interrupt.
uint32_t tw_rtl_run(void *h, uint8_t *memory, uint64_t bytes, uint32_t log, uint64_t limit) {
    Simulation &s = *static_cast<Simulation *>(h);
    tw_rtl_memory(h, memory, bytes);
    s.events.clear();
    s.log = false;
    s.write_register(TW_REG_CONTROL, 1u << TW_REG_CONTROL_START_LOW);
    s.run_cycle = 1;
    s.running = true;
#ifdef TW_TRACE
    for (auto &begun : s.at_work) begun.clear();
#endif
    s.log = log != 0;
    s.log_steps = log > 1;
    while (!s.top->irq && s.run_cycle <= limit) s.tick();
    s.running = s.log = false;
    return s.top->irq;
}

// Runs `cycles`, less if the interrupt line is high. Returns the line.
uint32_t tw_rtl_tick(void *h, uint64_t cycles) {
    Simulation &s = *static_cast<Simulation *>(h);
    while (cycles-- && !s.top->irq) s.tick();
    return s.top->irq;
}

const void *tw_rtl_events(void *h, uint64_t *count) {
    auto &events = static_cast<Simulation *>(h)->events;
    *count = events.size();
    return events.data();
}

// Records cycles from..to-1 of the runs that follow, as VCD (0) or as FST with texts (1). Returns 0 if it cannot.
uint32_t tw_rtl_trace(void *h, const char *file, uint32_t fst, uint64_t from, uint64_t to) {
    Simulation &s = *static_cast<Simulation *>(h);
    s.trace_from = from;
    s.trace_to = to;
    return s.open_trace(file, fst != 0);
}

// What a waveform shows for each instruction of the program that runs next.
void tw_rtl_texts(void *h, const char *const *texts, uint32_t count) {
    static_cast<Simulation *>(h)->texts.assign(texts, texts + count);
}

// Writes what all runs have covered, in Verilator's form. Returns 0 if the library was built without it.
uint32_t tw_rtl_coverage(void *h, const char *file) {
#if VM_COVERAGE
    static_cast<Simulation *>(h)->context.coveragep()->write(file);
    return 1;
#else
    (void)h, (void)file;
    return 0;
#endif
}

void tw_rtl_close_trace(void *h) { static_cast<Simulation *>(h)->close_trace(); }
}
