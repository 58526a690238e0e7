// A board: a netlist with its clocks and a serial line. Bytes in, bytes out, cycles.
//
// Mirrored by fpga/sim/netlist.py.
#include <cstddef>
#include <cstdint>

#include "clocks.h"
#include "netlist.h"
#include "uart.h"

namespace {

// Cycles without a lock; the synchroniser behind it keeps the reset for as many more. Together those of line.cpp, so that
// both do the same in every cycle.
constexpr int RESET_CYCLES = 2;

struct Board {
    Netlist netlist;
    Clocks clocks;
    Uart uart;
    int32_t rx, tx, locked;
    uint64_t cycle = 0;

    // The serial line has the first clock.
    void tick() {
        netlist.set(rx, uart.drive(cycle, netlist.value[rx]));
        netlist.settle();
        while (clocks.time() < clocks.next[0]) edge();
        uart.sample(cycle, netlist.value[tx]);
        edge();
        cycle++;
    }

    void edge() { netlist.edge(clocks.take()); }

    // The PLL loses its lock and finds it again: what the reset of a board is.
    int32_t reset(uint64_t seed) {
        netlist.set(rx, true);
        netlist.set(locked, false);
        netlist.settle();
        int32_t scrambled = seed ? netlist.scramble(seed) : 0;
        for (int i = 0; i < RESET_CYCLES; i++) tick();
        netlist.set(locked, true);
        netlist.settle();
        for (int i = 0; i < RESET_CYCLES; i++) tick();
        return scrambled;
    }
};

}  // namespace

extern "C" {

// `clocks`: two numbers of each, as clocks.h has them.
void *tw_netlist_create(int32_t nets, int32_t clock_count, const int64_t *clocks, const int32_t *counts,
                        const Numbers *tables, double cycles_per_bit, int32_t rx, int32_t tx, int32_t locked) {
    const Clock *first = reinterpret_cast<const Clock *>(clocks);
    Clocks made(std::vector<Clock>(first, first + clock_count));
    return new Board{Netlist(nets, clock_count, counts, tables), made, Uart(cycles_per_bit), rx, tx, locked};
}

void tw_netlist_destroy(void *h) { delete static_cast<Board *>(h); }

// Nodes in loops of combinational logic: such a netlist cannot be run.
int32_t tw_netlist_loops(void *h) { return static_cast<Board *>(h)->netlist.in_loop; }

// As after power-on, then the reset of the board; with a seed, registers without a reset are random before it. Returns how
// many those are.
int32_t tw_netlist_start(void *h, uint64_t seed) {
    Board &board = *static_cast<Board *>(h);
    board.uart = Uart(board.uart.bit);
    board.cycle = board.netlist.random = 0;
    board.clocks.restart();
    board.netlist.power_on();
    return board.reset(seed);
}

void tw_netlist_reset(void *h) { static_cast<Board *>(h)->reset(0); }

// Inverts a bit of the table of a LUT.
void tw_netlist_flip(void *h, int32_t lut, int32_t bit) {
    Netlist &netlist = static_cast<Board *>(h)->netlist;
    netlist.luts[lut].init ^= 1u << bit;
    netlist.touch(lut);
    netlist.settle();
}

// Which bits of the table of a LUT its inputs have named since the start: bit i of the result is that of bit i.
uint32_t tw_netlist_seen(void *h, int32_t lut) { return static_cast<Board *>(h)->netlist.seen[lut]; }

void tw_netlist_send(void *h, const uint8_t *bytes, size_t count) { static_cast<Board *>(h)->uart.send(bytes, count); }

size_t tw_netlist_run(void *h, uint64_t cycles, uint8_t *bytes, size_t most) {
    Board &board = *static_cast<Board *>(h);
    while (cycles--) board.tick();
    return board.uart.take(bytes, most);
}

size_t tw_netlist_queued(void *h) { return static_cast<Board *>(h)->uart.to_send.size(); }

uint64_t tw_netlist_evaluations(void *h) { return static_cast<Board *>(h)->netlist.evaluations; }

uint64_t tw_netlist_cycles(void *h) { return static_cast<Board *>(h)->cycle; }
}
