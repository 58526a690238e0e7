"""cocotb side of the test of sdram_chip.sv: sequences of commands to a chip that is switched on anew for each."""

from __future__ import annotations

import json
import os
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

CYCLE_NS = 10
#: RAS, CAS and WE, active low.
CODES = {"mode": 0b000, "refresh": 0b001, "precharge": 0b010, "active": 0b011, "write": 0b100, "read": 0b101, "nop": 7}
#: What initialises the chip.
START = [("precharge", 20_010, 0, 1024), *[("refresh", 7, 0, 0)] * 8, ("mode", 7, 0, 0x21)]


async def command(dut: Any, name: str, wait: int, bank: int, address: int) -> None:
    """The command `wait` cycles after the one before."""
    if wait > 1:
        await Timer(CYCLE_NS * (wait - 2) + 1, "ns")
        await FallingEdge(dut.clk)
    kind, _, undriven = name.partition(" ")
    code = CODES[kind]
    dut.ras_n.value, dut.cas_n.value, dut.we_n.value = code >> 2, code >> 1 & 1, code & 1
    dut.ba.value, dut.a.value = bank, address
    dut.dq_in_driven.value = int(kind == "write" and not undriven)
    await FallingEdge(dut.clk)
    dut.ras_n.value = dut.cas_n.value = dut.we_n.value = 1


@cocotb.test()
async def every_rule(dut: Any) -> None:
    cocotb.start_soon(Clock(dut.clk, CYCLE_NS, "ns").start())
    dut.cke.value, dut.cs_n.value, dut.dqm.value, dut.dq_in.value, dut.dq_in_driven.value = 1, 0, 0, 0, 0
    dut.ras_n.value = dut.cas_n.value = dut.we_n.value = 1
    for name, (initialised, commands, expected) in json.loads(os.environ["CASES"]).items():
        dut.power.value = 0
        await FallingEdge(dut.clk)
        dut.power.value = 1
        for step in START[: len(START) * initialised] + commands:
            assert dut.fault.value == 0, f"{name}: violation {int(dut.fault.value)} before {step}"
            await command(dut, *step)
        await FallingEdge(dut.clk)
        assert dut.fault.value == expected, f"{name}: {int(dut.fault.value)}, not {expected}"
