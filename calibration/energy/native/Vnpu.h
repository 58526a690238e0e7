// Gates behind the interface of a Verilated model, so that hw/sim/harness.cpp with its memory drives them unchanged.
//
// What changes in a cycle is evaluated, in topological order, each gate at most once per change of its surroundings:
// without delays, so a net toggles at most once when registers change and once when inputs do. With `unit_delay` every
// gate takes one unit of time, and what toggles on the way to the settled value (glitches) counts as well.
// Mirrored by calibration/energy/simulation.py.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tilewright_isa.h"
#include "verilated.h"

// Arrays of calibration.energy.netlist.Netlist, and what is counted from START to the interrupt.
struct tw_gates {
    uint64_t nets, gates, nodes, flops, clock_gates, memories, async_reads, unit_delay;
    const int32_t *order, *inputs;
    const uint16_t *truth;
    const int32_t *output, *flop_d, *flop_q, *flop_clock;
    const uint8_t *flop_init;
    const int32_t *gate_enable;
    // Per memory: width, size, address bits, reads, writes; per read: enable, clocked, address, data; per write:
    // address, data, enables. Then per asynchronous read: memory, read.
    const int32_t *memory;
    const int32_t *ports;  // per port of TW_PORTS: number of nets, nets
    uint64_t *toggles, *enabled, *accesses;  // by net; by clock gate; by port of a memory, reads before writes
    uint64_t cycles;
};

using TwData = std::array<uint8_t, TW_BUS_BYTES>;
#define TW_PORTS(IN, OUT)                                                                                           \
    IN(uint8_t, rst) IN(uint8_t, axi_arready) IN(uint8_t, axi_awready) IN(uint8_t, axi_wready)                      \
    IN(uint8_t, axi_rvalid) IN(uint8_t, axi_rlast) IN(uint8_t, axi_rresp) IN(TwData, axi_rdata)                     \
    IN(uint8_t, axi_bvalid) IN(uint8_t, axi_bresp) IN(uint8_t, axil_awvalid) IN(uint32_t, axil_awaddr)              \
    IN(uint8_t, axil_wvalid) IN(uint32_t, axil_wdata) IN(uint8_t, axil_wstrb) IN(uint8_t, axil_bready)              \
    IN(uint8_t, axil_arvalid) IN(uint32_t, axil_araddr) IN(uint8_t, axil_rready)                                    \
    OUT(uint8_t, axi_arvalid) OUT(uint64_t, axi_araddr) OUT(uint8_t, axi_arlen) OUT(uint8_t, axi_rready)            \
    OUT(uint8_t, axi_awvalid) OUT(uint64_t, axi_awaddr) OUT(uint8_t, axi_awlen) OUT(uint8_t, axi_wvalid)            \
    OUT(TwData, axi_wdata) OUT(uint32_t, axi_wstrb) OUT(uint8_t, axi_wlast) OUT(uint8_t, axi_bready)                \
    OUT(uint8_t, axil_awready) OUT(uint8_t, axil_wready) OUT(uint8_t, axil_bvalid) OUT(uint8_t, axil_arready)       \
    OUT(uint8_t, axil_rvalid) OUT(uint32_t, axil_rdata) OUT(uint8_t, axi_arsize) OUT(uint8_t, axi_arburst)          \
    OUT(uint8_t, axi_awsize) OUT(uint8_t, axi_awburst)                                                              \
    OUT(uint8_t, irq)

inline tw_gates *tw_loaded = nullptr;  // the netlist of models that are made from now on

class Vnpu {
  public:
#define TW_DECLARE(TYPE, NAME) TYPE NAME{};
    TW_PORTS(TW_DECLARE, TW_DECLARE)
#undef TW_DECLARE
    uint8_t clk = 0;
    // Left out of the netlist.
#define TW_STROBES(NAME)                                                                                            \
    uint32_t dbg_##NAME##_step = 0, dbg_##NAME##_start = 0, dbg_##NAME##_start_pc = 0, dbg_##NAME##_end = 0,        \
             dbg_##NAME##_end_pc = 0;
    TW_STROBES(fetch) TW_STROBES(load) TW_STROBES(gemm) TW_STROBES(vector) TW_STROBES(store)
#undef TW_STROBES

