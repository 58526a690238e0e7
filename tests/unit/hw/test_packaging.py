"""Files for projects of others name files that are there and say what the register table says."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.common.paths import ROOT
from tilewright.common.version import tilewright_version
from tilewright.hw import packaging
from tilewright.hw.verilog import C_HEADER, LINT_FILE, TOP, file_name, files
from tilewright.isa.config import preset
from tilewright.isa.registers import REGISTER, REGISTERS


@pytest.mark.parametrize("name", ["tiny", "a name, with+more"])
def test_core(name: str) -> None:
    config = preset("tiny").with_(name=name)
    source = file_name(config)
    text = packaging.core(config, TOP, source, LINT_FILE)
    assert text.startswith("CAPI=2:\n")
    core = yaml.safe_load(text.partition("\n")[2])
    release = tilewright_version().partition(" ")[2] or "0"
    assert core["name"] == f"tilewright:npu:{re.sub(r'[^0-9A-Za-z_]', '_', name)}:{release}"
    assert core["filesets"]["rtl"]["files"] == [{source: {"file_type": "verilogSource-2001"}}]
    assert core["filesets"]["lint"]["files"] == [{LINT_FILE: {"file_type": "vlt"}}]
    lint, synth = core["targets"]["lint"], core["targets"]["synth"]
    assert lint["toplevel"] == synth["toplevel"] == TOP and synth["filesets"] == ["rtl"]
    assert lint["tools"]["verilator"] == {"mode": "lint-only", "verilator_options": ["-Wall"]}
    assert synth["tools"]["yosys"]["arch"] == "ecp5"
    assert packaging.file_list(source, LINT_FILE).split() == [LINT_FILE, source]


def test_registers_in_systemrdl() -> None:
    """The text has every register at its offset with its fields; SystemRDL's reading of it is that of the table."""
    text = packaging.system_rdl()
    found = re.findall(r"  reg \{ desc = \"([^\"]*)\";\n((?:    field .*\n)+)  \} (\w+) @ 0x([0-9a-f]+);\n", text)
    assert [(name, int(offset, 16), doc) for doc, _, name, offset in found] == [
        (r.name, r.offset, r.doc) for r in REGISTERS
    ]
    field = re.compile(r"    field \{ desc = \"[^\"]*\"; (.*) \} (\w+)\[(\d+):(\d+)\];\n")
    for _, body, name, _ in found:
        fields = [(n, int(low), int(high) - int(low) + 1) for _, n, high, low in field.findall(body)]
        bits = [(b.name, b.low, b.bits) for b in REGISTER[name].bits] or [("VALUE", 0, 32)]
        assert fields == bits and len(field.findall(body)) == body.count("\n")
        software = {"R": "sw = r;", "RW": "sw = rw;", "W": "sw = w;", "W1C": "sw = rw; onwrite = woclr;"}
        assert all(how.startswith(software[REGISTER[name].access] + " hw") for how, *_ in field.findall(body))


@pytest.mark.slow
def test_all_are_written() -> None:
    config = preset("tiny")
    found = files(config)
    assert list(found) == [
        file_name(config),
        "README.md",
        LINT_FILE,
        "npu.core",
        "npu.f",
        "npu.rdl",
        "tilewright_isa.h",
    ]
    assert found[C_HEADER.name] == (ROOT / "isa" / "include" / "tilewright_isa.h").read_text(encoding="utf-8")
    assert all(f"`{name}`" in found["README.md"] for name in found if name != "README.md")
