"""Configurations and spaces of sweeps, JSON and TOML."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from tilewright.isa.config import NpuConfig
from tilewright.sweep.space import load_space
from verification.fuzz.files import mutations as m
from verification.fuzz.files.files import placed

_SPACE = """
base = "base"
models = ["resnet8", "vww"]
family = "ecp5"
constraints = ["scratchpad_bytes <= 300_000", "lut <= 40_000", "cycles <= 2_000_000"]
[axes]
block_in = [8, 16, 32]
act_rows = { min = 1024, max = 16384, log2 = true }
acc_rows = { min = 512, max = 2048, step = 512 }
block_out = "block_in"
[memory]
read_latency = [32, 64, 128]
[search]
method = "grid"
budget = 200
[objective]
minimise = ["cycles", "lut * 2 ** 3"]
weights = { resnet8 = 2.0 }
"""


def mutated_json(rng: random.Random) -> bytes:
    data = NpuConfig().to_json().encode()
    if rng.random() < 0.4:
        return m.mutate_bytes(rng, data)
    tree = NpuConfig().to_dict()
    for _ in range(rng.choice((1, 1, 2))):
        tree = m.mutate_tree(rng, tree)
    text = json.dumps(tree) if rng.random() < 0.95 else "[" * 100_000
    return text.encode()


def mutated_toml(rng: random.Random) -> bytes:
    lines = rng.choice((NpuConfig().to_toml(), _SPACE)).splitlines()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        value = rng.choice(
            (*map(str, m.INTEGERS), "nan", "inf", "[[1]]", "{a = 1}", '"x"', '"9**9**9"', '"1/0"', '"a."', "1" * 5000,
             "0x" + "f" * 6000, "[" * 5000, "2026-11-22", '"\\u00e9"', ".".join("a" * 300), '"__import__"', '"min(1)"',
             '"(" ', '"2 ** 0.5 ** 1e9"', '"-" ', '"1e308 * 10"', '"log2(0)"', "true", '"' + "-" * 2000 + '1"')
        )  # fmt: skip
        lines[at] = f"{key} = {value}" if equals else rng.choice((f"[{value}]", lines[at - 1], ""))
    data = "\n".join(lines).encode()
    return m.mutate_bytes(rng, data) if rng.random() < 0.4 else data


def read_config(suffix: str) -> Callable[[bytes, random.Random, Path], None]:
    def read(data: bytes, rng: random.Random, folder: Path) -> None:
        config = NpuConfig.load(placed(folder, f"config{suffix}", data))
        config.to_toml()

    return read


def read_space(data: bytes, rng: random.Random, folder: Path) -> None:
    space = load_space(placed(folder, "space.toml", data))
    for number in range(min(space.size, 5)):
        point = space.point(space.assignment(number))
        for expression in space.constraints:
            expression.violation(dict.fromkeys(expression.names, 3.0) | point.values())
