"""Program files: the manifest changed, with sums that are right."""

from __future__ import annotations

import functools
import json
import random
import struct
from pathlib import Path
from typing import Any

from tests.common.program_files import sealed
from tilewright.api.compilation import compile_program
from tilewright.isa.program import MAGIC, Program
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs
from verification.fuzz.files import mutations as m
from verification.fuzz.files.files import placed
from verification.fuzz.files.models import RUN_BYTES, conv_model


@functools.cache
def small_program() -> Program:
    return compile_program(conv_model(), "tiny", cache=False, tuning="off")


@functools.cache
def _parts() -> tuple[Any, bytes]:
    data = small_program().to_bytes()
    start = len(MAGIC) + 12
    (length,) = struct.unpack_from("<I", data, len(MAGIC) + 4)
    return json.loads(data[start : start + length]), data[start + length : -32]


def mutated_program(rng: random.Random) -> bytes:
    manifest, body = _parts()
    if rng.random() < 0.1:
        return m.mutate_bytes(rng, sealed(manifest, body))
    for _ in range(rng.choice((1, 1, 2))):
        manifest = m.mutate_tree(rng, manifest)
    return sealed(manifest, m.mutate_bytes(rng, body) if rng.random() < 0.15 else body)


def read_program(data: bytes, rng: random.Random, folder: Path) -> None:
    program = Program.load(placed(folder, "program.twp", data))
    if program.arena_bytes + program.host_bytes < RUN_BYTES:
        Device("functional", config=program.config).run(program, random_inputs(program), timeout=100_000)
