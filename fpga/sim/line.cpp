// A Verilated design with ports clk, rst, rx, tx behind a C interface: bytes in, bytes out, cycles.
//
// Mirrored by fpga/sim/line.py.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "Vnpu.h"
#include "uart.h"
#include "verilated.h"

namespace {

// Sets the port `faults`, if the design has one.
template <class T> auto set_faults(T &top, uint32_t value, int) -> decltype(top.faults, void()) { top.faults = value; }
template <class T> void set_faults(T &, uint32_t, long) {}

// Reads the port `sdram_fault`, if the design has one.
template <class T> auto sdram_fault(const T &top, int) -> decltype(uint32_t(top.sdram_fault)) { return top.sdram_fault; }
template <class T> uint32_t sdram_fault(const T &, long) { return 0; }

// Sets the port `memory_clk`, if the design has one.
template <class T> auto set_memory_clock(T &top, bool value, int) -> decltype(top.memory_clk, void()) {
    top.memory_clk = value;
}
template <class T> void set_memory_clock(T &, bool, long) {}

// A SPI flash memory in mode 0 that knows READ (0x03): bits come in at rising edges, and leave at falling ones. What lies
// beyond its contents is erased. Anything else it is told leaves its output high.
struct Flash {
    std::vector<uint8_t> contents;
    bool clk = false, out = true;
    uint32_t count = 0, told = 0, address = 0;  // bits since it was selected, and the command with its address

    void step(bool cs, bool now, bool in) {
        if (!cs) {
            count = told = 0;
            out = true;
        } else if (now && !clk) {
            if (count < 32) told = told << 1 | in;
            if (++count == 32) address = (told & 0xffffff) * 8;
        } else if (!now && clk && count >= 32 && told >> 24 == 0x03) {
            size_t byte = address / 8 % (1u << 24);
            out = byte >= contents.size() || (contents[byte] >> (7 - address % 8) & 1);
            address++;
        }
        clk = now;
    }
};

// Connects a flash memory to designs that have its pins.
template <class T> auto connect(T &top, Flash &flash, int) -> decltype(top.flash_cs, void()) {
    flash.step(top.flash_cs, top.flash_clk, top.flash_copi);
    top.flash_cipo = flash.out;
}
template <class T> void connect(T &, Flash &, long) {}

struct Line {
    Flash flash;
    VerilatedContext context;
    std::unique_ptr<Vnpu> top;
    Uart uart;
    // Times are whole numbers of one unit. Rising edges of clk are at 0, 2 * half, ...; memory_half 0: no memory_clk.
    int64_t half, memory_half, memory_next;
    int64_t time = 0;
    bool memory_level = false;
    uint64_t cycle = 0;

    Line(double cycles_per_bit, int64_t half, int64_t memory_half, int64_t memory_first)
        : top(new Vnpu(&context)), uart(cycles_per_bit), half(half), memory_half(memory_half), memory_next(memory_first) {
        reset();
    }
    ~Line() { top->final(); }

    void memory_edge() {
        set_memory_clock(*top, memory_level = !memory_level, 0);
        memory_next += memory_half;
    }

    // An edge of clk, after those of memory_clk that come before it. Of two at the same time, neither sees what the other
    // one does.
    void edge(bool level, int64_t at) {
        while (memory_half && memory_next < at) {
            memory_edge();
            top->eval();
        }
        if (level) {
            uart.sample(cycle, top->tx);
            connect(*top, flash, 0);
        }
        if (memory_half && memory_next == at) memory_edge();
        top->clk = level;
        top->eval();
    }

    void tick() {
        top->rx = uart.drive(cycle, top->rx);
        edge(false, time - half);
        edge(true, time);
        time += 2 * half;
        cycle++;
    }

    void reset() {
        top->rst = 1;
        for (int i = 0; i < 4; i++) tick();
        top->rst = 0;
    }
};

}  // namespace

extern "C" {

void *tw_line_create(double cycles_per_bit, int64_t half, int64_t memory_half, int64_t memory_first) {
    return new Line(cycles_per_bit, half, memory_half, memory_first);
}

void tw_line_destroy(void *h) { delete static_cast<Line *>(h); }

void tw_line_reset(void *h) { static_cast<Line *>(h)->reset(); }

void tw_line_faults(void *h, uint32_t value) { set_faults(*static_cast<Line *>(h)->top, value, 0); }

uint32_t tw_line_sdram_fault(void *h) { return sdram_fault(*static_cast<Line *>(h)->top, 0); }

// What the flash memory of the design holds, for designs with one.
void tw_line_flash(void *h, const uint8_t *bytes, size_t count) {
    static_cast<Line *>(h)->flash.contents.assign(bytes, bytes + count);
}

void tw_line_send(void *h, const uint8_t *bytes, size_t count) {
    static_cast<Line *>(h)->uart.send(bytes, count);
}

// Runs `cycles` and moves what was received to `bytes`, at most `most`. Returns how many. 10 bit times receive a byte.
size_t tw_line_run(void *h, uint64_t cycles, uint8_t *bytes, size_t most) {
    Line &line = *static_cast<Line *>(h);
    while (cycles--) line.tick();
    return line.uart.take(bytes, most);
}

// Bytes that have not begun to leave.
size_t tw_line_queued(void *h) { return static_cast<Line *>(h)->uart.to_send.size(); }
}
