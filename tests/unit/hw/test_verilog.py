"""Every configuration becomes Verilog, the same text each time, with the ports its README lists."""

import re
from pathlib import Path

import pytest

from hw.verilog import TOP, convert, write_verilog
from isa.config import PRESETS, NpuConfig, preset
from isa.registers import REGISTERS

SHAPES = {
    "narrow": {"block_in": 8, "block_out": 4},
    "tall": {"block_in": 4, "block_out": 16},
    "wide-bus": {"block_in": 4, "block_out": 8, "axi_data_bits": 128},
    "widest-bus": {"block_in": 8, "axi_data_bits": 256},
    "odd-sizes": {"act_rows": 1000, "acc_rows": 48, "wgt_tiles": 5, "prm_rows": 3, "lut_tables": 1, "queue_depth": 3},
    "long": {"axi_address_bits": 64, "burst_beats": 2, "read_outstanding": 1, "write_outstanding": 1, "act_banks": 2},
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    config = preset("tiny").with_(name=name, **SHAPES[name])
    assert f"module {TOP}(" in convert(config)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str) -> None:
    assert f"module {TOP}(" in convert(PRESETS[name])


def test_written_files(tmp_path: Path) -> None:
    config: NpuConfig = preset("tiny")
    path = write_verilog(config, tmp_path)
    text = path.read_text()
    assert path.name == "npu_tiny.v" and text == convert(config)
    ports = re.search(rf"^module {TOP}\((.*?)\);", text, re.DOTALL | re.MULTILINE)
    assert ports is not None
    names = {p.strip() for p in ports.group(1).replace("\n", " ").split(",")}
    readme = (tmp_path / "README.md").read_text()
    listed = set(re.findall(r"^\| (\w+) \| (?:in|out)put \|", readme, re.MULTILINE))
    assert names == listed
    assert all(f"| 0x{r.offset:03x} | {r.name} |" in readme for r in REGISTERS)
