// An SDR SDRAM as its data sheets describe it: it stores words, drives the data bus when its times say so, and keeps the
// first rule that is broken. Nothing here knows the controller, nor the other model (sdram_chip.sv).
//
// Times are whole numbers of the unit of clocks.h, and edges are those of the chip's own clock, wherever the FPGA has its.
// Mirrored by verification/netlists/sdram_pins.py.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

struct SdramRules {
    int64_t word_bits, bank_bits, row_bits, column_bits;
    // Between commands, at least; a row may be open for `row_open_most`.
    int64_t activate_to_column, precharge, row, row_active, row_open_most, bank_to_bank, write_recovery, refresh;
    int64_t mode_cycles, start, start_refreshes, refresh_interval;
    int64_t fastest[4];  // period of the clock at least, by CAS latency; 0 = the chip does not have it
    // Around an edge: when inputs must be still; after it: when a word is at the registers of the FPGA, when it is off the bus.
    int64_t setup, hold, word_from, word_until, released;
};

// What the chip sees at its pins. `driven`: bits of `data` that the FPGA drives; `floating`: it does not drive all others.
struct SdramPins {
    bool cke, cs_n, ras_n, cas_n, we_n, floating;
    uint32_t bank, address, mask, data, driven;

    bool operator==(const SdramPins &p) const {
        auto inputs = [](const SdramPins &x) { return x.cke << 4 | x.cs_n << 3 | x.ras_n << 2 | x.cas_n << 1 | int(x.we_n); };
        return inputs(*this) == inputs(p) && bank == p.bank && address == p.address && mask == p.mask && driven == p.driven &&
               (data & driven) == (p.data & p.driven);
    }
};

class Sdram {
   public:
    enum Command { MODE, REFRESH, PRECHARGE, ACTIVE, WRITE, READ, STOP, NONE };  // RAS, CAS and WE as a number

    const char *broken = nullptr;  // the first rule, and when
    int64_t broken_at = 0;
    uint64_t commands[8] = {};

    explicit Sdram(const SdramRules &of)
        : rules(of),
          bytes(size_t(of.word_bits / 8) << (of.bank_bits + of.row_bits + of.column_bits)),
          banks(size_t(1) << of.bank_bits) {}

    // As after power-on, at time 0, with random words if there is a seed.
    void power_on(uint64_t seed) {
        broken = nullptr;
        std::fill(commands, commands + 8, 0);
        random = seed ? seed * 0x9e3779b97f4a7c15u | 1 : 0;
        for (uint8_t &byte : bytes) byte = seed ? uint8_t(noise()) : 0;
        restart(0);
    }

    // It will be initialised again, and has its words.
    void restart(int64_t time) {
        std::fill(banks.begin(), banks.end(), Bank());
        std::fill(slots, slots + SLOTS, Slot());
        current = previous = Word();
        burst = Burst();
        last = SdramPins();
        began = now = time;
        any_activated = refreshed = last_edge = changed_at = bus_until = NEVER;
        edges = refreshes = moded_edge = latency = length = 0;
        closed = false;
    }

    // The levels of pins since this time.
    void inputs(int64_t time, const SdramPins &pins) {
        now = time;
        if (pins.driven) need(time >= bus_until, "both sides drive the data bus");
        if (pins == last) return;
        need(time - last_edge >= rules.hold, "a pin changes too soon after the clock (hold)");
        changed_at = time;
        last = pins;
    }

    // A rising edge of the clock.
    void edge(int64_t time) {
        const SdramPins &pins = last;
        now = time;
        period = time - last_edge;
        last_edge = time;
        edges++;
        need(time - changed_at >= rules.setup, "a pin changes too late before the clock (setup)");
        need(!pins.floating, "a pin that nobody drives");
        need(pins.cke || !latency, "the clock is disabled");
        Command command = pins.cs_n || !pins.cke ? NONE : Command(pins.ras_n << 2 | pins.cas_n << 1 | int(pins.we_n));
        commands[command]++;
        if (command != NONE) obey(command, pins);
        if (burst.left) move(pins);
        if (latency) need(time <= covered + PUT_OFF * rules.refresh_interval, "REFRESH is missing");
        drive(pins);
    }

