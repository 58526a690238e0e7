"""The native simulators under AddressSanitizer and UBSan: random programs, and the same with bits of them changed; and
the assembler of the compiler, with random runs that have hazards.

    python -m verification.sanitize --count 1000

The libraries are built by a compiler that adds the sanitizers, into a cache of their own, and run in a Python whose
allocator is AddressSanitizer's, on memory of exactly the size that the regions reach. What a sanitizer finds ends the
process with its report; the last line printed before names the program.

A few programs end in the cycle-level simulator alone: those that write over their own instructions, since the clock
knows no data.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tilewright.common.store import cache_folder
from tilewright.isa.config import PRESETS, SEMAPHORE_LIMIT, NpuConfig, preset
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator import cycle, native
from tilewright.simulator.state import Scratchpads
from verification.programs.generator import GeneratedProgram, generate
from verification.programs.hazards import bursts, random_program, synchronised

CONFIGS = (
    preset("tiny").with_(name="16x8", block_in=16, block_out=8, queue_depth=3, act_rows=256),
    preset("tiny").with_(name="no_units", depthwise=0, lut_tables=0, vector_queue=0),
    PRESETS["tiny"],
    PRESETS["base"],
)
_RUNTIMES = ("libasan.so", "libubsan.so")
_FLAGS = "-g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
_STEPS = 100_000


def runtimes() -> list[str]:
    """Returns the sanitizers' libraries of g++, empty where it has none."""
    if not shutil.which("g++"):
        return []
    found = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in _RUNTIMES
    ]
    return found if all(Path(path).is_absolute() for path in found) else []


def _compiler(level: str) -> Path:
    """A compiler that adds the sanitizers, kept in the folder of the libraries that it builds."""
    compiler = cache_folder() / "sanitized" / level.lstrip("-") / "g++"
    text = f'#!/bin/sh\nexec {shutil.which("g++")} "$@" {level} {_FLAGS}\n'
    if not compiler.exists() or compiler.read_text(encoding="utf-8") != text:
        compiler.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=compiler.parent) as folder:
            made = Path(folder) / compiler.name
            made.write_text(text, encoding="utf-8")
            made.chmod(0o755)
            made.replace(compiler)
    return compiler


def start(
    count: int, seed: int = 0, configs: int = len(CONFIGS), level: str = "-O1"
) -> subprocess.CompletedProcess[str]:
    """Runs `count` programs, in turn on the first `configs` of CONFIGS, in a process with the sanitizers; its status is
    not 0 if they found anything. The libraries are compiled at a level of optimisation: for few programs, at `-O0`."""
    compiler = _compiler(level)
    environment = os.environ | {
        "CXX": str(compiler), "TILEWRIGHT_CACHE": str(compiler.parent), "LD_PRELOAD": ":".join(runtimes()),
        "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc", "TILEWRIGHT_SANITIZED": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "verification.sanitize", "--inside"]
    command += ["--count", str(count), "--seed", str(seed), "--configs", str(configs)]
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def mutated(program: GeneratedProgram, rng: random.Random) -> tuple[np.ndarray, list[Region], tuple[int, int, int]]:
    """Memory, regions and program: as generated, or with a few things changed."""
    memory, regions = program.memory.copy(), list(program.windows)
    where = (0, 0, len(program.ops))
    if rng.random() < 0.25:
        return memory, regions, where
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.randrange(INSTRUCTION_BYTES * len(program.ops))
        memory[at] = rng.choice((0, 255, int(memory[at]) ^ 1 << rng.randrange(8), rng.randrange(256)))
    if rng.random() < 0.3:
        k = rng.randrange(len(regions))
        size = rng.choice((0, 1, 64, memory.size, (1 << 32) - 1))
        base = rng.choice((0, 64, memory.size - 64, memory.size, 1 << 32, (1 << 63), (1 << 64) - (1 << 33)))
        regions[k] = Region(base, size, read=rng.random() < 0.8, write=rng.random() < 0.8)
    if rng.random() < 0.2:
        where = (rng.randrange(9), rng.choice((0, 16, 1 << 20, (1 << 32) - 16, 1 << 60)),
                 rng.choice((0, 1, len(program.ops), 1 << 31, 1 << 60)))  # fmt: skip
    return memory, regions, where


def attempt(config: NpuConfig, seed: int, scratchpads: Scratchpads) -> tuple[bool, bool]:
    """Returns whether the functional and the cycle-level simulator came to the end of a program."""
    rng = random.Random(seed)
    memory, regions, where = mutated(generate(seed, config), rng)
    timing = MemoryTiming(read_latency=rng.choice((1, 16, 60)), read_interval=rng.choice((1, 3)))
    clock = cycle.simulate(config, timing, memory, regions, where, watchdog=2000, timeout=_STEPS)
    try:
        native.run(config, scratchpads, memory, regions, where, _STEPS)
    except DeviceError:
        return False, clock.error is None
    return True, clock.error is None


def assemble(seed: int) -> None:
    """Assembles runs that have hazards, with a limit of semaphores that they reach."""
    rng = random.Random(seed)
    synchronised(*rng.choice((bursts, random_program))(rng), limit=rng.choice((2, 3, SEMAPHORE_LIMIT)))


def inside(count: int, seed: int, configs: int) -> None:
    """All programs, in a process with the sanitizers."""
    scratchpads = {config.name: Scratchpads(config) for config in CONFIGS}
    ends = [0, 0]
    for number in range(seed, seed + count):
        config = CONFIGS[number % configs]
        print(f"program {number} on {config.name}", flush=True)
        for k, ended in enumerate(attempt(config, number, scratchpads[config.name])):
            ends[k] += ended
        assemble(number)
    print(f"{count} programs, {ends[0]} ran to their end in the functional simulator, {ends[1]} in the cycle-level one")


def main(arguments: list[str]) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m verification.sanitize", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--count", type=int, default=100, help="programs")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--configs", type=int, default=len(CONFIGS), help="run on the first so many configurations")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        inside(options.count, options.seed, options.configs)
        return 0
    if not runtimes():
        parser.error("g++ has no libasan and libubsan here; install them")
    found = start(options.count, options.seed, options.configs)
    print(found.stdout.splitlines()[-1] if found.stdout else "nothing ran")
    if found.returncode:
        print(found.stderr[-8000:])
    return found.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
