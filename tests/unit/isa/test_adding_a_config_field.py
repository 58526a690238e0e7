"""A field of `NpuConfig`, added to a copy of the sources as CONTRIBUTING.md says, limits an operand everywhere.

The field is `summed_levels`: how many levels of its loop nest GEMM can sum, fewer than it has. Two sources change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.common import needs
from tests.common.paths import ROOT

#: By file, what is put in front of what.
EDITS = {
    "isa/config.py": [
        (
            "        semaphores: counting semaphores",
            "        summed_levels: levels of the GEMM loop nest that can be summed.\n",
        ),
        ("    semaphores: int = 31", "    summed_levels: int = 5\n"),
        ('        self._check_range("semaphores"', '        self._check_range("summed_levels", 1, self.gemm_loops)\n'),
        ('        NpuConfig(name="base", ', '        NpuConfig(name="modest", summed_levels=2),\n'),
    ],
    "isa/instructions.py": [],
}
LIMIT = (
    'doc="number of innermost levels that are summed, 0..gemm_loops", at_most="gemm_loops"',
    'doc="number of innermost levels that are summed", at_most="summed_levels"',
)

#: What every model of the machine says of a GEMM that sums two levels and of one that sums three.
SCRIPT = """
from amaranth.sim import Simulator
from tilewright.hw.issue.decoder import Decoder
from tilewright.isa.config import ConfigError, NpuConfig, preset
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.encoding import DecodeError, check, op, to_bytes
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice

modest = preset("modest")
assert modest.fingerprint != preset("base").fingerprint
assert NpuConfig.from_dict(modest.to_dict()) == modest
try:
    modest.with_(summed_levels=7)
except ConfigError as error:
    assert str(error) == "summed_levels must be 1..6, not 7"

def legal_in_rtl(operation):
    decoder = Decoder(modest)
    simulator = Simulator(decoder)
    async def bench(ctx):
        ctx.set(decoder.word, operation.encode())
        found.append(ctx.get(decoder.operands_ok))
    found = []
    simulator.add_testbench(bench)
    simulator.run()
    return bool(found[0])

def legal_in(device, operation):
    place = device.allocate(64)
    device.write(place, to_bytes([operation, op("END")]))
    try:
        device.run([Region(place, 64, read=True)], 0, 0, 2)
    except DeviceError as error:
        assert error.code.name == "ILLEGAL_OPERAND", error
        return False
    return True

for levels in (2, 3):
    operation = op("GEMM", reduce=levels)
    try:
        check(operation, modest)
        legal = True
    except DecodeError as error:
        assert str(error) == "GEMM: reduce must be 0..2, not 3"
        legal = False
    devices = FunctionalDevice(modest, "reference"), FunctionalDevice(modest), CycleDevice(modest)
    assert [legal_in(device, operation) for device in devices] == [legal] * 3
    assert legal == legal_in_rtl(operation) == (levels == 2)
print("all agree")
"""


@pytest.mark.slow
def test_adding_a_config_field(tmp_path: Path) -> None:
    needs.program(needs.C_COMPILER, "g++")
    for name in ("common", "isa", "hw", "simulator", "docs/isa.md", "driver/c"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    package = tmp_path / "tilewright"
    package.mkdir()
    for name in ("__init__.py", "errors.py", "registry.py"):
        shutil.copy(ROOT / "tilewright" / name, package)
    for name in ("common", "isa", "hw", "simulator", "driver"):
        (package / name).symlink_to(Path("..", name))
    for name, edits in EDITS.items():
        text = (tmp_path / name).read_text()
        for anchor, added in edits:
            assert text.count(anchor) == 1, anchor
            text = text.replace(anchor, added + anchor)
        (tmp_path / name).write_text(text.replace(*LIMIT))

    def python(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-P", *arguments]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert python("-m", "tilewright.isa.generate") == "wrote isa/include/tilewright_isa.h\nwrote docs/isa.md\n"
    assert python("-m", "tilewright.simulator.generate") == ""  # a limit reaches the simulators with the others
    page = (tmp_path / "docs" / "isa.md").read_text()
    assert (
        "| `summed_levels` | levels of the GEMM loop nest that can be summed. | 5 | 5 | 5 | 5 | 5 | 2 | 5 | 5 |" in page
    )
    assert "| `reduce` | u4 | 0..summed_levels | number of innermost levels that are summed |" in page
    assert python("-c", SCRIPT) == "all agree\n"