    // What is at the registers of the FPGA, in the bits that it does not drive. Where the chip drives none, it is 0, or
    // noise if there was a seed.
    uint32_t word(int64_t time) {
        uint32_t found = random ? noise() : 0;
        for (const Word &w : {previous, current})
            if (time >= w.from && time <= w.until) found = (found & w.masked) | (w.word & ~w.masked);
        return found;
    }

   private:
    static constexpr int64_t NEVER = INT64_MIN / 4;
    static constexpr int PUT_OFF = 8;  // refreshes that may come later or sooner
    static constexpr int SLOTS = 8;

    struct Bank {
        bool open = false;
        uint32_t row = 0;
        int64_t activated = NEVER, precharged = NEVER, written = NEVER;
    };
    struct Burst {  // of a READ or WRITE: words that are left
        bool write = false;
        uint32_t bank = 0, column = 0, left = 0;
    };
    struct Slot {  // what the FPGA may take at an edge to come
        bool driven = false;
        uint32_t word = 0, masked = 0;
    };
    struct Word {  // on its way
        int64_t from = NEVER, until = NEVER;
        uint32_t word = 0, masked = 0;
    };

    SdramRules rules;
    std::vector<uint8_t> bytes;
    std::vector<Bank> banks;
    Slot slots[SLOTS];  // by the number of the edge
    Word current, previous;
    Burst burst;
    SdramPins last{};
    int64_t began = 0, now = 0, any_activated = NEVER, refreshed = NEVER, last_edge = NEVER, changed_at = NEVER;
    int64_t bus_until = NEVER, covered = 0, period = 0;  // refreshes that were made are enough until `covered`
    int64_t edges = 0, moded_edge = 0, refreshes = 0, latency = 0, length = 0;  // latency 0: no mode yet
    bool closed = false;  // by PRECHARGE of all banks
    uint64_t random = 0;  // 0 = none

    void need(bool kept, const char *rule) {
        if (kept || broken) return;
        broken = rule;
        broken_at = now;
    }

    uint32_t noise() {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return uint32_t(random >> 20);
    }

    void obey(Command command, const SdramPins &pins) {
        need(now - began >= rules.start, "a command before the time after power-on");
        need(now - refreshed >= rules.refresh, "a command too soon after REFRESH (tRFC)");
        need(!moded_edge || edges - moded_edge >= rules.mode_cycles, "a command too soon after LOAD MODE (tMRD)");
        switch (command) {
        case MODE: return load_mode(pins.address, pins.bank);
        case REFRESH: return refresh();
        case PRECHARGE: return precharge(pins.bank, pins.address >> 10 & 1);
        case ACTIVE: return activate(banks[pins.bank], pins.address);
        case STOP: burst.left = 0; return;
        default: return begin(command == WRITE, pins);
        }
    }

    void idle() {
        need(closed, "REFRESH or LOAD MODE before PRECHARGE of all banks");
        for (const Bank &bank : banks) {
            need(!bank.open, "REFRESH or LOAD MODE with an open row");
            need(now - bank.precharged >= rules.precharge, "REFRESH or LOAD MODE too soon after PRECHARGE (tRP)");
        }
    }

    void load_mode(uint32_t mode, uint32_t bank) {
        idle();
        uint32_t cas = mode >> 4 & 7;
        length = 1 << (mode & 7);
        // Sequential bursts of at most eight words, for reads and writes.
        bool known = cas < 4 && rules.fastest[cas] && length <= 8 && !(mode & ~0x77u) && !bank;
        need(known, "a mode that this model does not have");
        if (!known) return;
        need(period >= rules.fastest[cas], "the clock is too fast for the CAS latency");
        if (!latency) covered = now;
        latency = cas;
        moded_edge = edges;
    }

