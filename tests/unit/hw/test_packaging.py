"""Files for projects of others name files that are there and say what the register table says."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import yaml

from tilewright.common.errors import TilewrightError
from tilewright.common.version import tilewright_version
from tilewright.hw import packaging
from tilewright.hw.verilog import LINT_FILE, TOP, file_name, files, ports
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
    assert [next(iter(f)) for f in core["filesets"]["rtl"]["files"]] == [source, "npu_axi.v"]
    assert core["filesets"]["lint"]["files"] == [{LINT_FILE: {"file_type": "vlt"}}]
    lint, synth = core["targets"]["lint"], core["targets"]["synth"]
    assert lint["toplevel"] == synth["toplevel"] == "npu_axi" and synth["filesets"] == ["rtl"]
    assert lint["tools"]["verilator"] == {"mode": "lint-only", "verilator_options": ["-Wall"]}
    assert synth["tools"]["yosys"]["arch"] == "ecp5"
    assert packaging.file_list(source, LINT_FILE).split() == [LINT_FILE, source, "npu_axi.v"]
    assert "sim" not in core["targets"]
    sim = yaml.safe_load(packaging.core(config, TOP, source, LINT_FILE, bench=True).partition("\n")[2])
    assert sim["targets"]["sim"]["filesets"] == ["lint", "rtl", "bench"]
    del sim["targets"]["sim"], sim["filesets"]["bench"]
    assert sim == core


def test_wrapper() -> None:
    """Every port of the NPU is connected once: to a port of the usual name, or to a wire that nobody reads."""
    inner = ports(preset("tiny"))
    text = packaging.wrapper("my_npu", inner)
    assert "module my_npu_axi (" in text and "  my_npu npu (" in text
    outside = {
        name: (direction, int(high or 0) + 1)
        for direction, high, name in re.findall(r"^  (input|output)(?: \[(\d+):0\])? (\w+),?$", text, re.MULTILINE)
    }
    connected = dict(re.findall(r"\.(\w+)\((.*?)\),?$", text, re.MULTILINE))
    assert set(connected) == {name for name, _, _ in inner}
    assert outside.pop("aclk") == outside.pop("aresetn") == ("input", 1)
    assert connected.pop("clk") == "aclk" and connected.pop("rst") == "reset[1]"
    for name, direction, bits in inner[2:]:
        if name.startswith("dbg_"):
            assert connected[name] == f"unused_{name}"
        else:
            usual = name.replace("axil_", "s_axi_") if "axil_" in name else name.replace("axi_", "m_axi_")
            assert connected[name] == usual and outside.pop(usual) == (direction, bits)
    assert not outside


def test_registers_in_svd() -> None:
    """The SVD has every register with its fields, and reading and writing as the table says."""
    found = ElementTree.fromstring(packaging.svd().encode()).find(".//registers")
    assert found is not None
    access = {"R": ("read-only", None), "RW": ("read-write", None), "W": ("write-only", None)}
    access["W1C"] = ("read-write", "oneToClear")
    for register, table in zip(found, REGISTERS, strict=True):
        text = register.findtext
        assert (text("name"), int(text("addressOffset", ""), 16)) == (table.name, table.offset)
        assert text("description") == table.doc
        assert (text("access"), text("modifiedWriteValues")) == access[table.access]
        fields = [(f.findtext("name"), f.findtext("bitOffset"), f.findtext("bitWidth")) for f in register.iter("field")]
        assert fields == [(b.name, str(b.low), str(b.bits)) for b in table.bits]


def test_constraints_name_what_is_there() -> None:
    text = packaging.wrapper("npu", ports(preset("tiny")))
    assert "input aclk" in text and "input aresetn" in text and "[1:0] reset = " in text
    assert "get_ports aclk" in packaging.sdc("npu") and "get_ports aresetn" in packaging.sdc("npu")
    assert "-ref npu_axi npu.xdc" in packaging.xdc("npu") and "reset_reg[0]/D" in packaging.xdc("npu")


@pytest.mark.parametrize("name", ["", "9lives", "a.b", "naïve", "a b", "module", "endcase"])
def test_names_that_no_module_has(name: str) -> None:
    with pytest.raises(TilewrightError, match=f"the top module .*{re.escape(repr(name))}"):
        files(preset("tiny"), name)


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
        "npu_axi.v",
        "README.md",
        LINT_FILE,
        "npu.core",
        "npu.f",
        "npu.sdc",
        "npu.xdc",
        "npu.rdl",
        "npu.svd",
    ]
    assert all(f"`{name}`" in found["README.md"] for name in found if name != "README.md")
    named = files(config, "my_npu")
    assert named[file_name(config)].count("module my_npu(") == 1 and "Top module `my_npu`" in named["README.md"]
    assert "module npu" not in named[file_name(config)], "two machines of different names fit into one design"
