// Runs a program on the Verilated NPU behind an AXI memory, by the C driver, and compares every byte of memory and the
// cycles of every run: ./V@TOP@ [bench.txt]
//
// bench.txt has a record a line, addresses and sizes in decimal and bytes in hexadecimal digits:
//   fingerprint HEX           the configuration it was made for
//   timing R W RI WI          memory: latency of reads and writes, cycles between beats of both
//   memory BYTES              size; zeros at first
//   write ADDRESS BYTES       what is put there before the next run
//   expect ADDRESS BYTES      what the next run changes
//   region N BASE SIZE FLAGS  a region of the next run: 1 = read, 2 = write
//   run REGION OFFSET COUNT CYCLES   place of the program in a region, its instructions, cycles it takes
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "V@TOP@.h"
#include "tilewright_memory.h"
#include "tilewright_npu.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

namespace {

struct Bench {
    VerilatedContext context;
    V@TOP@ top{&context};
    tilewright::MemoryTiming timing{64, 64, 1, 1};
    tilewright::ReadChannel reads{timing};
    tilewright::WriteChannel writes{timing};
    std::vector<uint8_t> memory, wanted;
    bool bad = false;  // the burst being written left the memory
    std::deque<uint8_t> responses;
    uint64_t cycle = 0;
#if VM_TRACE
    VerilatedVcdC trace;
#endif

    Bench() {
#if VM_TRACE
        context.traceEverOn(true);
        top.trace(&trace, 99);
        trace.open("bench.vcd");
#endif
        top.m_axi_arready = top.m_axi_awready = top.s_axi_bready = 1;
        for (int i = 0; i < 8; i++) {
            top.aresetn = i >= 4;
            tick();
        }
    }

    ~Bench() {
#if VM_TRACE
        trace.close();
#endif
        top.final();
    }

    bool inside(uint64_t address) const {
        return address < memory.size() && memory.size() - address >= sizeof(top.m_axi_rdata);
    }

    void tick() {
        constexpr uint8_t SLVERR = 2;
        top.m_axi_rvalid = reads.offers(cycle);
        if (top.m_axi_rvalid) {
            const bool there = inside(reads.address());
            top.m_axi_rlast = reads.last();
            top.m_axi_rresp = there ? 0 : SLVERR;
            if (there) std::memcpy(&top.m_axi_rdata, &memory[reads.address()], sizeof(top.m_axi_rdata));
        }
        top.m_axi_wready = writes.accepts(cycle);
        top.m_axi_bvalid = writes.responds(cycle);
        if (top.m_axi_bvalid) top.m_axi_bresp = responses.front();
        top.aclk = 0;
        top.eval();
        dump(0);
        if (top.m_axi_rvalid && top.m_axi_rready) reads.take(cycle, sizeof(top.m_axi_rdata));
        if (top.m_axi_arvalid) reads.request(cycle, top.m_axi_araddr, top.m_axi_arlen + 1u);
        if (top.m_axi_bvalid && top.m_axi_bready) {
            writes.respond(cycle);
            responses.pop_front();
        }
        if (top.m_axi_awvalid) writes.request(top.m_axi_awaddr, top.m_axi_awlen + 1u);
        if (top.m_axi_wvalid && top.m_axi_wready) write_beat(SLVERR);
        top.aclk = 1;
        top.eval();
        dump(1);
        cycle++;
    }

    void write_beat(uint8_t error) {
        const uint64_t address = writes.address();
        const uint8_t *data = reinterpret_cast<const uint8_t *>(&top.m_axi_wdata);
        bad |= !inside(address);
        for (size_t i = 0; i < sizeof(top.m_axi_wdata) && inside(address); i++)
            if (top.m_axi_wstrb >> i & 1) memory[address + i] = data[i];
        if (writes.take(cycle, sizeof(top.m_axi_wdata))) {
            responses.push_back(bad ? error : 0);
            bad = false;
        }
    }

    void dump(int half) {
#if VM_TRACE
        trace.dump(2 * cycle + half);
#else
        (void)half;
#endif
    }

    // Ticks until a line is high. Ends the program where it stays low.
    template <class T> void wait_for(const T &line, const char *name) {
        top.eval();
        for (int left = 1000; !line; top.eval()) {
            if (!left--) {
                std::printf("FAILED: %s stays low\n", name);
                std::exit(1);
            }
            tick();
        }
    }

    static void write_register(void *context, uint32_t offset, uint32_t value) {
        Bench &b = *static_cast<Bench *>(context);
        b.top.s_axi_awaddr = offset;
        b.top.s_axi_wdata = value;
        b.top.s_axi_wstrb = 15;
        b.top.s_axi_awvalid = b.top.s_axi_wvalid = 1;
        b.wait_for(b.top.s_axi_awready, "s_axi_awready");  // the NPU takes address and data together
        b.tick();
        b.top.s_axi_awvalid = b.top.s_axi_wvalid = 0;
        b.wait_for(b.top.s_axi_bvalid, "s_axi_bvalid");
        b.tick();
    }

