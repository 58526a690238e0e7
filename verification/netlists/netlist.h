// A netlist of cells of an FPGA, simulated event by event.
//
// Cells are numbers, so that any netlist runs without being compiled, and a changed one is a changed number. Nets 0 and 1
// are the constants. Between two edges of clocks, what is combinational is evaluated in the order of its depth, and only
// where an input has changed; at an edge of a clock, only its registers and memories of which an input has changed since
// the last. What has edges at the same time takes the values from before them, whichever clock it has.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cells.h"

namespace {

struct Netlist {
    std::vector<uint8_t> value;
    std::vector<Lut> luts;
    std::vector<Register> registers;
    std::vector<SmallRam> small_rams;
    std::vector<Multiplier> multipliers;
    std::vector<Block> blocks;

    // Nodes that are evaluated when an input changes: all LUTs, all registers (for a reset that needs no clock), reads of
    // small RAMs, multipliers; then those that wait for an edge: registers, writes of small RAMs, multipliers, blocks.
    int32_t first_register, first_read, first_product, edges, edge_write, edge_product, edge_block, nodes;
    std::vector<int32_t> readers, first_reader;  // by net
    std::vector<int32_t> level;
    std::vector<uint8_t> waiting;
    std::vector<std::vector<int32_t>> due;  // by level
    std::vector<uint8_t> clock_of;                // of each node that waits for an edge
    std::vector<std::vector<int32_t>> touched;    // by clock
    std::vector<int32_t> now;                     // those of the edges that are simulated
    int32_t lowest = 0;
    int32_t in_loop = 0;

    std::vector<uint16_t> small_words;  // 16 of each small RAM
    std::vector<uint64_t> products;
    std::vector<uint32_t> seen;  // of each LUT, the bits of its table that its inputs have named
    std::vector<uint32_t> words, latch;  // latch: two ports of each block
    std::vector<int32_t> next_nets;
    std::vector<uint8_t> next_values;

    uint64_t random = 0;  // 0 = none
    uint64_t evaluations = 0;

    Netlist(int32_t nets, int32_t clocks, const int32_t *counts, const Numbers *tables)
        : value(nets), touched(clocks) {
        luts = cells<Lut>(tables[0], counts[0]);
        registers = cells<Register>(tables[1], counts[1]);
        small_rams = cells<SmallRam>(tables[2], counts[2]);
        multipliers = cells<Multiplier>(tables[3], counts[3]);
        blocks = cells<Block>(tables[4], counts[4]);
        first_register = int32_t(luts.size());
        first_read = first_register + int32_t(registers.size());
        first_product = first_read + int32_t(small_rams.size());
        edges = first_product + int32_t(multipliers.size());
        edge_write = edges + int32_t(registers.size());
        edge_product = edge_write + int32_t(small_rams.size());
        edge_block = edge_product + int32_t(multipliers.size());
        nodes = edge_block + int32_t(blocks.size());
        auto clocked = [&](const auto &cells) { for (const auto &cell : cells) clock_of.push_back(uint8_t(cell.clock)); };
        clocked(registers), clocked(small_rams), clocked(multipliers), clocked(blocks);
        connect();
        find_levels();
        small_words.resize(16 * small_rams.size());
        products.resize(multipliers.size());
        seen.resize(luts.size());
        words.resize(WORDS * blocks.size());
        latch.resize(2 * blocks.size());
        if (!in_loop) power_on();  // a loop may never come to rest
    }

    template <class Add> void inputs(int32_t node, Add add) const {
        auto all = [&](const int32_t *nets, int count) {
            for (int i = 0; i < count; i++) add(nets[i]);
        };
        if (node < first_register) {
            all(luts[node].in, 5);
        } else if (node < first_read) {
            const Register &r = registers[node - first_register];
            if (r.flags & 2) add(r.reset);
        } else if (node < first_product) {
            all(small_rams[node - first_read].read, 4);
        } else if (node < edges) {
            const Multiplier &m = multipliers[node - first_product];
            if (!m.registered) product_inputs(m, all);
        } else if (node < edge_write) {
            all(&registers[node - edges].d, 3);
        } else if (node < edge_product) {
            const SmallRam &r = small_rams[node - edge_write];
            all(r.write, 4), all(r.in, 4), add(r.enable);
        } else if (node < edge_block) {
            const Multiplier &m = multipliers[node - edge_product];
            if (m.registered) product_inputs(m, all);
        } else {
            for (const Port &p : blocks[node - edge_block].port)
                all(p.address, 14), all(p.in, 18), all(&p.clock_enable, 4);
        }
    }

    template <class All> static void product_inputs(const Multiplier &m, All all) {
        all(m.a, 18), all(m.b, 18), all(&m.a_signed, 2);
    }