    void refresh() {
        idle();
        refreshed = now;
        refreshes++;
        covered = std::min(covered + rules.refresh_interval, now + PUT_OFF * rules.refresh_interval);
    }

    void precharge(uint32_t which, bool all) {
        if (all || which == burst.bank) burst.left = 0;
        for (uint32_t i = 0; i < banks.size(); i++) {
            Bank &bank = banks[i];
            if (!all && i != which) continue;
            if (bank.open) {
                need(now - bank.activated >= rules.row_active, "PRECHARGE too soon after ACTIVE (tRAS)");
                need(now - bank.activated <= rules.row_open_most, "PRECHARGE too late after ACTIVE (tRAS)");
                need(now - bank.written >= rules.write_recovery, "PRECHARGE too soon after a word was written (tWR)");
            }
            if (bank.open || !closed) bank.precharged = now;
            bank.open = false;
        }
        closed = closed || all;
    }

    void activate(Bank &bank, uint32_t row) {
        need(latency && refreshes >= rules.start_refreshes, "ACTIVE before PRECHARGE, REFRESH and LOAD MODE");
        need(!bank.open, "ACTIVE in a bank with an open row");
        need(now - bank.precharged >= rules.precharge, "ACTIVE too soon after PRECHARGE (tRP)");
        need(now - bank.activated >= rules.row, "ACTIVE too soon after ACTIVE of the same bank (tRC)");
        need(now - any_activated >= rules.bank_to_bank, "ACTIVE too soon after ACTIVE of another bank (tRRD)");
        bank.open = true;
        bank.row = row & ((1u << rules.row_bits) - 1);
        bank.activated = any_activated = now;
    }

    void begin(bool write, const SdramPins &pins) {
        const Bank &bank = banks[pins.bank];
        need(bank.open, "READ or WRITE without an open row");
        need(now - bank.activated >= rules.activate_to_column, "READ or WRITE too soon after ACTIVE (tRCD)");
        need(!(pins.address >> 10 & 1), "auto precharge, which this model does not have");
        burst = Burst{write, pins.bank, pins.address & ((1u << rules.column_bits) - 1), uint32_t(length)};
    }

    Slot &slot(int64_t edge) { return slots[edge % SLOTS]; }

    // One word of a burst. Columns go round within the words of a burst.
    void move(const SdramPins &pins) {
        Bank &bank = banks[burst.bank];
        size_t place = ((size_t(bank.row) << rules.bank_bits | burst.bank) << rules.column_bits) | burst.column;
        int count = int(rules.word_bits / 8);
        if (burst.write) {
            for (int i = 0; i < count; i++) {
                if (pins.mask >> i & 1) continue;
                need((pins.driven >> 8 * i & 0xff) == 0xff, "a byte to write that nobody drives");
                bytes[place * count + i] = uint8_t(pins.data >> 8 * i);
            }
            bank.written = now;
        } else {
            Slot &out = slot(edges + latency);
            out.driven = true;
            out.word = 0;
            for (int i = 0; i < count; i++) out.word |= uint32_t(bytes[place * count + i]) << 8 * i;
        }
        uint32_t around = uint32_t(length) - 1;
        burst.column = (burst.column & ~around) | ((burst.column + 1) & around);
        burst.left--;
    }

    // From this edge on: the word that the FPGA may take at the next one.
    void drive(const SdramPins &pins) {
        slot(edges) = Slot();
        slot(edges + 2).masked = 0;  // DQM acts on what is read two edges later
        for (int i = 0; i < rules.word_bits / 8; i++)
            if (pins.mask >> i & 1) slot(edges + 2).masked |= 0xffu << 8 * i;
        const Slot &next = slot(edges + 1);
        if (!next.driven) return;
        need(!pins.driven, "both sides drive the data bus");
        previous = current;
        current = Word{now + rules.word_from, now + period + rules.word_until, next.word, next.masked};
        bus_until = now + period + rules.released;
    }
};
