// The pins of a netlist that lead to an SDRAM. Mirrored by verification/netlists/sdram_pins.py.
#pragma once
#include "clocks.h"
#include "netlist.h"
#include "sdram.h"

// Nets; of bits that a chip does not have, constants. A pin is driven while its net in `off` is 0.
struct SdramNets {
    int32_t clock, registers, width;  // numbers of the chip's clock and of that of the pins' registers; bits of data
    int32_t controls[5], off[5];  // clock enable, CS, RAS, CAS, WE
    int32_t bank[4], bank_off[4], address[16], address_off[16], mask[4], mask_off[4];
    int32_t data[32], data_off[32], read[32];
};

struct SdramAtPins {
    Sdram chip;
    SdramNets nets;

    // Before edges at a time: the chip's own, and what is at the registers of data if they have one.
    void before(int64_t time, uint32_t which, Netlist &netlist) {
        if (which >> nets.clock & 1) chip.edge(time);
        if (!(which >> nets.registers & 1)) return;
        uint32_t word = chip.word(time);
        for (int i = 0; i < nets.width; i++) {
            bool own = !netlist.value[nets.data_off[i]];
            netlist.set(nets.read[i], own ? netlist.value[nets.data[i]] : word >> i & 1);
        }
        netlist.settle();
    }

    // After them: what the chip has at its inputs. Before the first edge of their registers, pins are what the configuration
    // of the FPGA makes them, 0, whatever value the registers are given: the chip's clock is disabled.
    void after(int64_t time, uint32_t which, const Netlist &netlist) {
        if (!(which >> nets.registers & 1)) return;
        bool floating = netlist.bits(nets.off) | netlist.bits(nets.bank_off) | netlist.bits(nets.address_off) |
                        netlist.bits(nets.mask_off);
        uint32_t c = netlist.bits(nets.controls);
        auto level = [&](int i) { return bool(c >> i & 1); };
        uint32_t data = 0, driven = 0;
        for (int i = 0; i < nets.width; i++) {
            data |= uint32_t(netlist.value[nets.data[i]]) << i;
            driven |= uint32_t(!netlist.value[nets.data_off[i]]) << i;
        }
        chip.inputs(time, SdramPins{level(0), level(1), level(2), level(3), level(4), floating, netlist.bits(nets.bank),
                                    netlist.bits(nets.address), netlist.bits(nets.mask), data, driven});
    }
};