    // What a node drives without an edge.
    template <class Add> void outputs(int32_t node, Add add) const {
        if (node < first_register) {
            add(luts[node].out);
        } else if (node < first_read) {
            if (registers[node - first_register].flags & 2) add(registers[node - first_register].q);
        } else if (node < first_product) {
            for (int32_t net : small_rams[node - first_read].out) add(net);
        } else if (node < edges && !multipliers[node - first_product].registered) {
            for (int32_t net : multipliers[node - first_product].out) add(net);
        }
    }

    void connect() {
        std::vector<int32_t> count(value.size() + 1);
        for (int32_t node = 0; node < nodes; node++) inputs(node, [&](int32_t net) { count[net + 1]++; });
        first_reader.resize(count.size());
        for (size_t net = 1; net < count.size(); net++) first_reader[net] = first_reader[net - 1] + count[net];
        readers.resize(first_reader.back());
        std::vector<int32_t> place(first_reader);
        for (int32_t node = 0; node < nodes; node++) inputs(node, [&](int32_t net) { readers[place[net]++] = node; });
    }

    // The depth of every node that is not at an edge; what is left has a loop.
    void find_levels() {
        std::vector<int32_t> missing(edges), ready, driver(value.size(), -1);
        level.assign(edges, 0);
        for (int32_t node = 0; node < edges; node++) outputs(node, [&](int32_t net) { if (net > 1) driver[net] = node; });
        for (int32_t node = 0; node < edges; node++) {
            inputs(node, [&](int32_t net) { missing[node] += driver[net] >= 0; });
            if (!missing[node]) ready.push_back(node);
        }
        for (size_t i = 0; i < ready.size(); i++) {
            int32_t node = ready[i];
            outputs(node, [&](int32_t net) {
                for (int32_t at = first_reader[net]; at < first_reader[net + 1]; at++) {
                    int32_t reader = readers[at];
                    if (reader >= edges || driver[net] != node) continue;
                    level[reader] = std::max(level[reader], level[node] + 1);
                    if (!--missing[reader]) ready.push_back(reader);
                }
            });
        }
        in_loop = edges - int32_t(ready.size());
        due.resize(*std::max_element(level.begin(), level.end()) + 1);
        waiting.assign(nodes, 0);
    }

    void touch(int32_t node) {
        if (waiting[node]) return;
        waiting[node] = 1;
        if (node >= edges) {
            touched[clock_of[node - edges]].push_back(node);
        } else {
            due[level[node]].push_back(node);
            lowest = std::min(lowest, level[node]);
        }
    }

    void set(int32_t net, bool now) {
        if (net < 2 || value[net] == uint8_t(now)) return;  // constants, and outputs that lead nowhere
        value[net] = now;
        for (int32_t at = first_reader[net]; at < first_reader[net + 1]; at++) touch(readers[at]);
    }

    template <int COUNT> uint32_t bits(const int32_t (&nets)[COUNT]) const {
        uint32_t found = 0;
        for (int i = 0; i < COUNT; i++) found |= uint32_t(value[nets[i]]) << i;
        return found;
    }

    uint64_t product(const Multiplier &m) const {
        int64_t a = bits(m.a), b = bits(m.b);
        if (value[m.a_signed] && a >> 17) a -= 1 << 18;
        if (value[m.b_signed] && b >> 17) b -= 1 << 18;
        return uint64_t(a * b);
    }

    bool in_reset(const Register &r) const { return value[r.reset] ^ (r.flags >> 3 & 1); }

    void evaluate(int32_t node) {
        evaluations++;
        if (node < first_register) {
            const Lut &lut = luts[node];
            uint32_t index = bits(lut.in);
            seen[node] |= 1u << index;
            set(lut.out, lut.init >> index & 1);
        } else if (node < first_read) {
            const Register &r = registers[node - first_register];
            if (r.flags & 2 && in_reset(r)) set(r.q, r.flags & 1);
        } else if (node < first_product) {
            const SmallRam &r = small_rams[node - first_read];
            uint32_t word = small_words[16 * (node - first_read) + bits(r.read)];
            for (int i = 0; i < 4; i++) set(r.out[i], word >> i & 1);
        } else {
            const Multiplier &m = multipliers[node - first_product];
            if (m.registered) return;
            uint64_t result = product(m);
            for (int i = 0; i < 36; i++) set(m.out[i], result >> i & 1);
        }
    }

    void settle() {
        for (; lowest < int32_t(due.size()); lowest++) {
            auto &nodes_here = due[lowest];
            for (size_t i = 0; i < nodes_here.size(); i++) {
                waiting[nodes_here[i]] = 0;
                evaluate(nodes_here[i]);
            }
            nodes_here.clear();
        }
    }

