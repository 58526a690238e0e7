"""The NPU beside another core in Amaranth: the product is numpy's, and the core reads how a program ended."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import numpy as np
import pytest
from amaranth.back import verilog

from tests.common.paths import ROOT
from tilewright.hw.interfaces import flat_ports
from tilewright.isa.config import preset
from tilewright.isa.host import mask

CONFIG = preset("tiny")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """`examples/amaranth/soc.py`."""
    spec = importlib.util.spec_from_file_location("amaranth_soc", ROOT / "examples" / "amaranth" / "soc.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.medium
def test_product(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main() == 0
    readme = (ROOT / "examples" / "amaranth" / "README.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out in readme


@pytest.mark.medium
def test_a_program_without_end(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The starter reads ERROR where the program ends before its END."""
    registers = example.registers
    monkeypatch.setattr(example, "registers", lambda code: registers(code[:-16]))
    x = np.zeros((example.ROWS, CONFIG.block_in), np.int8)
    _, status, _ = example.run(CONFIG, x, np.zeros((CONFIG.block_out, CONFIG.block_in), np.int8))
    assert status == mask("STATUS", "ERROR")


@pytest.mark.medium
def test_becomes_verilog(example: ModuleType) -> None:
    """The SoC has the ports of memory outside, and nothing of the registers."""
    soc = example.Soc(CONFIG, example.registers(example.program(CONFIG)))
    ports = {name: value for name, _, value in flat_ports(soc)}
    text = verilog.convert(soc, name="soc", ports=list(ports.values()), strip_internal_attrs=True)
    assert "axi_arvalid" in ports and not any(name.startswith("axil") for name in ports)
    assert {"\\soc.npu ", "\\soc.starter "} <= set(re.findall(r"^module (\\soc\.\w+ )", text, re.MULTILINE))
