"""Generated files are up to date; the C header agrees with the Python tables."""

import ctypes
import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.common import needs
from tests.common.paths import ROOT
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.encoding import DecodeError, check, decode, extract
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import HEADER, Field
from tilewright.isa.generate import files, page
from tilewright.isa.generate.outputs import COMMAND, OUTPUTS
from tilewright.isa.instructions import INSTRUCTIONS, LIMITS, REGIONS
from tilewright.isa.registers import REGISTER, REGISTER_SPACE, REGISTERS


def test_nothing_is_stale() -> None:
    assert files.stale(OUTPUTS) == [], f"run `{COMMAND}`"
    assert files.main(OUTPUTS, COMMAND, ["--check"]) == 0


def test_stale_files_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs: files.Outputs = {Path("a/b.md"): lambda: "b", Path("c"): lambda: "c"}
    (tmp_path / "c").write_text("old")
    assert files.stale(outputs, tmp_path) == list(outputs)
    assert files.main(outputs, "make it", ["--check"], tmp_path) == 1
    assert capsys.readouterr().err == "a/b.md is stale: run make it\nc is stale: run make it\n"
    assert files.main(outputs, "make it", [], tmp_path) == 0
    assert (tmp_path / "a" / "b.md").read_text() == "b" and (tmp_path / "c").read_text() == "c"
    assert files.stale(outputs, tmp_path) == [] and files.main(outputs, "make it", ["--check"], tmp_path) == 0
    assert files.main(outputs, "make it", ["--what"], tmp_path) == 2


def test_page_names_everything() -> None:
    text = page.page()
    for row in INSTRUCTIONS:
        assert f"### {row.name} — 0x{row.opcode:02x}" in text
    for name in [*(r.name for r in REGISTERS), *(e.name for e in ErrorCode), *PRESETS]:
        assert name in text
    assert not re.search(r"\| +\|$", text.split("## Configuration")[1], re.M)


# The header, compiled.


def getters() -> list[tuple[str, Field, int]]:
    """Name of the C getter, field and opcode of every field."""
    header = [(f"tw_header_{f.name}", f, 0) for f in HEADER]
    rows = [(f"tw_{r.name}_{f.name}".lower(), f, r.opcode) for r in INSTRUCTIONS for f in r.fields]
    return header + rows


@pytest.fixture(scope="module", params=["c99", "c++11"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    standard = str(request.param)
    compiler = needs.program(needs.C_COMPILER, "g++" if "++" in standard else "gcc")
    folder = tmp_path_factory.mktemp("header")
    names = [name for name, _, _ in getters()]
    gets = "".join(f"case {i}: return (int64_t){name}(w);\n" for i, name in enumerate(names))
    sets = "".join(f"case {i}: tw_set{name[2:]}(&w, value); break;\n" for i, name in enumerate(names))
    limits = " ".join(f"limits.{n} = values[{i}];" for i, n in enumerate(LIMITS))
    source = folder / ("test.cpp" if "++" in standard else "test.c")
    prefix = '#ifdef __cplusplus\nextern "C"\n#endif\n'
    source.write_text(
        '#include "tilewright_isa.h"\n'
        f"{prefix}int64_t get(int i, uint64_t lo, uint64_t hi) {{ tw_word w; w.lo = lo; w.hi = hi;\n"
        f"switch (i) {{ {gets} }} return 0; }}\n"
        f"{prefix}void set(int i, uint64_t *word, uint32_t value) {{ tw_word w; w.lo = word[0]; w.hi = word[1];\n"
        f"switch (i) {{ {sets} }} word[0] = w.lo; word[1] = w.hi; }}\n"
        f"{prefix}int check(const uint32_t *values, uint64_t lo, uint64_t hi) {{ tw_word w; tw_limits limits;\n"
        f"w.lo = lo; w.hi = hi; {limits} return tw_check(w, &limits); }}\n"
    )
    library = folder / "test.so"
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-shared", "-fPIC"]
    include = f"-I{ROOT / 'isa' / 'include'}"
    subprocess.run([compiler, *flags, include, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.get.restype = ctypes.c_int64
    return loaded


def halves(word: int) -> tuple[ctypes.c_uint64, ctypes.c_uint64]:
    return ctypes.c_uint64(word & (1 << 64) - 1), ctypes.c_uint64(word >> 64)


@pytest.mark.medium
def test_c_getters_and_setters(compiled: ctypes.CDLL) -> None:
    rng = random.Random(1)
    for i, (name, f, _) in enumerate(getters()):
        for _ in range(20):
            word, value = rng.getrandbits(128), rng.getrandbits(32)
            assert compiled.get(i, *halves(word)) == extract(word, f), name
            pair = (ctypes.c_uint64 * 2)(*halves(word))
            compiled.set(i, pair, ctypes.c_uint32(value))
            mask = ((1 << f.bits) - 1) << f.low
            assert pair[0] | pair[1] << 64 == word & ~mask | value << f.low & mask, name


@pytest.mark.parametrize(
    "config", [*PRESETS.values(), PRESETS["base"].with_(name="16x4", block_out=4)], ids=lambda c: c.name
)
def test_c_check_equals_python(compiled: ctypes.CDLL, config: NpuConfig) -> None:
    rng = random.Random(2)
    names = LIMITS
    values = (ctypes.c_uint32 * len(names))(*(getattr(config, n) for n in names))
    codes = set()
    for _ in range(3000):
        word = rng.getrandbits(128)
        if rng.random() < 0.9:
            word = word & ~0xFF | rng.choice(INSTRUCTIONS).opcode
        if rng.random() < 0.8:
            word &= ~0xFFFFFF00
        if rng.random() < 0.7:  # few bits, so that legal words are common
            word &= rng.getrandbits(128) & rng.getrandbits(128) | 0xFF
        try:
            check(decode(word), config)
            expected = ErrorCode.NONE
        except DecodeError as error:
            expected = error.code
        assert compiled.check(values, *halves(word)) == expected, hex(word)
        codes.add(expected)
    assert len(codes) == 3


# Registers.


def test_registers() -> None:
    offsets = [r.offset for r in REGISTERS]
    assert len(set(offsets)) == len(offsets) == len(REGISTER) and all(o % 4 == 0 for o in offsets)
    assert max(offsets) < REGISTER_SPACE and REGISTER_SPACE & (REGISTER_SPACE - 1) == 0
    assert REGISTER["IDENTITY"].offset == 0 and REGISTER["CONTROL"].offset == 0x10
    assert {r.access for r in REGISTERS} <= {"R", "RW", "W", "W1C"}
    assert sum(r.name.endswith("_BASE_LO") for r in REGISTERS) == REGIONS
    for r in REGISTERS:
        used = 0
        for b in r.bits:
            mask = ((1 << b.bits) - 1) << b.low
            assert not used & mask and mask < 1 << 32
            used |= mask
            assert r.bit(b.name) is b