    static uint32_t read_register(void *context, uint32_t offset) {
        Bench &b = *static_cast<Bench *>(context);
        b.top.s_axi_araddr = offset;
        b.top.s_axi_arvalid = 1;
        b.wait_for(b.top.s_axi_arready, "s_axi_arready");
        b.tick();
        b.top.s_axi_arvalid = 0;
        b.wait_for(b.top.s_axi_rvalid, "s_axi_rvalid");
        const uint32_t value = b.top.s_axi_rdata;
        b.top.s_axi_rready = 1;
        b.tick();
        b.top.s_axi_rready = 0;
        return value;
    }

    static int wait(void *context, uint32_t) {
        Bench &b = *static_cast<Bench *>(context);
        for (int i = 0; i < 100000 && !b.top.irq; i++) b.tick();
        return 0;  // the driver's watchdog ends runs that hang
    }
};

// The bytes of a record go to `memory`. Returns their number, -1 if they do not fit.
int put(std::vector<uint8_t> &memory, uint64_t address, const std::string &digits) {
    const size_t count = digits.size() / 2;
    if (address > memory.size() || memory.size() - address < count) return -1;
    for (size_t i = 0; i < count; i++)
        memory[address + i] = uint8_t(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
    return int(count);
}

}  // namespace

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "bench.txt";
    std::ifstream file(name);
    Bench bench;
    tw_npu_region regions[TW_NPU_REGIONS] = {};
    tw_npu_job job = {};
    uint64_t fingerprint = 0, expected = 0, wrong = 0, bytes = 0;
    unsigned runs = 0;
    tw_npu_port port = {&bench, Bench::read_register, Bench::write_register, Bench::wait, nullptr, nullptr};
    job.regions = regions;
    job.region_count = TW_NPU_REGIONS;
    for (std::string line, word, digits; std::getline(file, line);) {
        std::istringstream in(line);
        uint64_t address = 0, size = 0;
        unsigned number = 0, flags = 0;
        if (!(in >> word) || word[0] == '#') continue;
        if (word == "fingerprint") in >> std::hex >> fingerprint;
        else if (word == "timing") {
            auto &t = bench.timing;
            in >> t.read_latency >> t.write_latency >> t.read_interval >> t.write_interval;
        } else if (word == "memory") {
            in >> size;
            bench.memory.assign(size, 0);
            bench.wanted = bench.memory;
        } else if (word == "write" || word == "expect") {
            in >> address >> digits;
            const int count = put(bench.wanted, address, digits);
            if (word == "write") put(bench.memory, address, digits);
            else bytes += count;
            if (count < 0) in.setstate(std::ios::failbit);
        } else if (word == "region") {
            in >> number >> address >> size >> flags;
            if (number < TW_NPU_REGIONS) regions[number] = {address, size, uint8_t(flags & 1), uint8_t(flags >> 1)};
            else in.setstate(std::ios::failbit);
        } else if (word == "run" && in >> job.program_region >> job.program_offset >> job.program_length >> expected) {
            tw_npu_error error = {};
            int result = runs++ ? TW_NPU_OK : tw_npu_open(&port, fingerprint);
            if (!result) result = tw_npu_run(&port, &job, &error);
            if (result) {
                std::printf("FAILED: %s; instruction %u\n", tw_npu_text(result), error.pc);
                return 1;
            }
            tw_npu_counters counters;
            tw_npu_read_counters(&port, &counters);
            if (counters.cycles != expected) {
                std::printf("FAILED: %llu cycles, not %llu\n", (unsigned long long)counters.cycles,
                            (unsigned long long)expected);
                wrong++;
            }
            for (size_t i = 0; i < bench.memory.size(); i++) {
                if (bench.memory[i] == bench.wanted[i] || ++wrong > 8) continue;
                std::printf("FAILED: byte %zu is %02x, not %02x\n", i, bench.memory[i], bench.wanted[i]);
            }
            std::printf("run %u: %llu cycles\n", runs, (unsigned long long)counters.cycles);
        } else in.setstate(std::ios::failbit);
        if (!in) {
            std::printf("FAILED: %s: cannot read \"%.60s\"\n", name, line.c_str());
            return 1;
        }
    }
    if (!runs) std::printf("FAILED: %s has no run\n", name);
    else if (!wrong) std::printf("PASSED: %llu bytes with results, and all others as before; runs: %u\n", (unsigned long long)bytes, runs);
    return wrong || !runs;
}