    void later(int32_t net, bool now) {
        if (net < 2 || value[net] == uint8_t(now)) return;
        next_nets.push_back(net);
        next_values.push_back(now);
    }

    uint32_t noise() {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return uint32_t(random >> 20);
    }

    // One word of a port: in narrow ones the ninth bit of a byte is not used.
    static uint32_t read(const uint32_t *memory, uint32_t address, int width) {
        uint32_t byte = memory[address >> 4] >> 9 * (address >> 3 & 1);
        switch (width) {
        case 1: return byte >> (address & 7) & 1;
        case 2: return byte >> (address & 6) & 3;
        case 4: return byte >> (address & 4) & 15;
        case 9: return byte & 0x1ff;
        default: return memory[address >> 4];
        }
    }

    static void write(uint32_t *memory, uint32_t address, int width, uint32_t data) {
        uint32_t &word = memory[address >> 4];
        int byte = 9 * (address >> 3 & 1);
        auto put = [&](uint32_t mask, int at) { word = (word & ~(mask << at)) | (data & mask) << at; };
        switch (width) {
        case 1: return put(1, byte + int(address & 7));
        case 2: return put(3, byte + int(address & 6));
        case 4: return put(15, byte + int(address & 4));
        case 9: return put(0x1ff, byte);
        default:  // 18 bits: the lowest bits of the address enable the bytes
            for (int half = 0; half < 2; half++)
                if (address >> half & 1) word = (word & ~(0x1ffu << 9 * half)) | (data & 0x1ffu << 9 * half);
        }
    }

    // What a read of port p gives of bytes that the other port is writing is not specified: noise.
    void spoil(const Block &block, const uint32_t *address, int p, uint32_t *latches) {
        auto place = [](int width) { return width == 36 ? 5 : width == 18 ? 4 : width == 9 ? 3 : width / 2; };
        int here = block.port[p].width, there = block.port[1 - p].width, coarse = std::max(place(here), place(there));
        uint32_t target = address[1 - p];
        if (address[p] >> coarse != target >> coarse) return;
        // Bytes of a row of 36 bits. Wide writes have their enables in the lowest bits of the address.
        auto byte_of = [](uint32_t at) { return at >> 3 & 3; };
        uint32_t written = there == 36 ? target & 15 : there == 18 ? (target & 3) << 2 * (target >> 4 & 1) : 1u << byte_of(target);
        for (uint32_t byte = 0; byte < 4; byte++) {
            bool read_here = here == 36 || (here == 18 ? byte >> 1 == (address[p] >> 4 & 1) : byte == byte_of(address[p]));
            if (!read_here || !(written >> byte & 1)) continue;
            uint32_t &value_now = here == 36 ? latches[byte >> 1] : latches[p];
            int at = here >= 18 ? 9 * int(byte & 1) : 0;
            uint32_t mask = (here >= 9 ? 0x1ffu : (1u << here) - 1) << at;
            value_now = (value_now & ~mask) | (noise() & mask);
        }
    }

    // Both ports at an edge. Returns whether the next edge has something to do even if no input changes.
    bool clock(int32_t number) {
        const Block &block = blocks[number];
        uint32_t *memory = &words[WORDS * number], *latches = &latch[2 * number];
        uint32_t before[2] = {latches[0], latches[1]}, address[2], data[2];
        bool writes[2], reads[2], resets[2];
        for (int p = 0; p < 2; p++) {
            const Port &port = block.port[p];
            address[p] = bits(port.address);
            data[p] = bits(port.in);
            resets[p] = value[port.reset];
            bool enabled = value[port.clock_enable];
            writes[p] = enabled && value[port.write_enable] && !resets[p] && block.written;
            reads[p] = enabled && (!value[port.write_enable] || port.writes);
        }
        for (int p = 0; p < 2; p++) {
            const Port &port = block.port[p];
            if (reads[p] && port.width == 36) {  // on the outputs of both ports; the other one only writes
                uint32_t row = address[p] & ~31u;
                latches[0] = read(memory, row, 18), latches[1] = read(memory, row | 16, 18);
            } else if (reads[p] && port.writes == 1 && writes[p]) {
                uint32_t copy = memory[address[p] >> 4];
                write(&copy, address[p] & 15, port.width, data[p]);
                latches[p] = read(&copy, address[p] & 15, port.width);
            } else if (reads[p]) {
                latches[p] = read(memory, address[p], port.width);
            }
            if (random && reads[p] && writes[1 - p]) spoil(block, address, p, latches);
            if (resets[p]) latches[p] = 0;
        }
        bool again = false;
        for (int p = 0; p < 2; p++) {
            const Port &port = block.port[p];
            if (writes[p] && port.width == 36) {
                // Both halves, whose bytes the four lowest bits of the address enable.
                uint32_t row = address[p] & ~31u;
                write(memory, row | (address[p] & 3), 18, data[0]);
                write(memory, row | 16 | (address[p] >> 2 & 3), 18, data[1]);
            } else if (writes[p]) {
                write(memory, address[p], port.width, data[p]);
            }
            again = again || writes[p] || latches[p] != before[p];
        }
        for (int p = 0; p < 2; p++) {
            const Port &port = block.port[p];
            if (port.registered && !resets[p] && !value[port.output_enable]) continue;
            uint32_t out = !port.registered ? latches[p] : resets[p] ? 0 : before[p];
            for (int i = 0; i < 18; i++) later(port.out[i], out >> i & 1);
        }
        return again;
    }