    explicit Vnpu(VerilatedContext *) : g(*tw_loaded), values(g.nets), toggles(g.nets) {
        values[1] = 1;
        read_memories();
        std::vector<std::vector<uint32_t>> reached(g.nets);
        for (uint64_t at = 0; at < g.nodes; at++) {
            const int32_t node = g.order[at];
            places.push_back({{0, 0, 0, 0}, 0, 0, node});
            if (node >= 0) {
                std::memcpy(places[at].in, g.inputs + 4 * node, sizeof places[at].in);
                places[at].out = g.output[node];
                places[at].truth = g.truth[node];
                for (int32_t net : places[at].in)
                    if (net > 1) reached[net].push_back(uint32_t(at));
            } else {
                Read &read = async_read(-1 - node);
                read.at = uint32_t(at);
                for (int32_t net : read.address) reached[net].push_back(uint32_t(at));
            }
        }
        for (uint64_t net = 0; net < g.nets; net++) {
            first.push_back(uint32_t(fanout.size()));
            fanout.insert(fanout.end(), reached[net].begin(), reached[net].end());
        }
        first.push_back(uint32_t(fanout.size()));
        dirty.assign(g.nodes / 64 + 1, 0);
        for (uint64_t at = 0; at < g.nodes; at++) mark(uint32_t(at));
        for (uint64_t f = 0; f < g.flops; f++) set(g.flop_q[f], g.flop_init[f]);
        enabled.assign(g.clock_gates, 0);
        settle();
    }

    void final() {}

    void eval() {
        const bool start = clk && !before && !counting && axil_awvalid && axil_wvalid && axil_awready && axil_wready &&
                           axil_awaddr == TW_REG_CONTROL && (axil_wdata >> TW_REG_CONTROL_START_LOW & 1);
        if (clk && !before) edge();
        before = clk;
        const int32_t *port = g.ports;
#define TW_IN(TYPE, NAME) port = take(port, &NAME);
#define TW_NOTHING(TYPE, NAME)
        TW_PORTS(TW_IN, TW_NOTHING)
        g.unit_delay ? settle_in_steps() : settle();
#define TW_OUT(TYPE, NAME) NAME = TYPE{}, port = give(port, &NAME);
        TW_PORTS(TW_NOTHING, TW_OUT)
#undef TW_IN
#undef TW_OUT
#undef TW_NOTHING
        if (start) begin();
        if (counting && irq) end();
    }

  private:
    struct Read {
        int32_t enable, clocked;
        std::vector<int32_t> address, data;
        uint64_t last = UINT64_MAX, accesses = 0;  // address of the last access; how many there were
        uint32_t at = 0;
    };
    struct Write {
        std::vector<int32_t> address, data, enable;
        uint64_t last = UINT64_MAX, accesses = 0;
    };
    struct Memory {
        uint64_t size;
        std::vector<std::vector<uint8_t>> words;
        std::vector<Read> reads;
        std::vector<Write> writes;
    };

    tw_gates &g;
    std::vector<uint8_t> values;
    // What is evaluated, in topological order: a gate, or with a negative `node` an asynchronous read.
    struct Place {
        int32_t in[4], out;
        uint32_t truth;
        int32_t node;
    };
    std::vector<Place> places;
    std::vector<uint32_t> first, fanout;  // of net n: the places first[n] to first[n + 1] - 1 of `fanout`
    std::vector<uint64_t> dirty;                // a bit per place
    std::vector<uint64_t> toggles, enabled;
    std::vector<Memory> memories;
    std::vector<std::pair<int32_t, uint8_t>> next;
    std::vector<uint32_t> wave;
    uint64_t cycles = 0;
    uint8_t before = 0;
    bool counting = false;

    void mark(uint32_t at) { dirty[at >> 6] |= uint64_t(1) << (at & 63); }

    void set(int32_t net, uint8_t value) {
        if (values[net] == value) return;
        values[net] = value;
        toggles[net]++;
        for (uint32_t i = first[net]; i < first[net + 1]; i++) mark(fanout[i]);
    }

    uint8_t gate(const Place &at) const {
        const int32_t *in = at.in;
        return at.truth >> (values[in[0]] | values[in[1]] << 1 | values[in[2]] << 2 | values[in[3]] << 3) & 1;
    }

    uint64_t word(const std::vector<int32_t> &nets) const {
        uint64_t found = 0;
        for (size_t i = 0; i < nets.size(); i++) found |= uint64_t(values[nets[i]]) << i;
        return found;
    }

    // What a read finds, into `next`; it is an access if it is another row than the last one.
    void look(Memory &memory, Read &read) {
        const uint64_t row = word(read.address);
        read.accesses += row != read.last;
        read.last = row;
        for (size_t i = 0; i < read.data.size(); i++)
            next.push_back({read.data[i], row < memory.size ? memory.words[row][i] : uint8_t(0)});
    }

    Read &async_read(int32_t k) {
        const int32_t *pair = g.memory + tail + 2 * k;
        return memories[pair[0]].reads[pair[1]];
    }

    void evaluate(const Place &at) {
        if (at.node >= 0) {
            next.push_back({at.out, gate(at)});
        } else {
            const int32_t *pair = g.memory + tail + 2 * (-1 - at.node);
            look(memories[pair[0]], memories[pair[0]].reads[pair[1]]);
        }
    }

    void commit() {
        for (auto [net, value] : next) set(net, value);
        next.clear();
    }

    void settle() {
        for (size_t w = 0; w < dirty.size(); w++) {
            while (dirty[w]) {
                const Place &at = places[64 * w + __builtin_ctzll(dirty[w])];
                dirty[w] &= dirty[w] - 1;
                if (at.node >= 0) {
                    set(at.out, gate(at));
                } else {
                    evaluate(at);
                    commit();
                }
            }
        }
    }

