"""`tilewright rtl`: what it writes simulates without Tilewright, and its bench finds what is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.common import needs
from tests.common.paths import ROOT
from tests.common.quantized_chain import quantized_chain
from tilewright.export.rtl_project import DATA, DRIVER, project_files
from tilewright.hw import packaging, verilog
from tilewright.isa.config import preset
from tilewright.isa.device import Region
from tilewright.isa.registers import REGISTERS
from tilewright.simulator.functional import FunctionalDevice
from tilewright.store.files import write_files

CONFIG = preset("nano")


@pytest.fixture(scope="module")
def program() -> tw.Program:
    """A network that leaves the NPU in between, so that there are two runs."""
    return tw.compile_program(quantized_chain(size=5), CONFIG)


@pytest.fixture(scope="module")
def project(program: tw.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `tilewright rtl` writes."""
    folder = tmp_path_factory.mktemp("project")
    texts = verilog.files(CONFIG, bench=True) | project_files(program, "chain", packaging.wrapper_of(verilog.TOP))
    write_files(folder, texts)
    return folder


def test_the_bench_says_what_the_functional_simulator_does(program: tw.Program) -> None:
    """The records of `bench.txt`, replayed on a simulator without a clock, end in the bytes they expect."""
    text = project_files(program, "chain", "npu_axi")[DATA]
    device = FunctionalDevice(CONFIG)
    regions: dict[int, Region] = {}
    wanted = np.zeros(0, np.uint8)
    runs = changed = 0
    for kind, *values in (line.split() for line in text.splitlines() if not line.startswith("#")):
        if kind == "memory":
            device.allocate(int(values[0]) - 64)
            wanted = np.zeros(int(values[0]), np.uint8)
        elif kind in ("write", "expect"):
            address, data = int(values[0]), np.frombuffer(bytes.fromhex(values[1]), np.uint8)
            changed += kind == "expect" and (wanted[address : address + data.size] != data).any()
            wanted[address : address + data.size] = data
            if kind == "write":
                device.write(address, data)
        elif kind == "region":
            number, base, size, flags = map(int, values)
            regions[number] = Region(base, size, bool(flags & 1), bool(flags & 2))
        elif kind == "run":
            device.run([regions[n] for n in sorted(regions)], *map(int, values[:3]))
            assert np.array_equal(device.read(0, wanted.size), wanted) and int(values[3]) > 100
            runs += 1
        else:
            assert kind in ("fingerprint", "timing")
    assert runs and changed and f"fingerprint {CONFIG.fingerprint}\n" in text


def test_the_driver_is_the_driver(program: tw.Program) -> None:
    """The C header beside the Verilog is the one that the driver uses, byte for byte; it has the table's offsets."""
    texts = project_files(program, "chain", "npu_axi")
    for name in DRIVER:
        assert texts[f"driver/{name}"] == (ROOT / "driver" / "c" / name).read_text(encoding="utf-8")
    offsets = re.findall(r"#define TW_NPU_REG_(\w+) 0x(\w+)\n", texts["driver/tilewright_npu_registers.h"])
    assert {name: int(offset, 16) for name, offset in offsets} == {r.name: r.offset for r in REGISTERS}