    // Edges at the same time, of the clocks whose bits are 1.
    void edge(uint32_t which) {
        now.clear();
        for (size_t i = 0; i < touched.size(); i++) {
            if (!(which >> i & 1)) continue;
            if (now.empty()) now.swap(touched[i]);
            now.insert(now.end(), touched[i].begin(), touched[i].end());
            touched[i].clear();
        }
        std::vector<std::pair<int32_t, uint8_t>> written;  // words of small RAMs
        for (int32_t node : now) waiting[node] = 0;
        evaluations += now.size();
        for (int32_t node : now) {
            if (node < edge_write) {
                const Register &r = registers[node - edges];
                bool enabled = value[r.enable] ^ (r.flags >> 2 & 1);
                if (in_reset(r) && (enabled || !(r.flags & 16))) later(r.q, r.flags & 1);
                else if (enabled && !in_reset(r)) later(r.q, value[r.d]);
            } else if (node < edge_product) {
                const SmallRam &r = small_rams[node - edge_write];
                if (value[r.enable]) written.push_back({16 * (node - edge_write) + bits(r.write), uint8_t(bits(r.in))});
            } else if (node < edge_block) {
                const Multiplier &m = multipliers[node - edge_product];
                uint64_t result = product(m);
                for (int i = 0; i < 36; i++) later(m.out[i], result >> i & 1);
            } else if (clock(node - edge_block)) {
                touch(node);
            }
        }
        for (auto [word, bits_now] : written) {
            if (small_words[word] == bits_now) continue;
            small_words[word] = bits_now;
            touch(first_read + word / 16);
        }
        for (size_t i = 0; i < next_nets.size(); i++) set(next_nets[i], next_values[i]);
        next_nets.clear();
        next_values.clear();
        settle();
    }

    void evaluate_all() {
        for (int32_t node = 0; node < nodes; node++) touch(node);
        settle();
    }

    // As after the configuration of the FPGA.
    void power_on() {
        std::fill(value.begin(), value.end(), 0);
        value[1] = 1;
        for (const Register &r : registers)
            if (r.q > 1) value[r.q] = r.flags & 1;
        for (size_t i = 0; i < small_rams.size(); i++)
            for (int word = 0; word < 16; word++)
                small_words[16 * i + word] = uint32_t(small_rams[i].init[word / 8]) >> 4 * (word % 8) & 15;
        for (size_t i = 0; i < blocks.size(); i++)
            for (int word = 0; word < WORDS; word++) words[WORDS * i + word] = uint32_t(blocks[i].init[word]);
        std::fill(latch.begin(), latch.end(), 0);
        std::fill(seen.begin(), seen.end(), 0);
        evaluate_all();
    }

    // Random values in every register that no reset reaches and in every memory that is written: returns how many registers.
    int32_t scramble(uint64_t seed) {
        random = seed * 0x9e3779b97f4a7c15u | 1;
        int32_t count = 0;
        for (const Register &r : registers) {
            if (r.reset != 0 || r.flags & 8 || r.q < 2) continue;
            value[r.q] = noise() & 1;
            count++;
        }
        for (const Multiplier &m : multipliers)
            for (int32_t net : m.out)
                if (m.registered && net > 1) value[net] = noise() & 1;
        for (size_t i = 0; i < small_words.size(); i++)
            if (small_rams[i / 16].enable != 0) small_words[i] = noise() & 15;
        for (size_t i = 0; i < words.size(); i++)
            if (blocks[i / WORDS].written) words[i] = noise() & 0x3ffff;
        for (size_t i = 0; i < latch.size(); i++) {
            const Block &block = blocks[i / 2];
            if (block.written) latch[i] = noise() & 0x3ffff;
            for (int bit = 0; bit < 18 && block.written; bit++)
                if (block.port[i % 2].out[bit] > 1) value[block.port[i % 2].out[bit]] = latch[i] >> bit & 1;
        }
        evaluate_all();
        return count;
    }
};

}  // namespace