    void settle_in_steps() {
        for (;;) {
            wave.clear();
            for (size_t w = 0; w < dirty.size(); w++)
                for (; dirty[w]; dirty[w] &= dirty[w] - 1) wave.push_back(uint32_t(64 * w + __builtin_ctzll(dirty[w])));
            if (wave.empty()) return;
            for (uint32_t at : wave) evaluate(places[at]);
            commit();
        }
    }

    // Registers and memories take what is there; nothing is evaluated yet.
    void edge() {
        cycles++;
        for (uint64_t n = 0; n < g.clock_gates; n++) enabled[n] += values[g.gate_enable[n]];
        for (uint64_t f = 0; f < g.flops; f++) {
            if (values[g.flop_q[f]] == values[g.flop_d[f]]) continue;
            const int32_t clock = g.flop_clock[f];
            if (clock < 0 || values[g.gate_enable[clock]]) next.push_back({g.flop_q[f], values[g.flop_d[f]]});
        }
        for (Memory &memory : memories)
            for (Read &read : memory.reads)
                if (read.clocked && values[read.enable]) look(memory, read);
        for (Memory &memory : memories) {
            for (Write &write : memory.writes) {
                const uint64_t row = word(write.address);
                bool any = false, changed = false;
                for (size_t i = 0; i < write.data.size() && row < memory.size; i++) {
                    if (!values[write.enable[i]]) continue;
                    any = true;
                    changed |= memory.words[row][i] != values[write.data[i]];
                    memory.words[row][i] = values[write.data[i]];
                }
                write.accesses += changed || (any && row != write.last);
                if (any) write.last = row;
                if (!changed) continue;
                for (Read &read : memory.reads) {
                    if (read.last == row) read.last = UINT64_MAX;  // reading it again is another access
                    if (!read.clocked) mark(read.at);
                }
            }
        }
        commit();
    }

    void begin() {
        counting = true;
        std::fill(toggles.begin(), toggles.end(), 0);
        std::fill(enabled.begin(), enabled.end(), 0);
        cycles = 0;
        for (Memory &memory : memories) {
            for (Read &read : memory.reads) read.accesses = 0;
            for (Write &write : memory.writes) write.accesses = 0;
        }
    }

    void end() {
        counting = false;
        g.cycles += cycles;
        for (uint64_t n = 0; n < g.nets; n++) g.toggles[n] += toggles[n];
        for (uint64_t n = 0; n < g.clock_gates; n++) g.enabled[n] += enabled[n];
        uint64_t *to = g.accesses;
        for (Memory &memory : memories) {
            for (Read &read : memory.reads) *to++ += read.accesses;
            for (Write &write : memory.writes) *to++ += write.accesses;
        }
    }

    size_t tail = 0;  // where the asynchronous reads are in `memory`

    void read_memories() {
        const int32_t *from = g.memory;
        auto nets = [&from](int32_t count) {
            std::vector<int32_t> found(from, from + count);
            from += count;
            return found;
        };
        for (uint64_t n = 0; n < g.memories; n++) {
            const int32_t width = from[0], size = from[1], bits = from[2], reads = from[3], writes = from[4];
            from += 5;
            Memory memory{uint64_t(size), {size_t(size), std::vector<uint8_t>(size_t(width))}, {}, {}};
            for (int32_t r = 0; r < reads; r++) {
                Read read;
                read.enable = from[0], read.clocked = from[1];
                from += 2;
                read.address = nets(bits), read.data = nets(width);
                memory.reads.push_back(read);
            }
            for (int32_t w = 0; w < writes; w++) {
                Write write;
                write.address = nets(bits), write.data = nets(width), write.enable = nets(width);
                memory.writes.push_back(write);
            }
            memories.push_back(std::move(memory));
        }
        tail = size_t(from - g.memory);
    }

    const int32_t *take(const int32_t *port, const void *from) {
        const int32_t count = *port++;
        const uint8_t *bytes = static_cast<const uint8_t *>(from);
        for (int32_t i = 0; i < count; i++) set(port[i], bytes[i / 8] >> (i % 8) & 1);
        return port + count;
    }

    const int32_t *give(const int32_t *port, void *to) const {
        const int32_t count = *port++;
        uint8_t *bytes = static_cast<uint8_t *>(to);
        for (int32_t i = 0; i < count; i++) bytes[i / 8] |= uint8_t(values[port[i]] << (i % 8));
        return port + count;
    }
};

extern "C" {
inline __attribute__((used)) void tw_gates_load(tw_gates *gates) { tw_loaded = gates; }
// The order of `tw_gates.ports`.
inline __attribute__((used)) const char *tw_gates_ports() {
#define TW_NAME(TYPE, NAME) #NAME " "
    return TW_PORTS(TW_NAME, TW_NAME);
#undef TW_NAME
}
}
