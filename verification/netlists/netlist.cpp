// A board: a netlist with its clocks, a serial line and, perhaps, an SDRAM. Bytes in, bytes out, cycles.
//
// Mirrored by verification/netlists/netlist.py.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "clocks.h"
#include "netlist.h"
#include "sdram_pins.h"
#include "uart.h"

namespace {

// Cycles of a reset, those of line.cpp, so that both do the same in every cycle; and for how many the synchroniser behind
// the lock of the PLL keeps it.
constexpr int RESET_CYCLES = 4, SYNCHRONISER_CYCLES = 2;

struct Board {
    Netlist netlist;
    Clocks clocks;
    Uart uart;
    int32_t rx, tx, locked;
    std::optional<SdramAtPins> memory;
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

    void edge() {
        int64_t time = clocks.time();
        uint32_t which = clocks.take();
        if (memory) memory->before(time, which, netlist);
        netlist.edge(which);
        if (memory) memory->after(time, which, netlist);
    }

    // The PLL loses its lock and finds it again: what the reset of a board is. With an SDRAM on a clock of its own, the
    // Verilated SoC has the synchroniser too (fpga/sim/sdram.py), and what line.cpp drives is the lock.
    int32_t reset(uint64_t seed) {
        netlist.set(rx, true);
        netlist.set(locked, false);
        netlist.settle();
        int32_t scrambled = seed ? netlist.scramble(seed) : 0;
        if (memory) memory->chip.restart(clocks.time());
        bool own_clock = memory && memory->nets.registers != 0;
        int kept = own_clock ? 0 : SYNCHRONISER_CYCLES;
        for (int i = kept; i < RESET_CYCLES; i++) tick();
        netlist.set(locked, true);
        netlist.settle();
        for (int i = 0; i < kept; i++) tick();
        return scrambled;
    }
};

}  // namespace

extern "C" {

// `clocks`: two numbers of each, as clocks.h has them. `rules`, `nets`: of an SDRAM, or null.
void *tw_netlist_create(int32_t nets, int32_t clock_count, const int64_t *clocks, const int32_t *counts,
                        const Numbers *tables, double cycles_per_bit, int32_t rx, int32_t tx, int32_t locked,
                        const SdramRules *rules, const SdramNets *pins) {
    const Clock *first = reinterpret_cast<const Clock *>(clocks);
    Clocks made(std::vector<Clock>(first, first + clock_count));
    auto *board = new Board{Netlist(nets, clock_count, counts, tables), made, Uart(cycles_per_bit), rx, tx, locked, {}};
    if (rules) board->memory = SdramAtPins{Sdram(*rules), *pins};
    return board;
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
    if (board.memory) board.memory->chip.power_on(seed);
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

int32_t tw_netlist_level(void *h, int32_t net) { return static_cast<Board *>(h)->netlist.value[net]; }

uint64_t tw_netlist_evaluations(void *h) { return static_cast<Board *>(h)->netlist.evaluations; }

uint64_t tw_netlist_cycles(void *h) { return static_cast<Board *>(h)->cycle; }

// The first rule of the SDRAM that was broken, and when; null = none.
const char *tw_netlist_broken(void *h, int64_t *time) {
    const Sdram &chip = static_cast<Board *>(h)->memory->chip;
    *time = chip.broken_at;
    return chip.broken;
}

// How many commands the SDRAM has had, by their numbers.
uint64_t tw_netlist_commands(void *h, int32_t number) {
    return static_cast<Board *>(h)->memory->chip.commands[number];
}
}