def make(folder: Path, *arguments: str, code: int = 0) -> str:
    """Runs make in the folder as somebody who knows nothing of Tilewright, and returns what it prints."""
    for tool in ("make", "perl", "g++"):
        needs.program(needs.RTL_TOOLS, tool)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}
    found = subprocess.run(
        ["make", *arguments, f"PYTHON={sys.executable}"],
        cwd=folder, env=environment | {"PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert bool(found.returncode) == bool(code), found.stdout[-2000:] + found.stderr[-2000:]
    return found.stdout


@pytest.mark.slow
def test_lint(project: Path) -> None:
    assert "%Warning" not in make(project, "lint")


@pytest.mark.slow
@pytest.mark.cosim
def test_simulations(project: Path) -> None:
    """Both benches pass, and that in C++ tells a wrong byte, a wrong cycle, a byte that nothing should change, another
    machine and what it cannot read."""
    passed = make(project, "sim")
    assert "PASSED" in passed and re.search(r"^run 1: \d+ cycles$", passed, re.MULTILINE)
    good = (project / DATA).read_text()
    expect = re.search(r"^expect (\d+) (..)", good, re.MULTILINE)
    assert expect is not None
    other = f"{int(expect[2], 16) ^ 1:02x}"
    for old, new, told in (
        (expect[0], f"expect {expect[1]} {other}", f"byte {expect[1]} is {expect[2]}, not {other}"),
        (re.search(r"(?m)^run .*", good)[0], r"run 0 0 9999 1", "FAILED"),  # type: ignore[index]
        (expect[0], f"expect 0 01\n{expect[0]}", "byte 0 is 00, not 01"),
        (CONFIG.fingerprint, preset("tiny").fingerprint, "another configuration than the program"),
        ("region 1 ", "region 9 ", 'cannot read "region 9'),
        (f"\n{expect[0]}", f"\nexpect 99999999 {expect[2]}", 'cannot read "expect 99999999'),
    ):
        bad = project / "bad.txt"
        bad.write_text(good.replace(old, new, 1))
        assert told in make(project, "sim", f"BENCH={bad}", code=1)
    cycles = project / "cycles.txt"
    cycles.write_text(re.sub(r"(?m)^(run .*) (\d+)$", r"\1 7", good))
    assert re.search(r"FAILED: \d+ cycles, not 7", make(project, "sim", f"BENCH={cycles}", code=1))
    assert "PASS=1 FAIL=0" in make(project, "cocotb")


@pytest.mark.long
@pytest.mark.cosim
def test_litex(project: Path, tmp_path: Path) -> None:
    """A LiteX SoC with VexRiscv runs the network, gets the interrupt, and finds every byte equal; addresses that are
    narrower than LiteX's are refused."""
    python = Path(needs.program(needs.RTL_PROJECTS, "litex_sim")).with_name("python")
    config = preset("tiny")
    texts = verilog.files(config, bench=True)
    texts |= project_files(tw.compile_program(quantized_chain(size=5), config), "chain", "npu_axi")
    write_files(tmp_path / "tiny", texts)
    command = [python, ROOT / "examples" / "litex" / "simulate.py"]
    done = subprocess.run([*command, project, tmp_path / "build"], capture_output=True, text=True, check=False)
    assert done.returncode and "must have 32 bits, as those of tiny, not 23 and 32" in done.stderr
    command += [tmp_path / "tiny", tmp_path / "build"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"^interrupt pending, \d+ cycles, 0 bytes differ$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_other_tools(project: Path, tmp_path: Path) -> None:
    """FuseSoC lints; PeakRDL's header has the driver's offsets and fields; ipyxact reads its IP-XACT."""
    fusesoc = needs.program(needs.RTL_PROJECTS, "fusesoc")
    python = Path(needs.program(needs.RTL_PROJECTS, "peakrdl")).with_name("python")
    environment = make(project, "-s", "environment").strip()
    run = f"{fusesoc} --cores-root {project} run --target=lint {packaging.core_name(CONFIG)}"
    subprocess.run(["bash", "-c", f"{environment}; {run}"], cwd=tmp_path, check=True, capture_output=True)
    make(project, "registers")
    header = (project / "build" / "registers" / "npu.h").read_text()
    for register in REGISTERS:
        for b in register.bits:
            assert f"#define NPU__{register.name}__{b.name}_bp {b.low}\n" in header
            assert f"#define NPU__{register.name}__{b.name}_bw {b.bits}\n" in header
    assert (project / "build" / "registers" / "html" / "index.html").exists()
    script = (
        "from ipyxact.ipyxact import Component; c = Component(); c.load('build/registers/npu.xml'); print(*("
        "f'{r.name}={r.addressOffset}' for m in c.memoryMaps.memoryMap for b in m.addressBlock for r in b.register))"
    )
    found = subprocess.run([python, "-c", script], cwd=project, capture_output=True, text=True, check=True).stdout
    assert found.split() == [f"{r.name}={r.offset}" for r in REGISTERS]
