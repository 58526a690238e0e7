"""Random programs of LOAD_CODED: streams as the compiler makes them, damaged ones, and random bytes.

Every program ends with products of all its tiles with the rows of a unit matrix, so that memory shows the weights.
"""

from __future__ import annotations

import random

import numpy as np

from tilewright.compiler.npu.coding.stream import encode_stream
from tilewright.compiler.npu.coding.table import CodeTable, make_table
from tilewright.isa.codes import CodeMode
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.instructions import Memory, Source
from verification.programs.generator import GeneratedProgram

PROGRAM_BYTES = DATA_BYTES = STREAM_BYTES = 1 << 14
_STREAM = PROGRAM_BYTES + DATA_BYTES
_OUT = _STREAM + STREAM_BYTES


def _weights(rng: np.random.Generator, count: int) -> np.ndarray:
    """Weights of one of several distributions."""
    kind, width = rng.integers(6), rng.choice([1.0, 4.0, 12.0, 40.0])
    values = rng.laplace(0, width, count) if kind % 2 else rng.normal(0, width, count)
    if kind in (2, 3):
        values[rng.random(count) < rng.choice([0.5, 0.8, 0.97])] = 0
    if kind == 4:
        values = rng.choice(rng.integers(-128, 128, 3), count).astype(float)
    if kind == 5:
        values = rng.integers(-128, 128, count).astype(float)
    return np.clip(np.rint(values), -128, 127).astype(np.int8)


def _stream(rng: np.random.Generator, config: NpuConfig, most: int) -> tuple[list[Op], bytes, np.ndarray]:
    """LOAD_CODEDs with offsets and beats, their stream, and the tiles [tiles, block_out, block_in] they give."""
    loads: list[CodeTable | np.ndarray] = []
    left = int(rng.integers(1, most + 1))
    rows: list[tuple[int, int, int]] = []
    tiles: list[np.ndarray] = []
    while left:
        part = int(rng.integers(1, left + 1))
        weights = _weights(rng, part * config.tile_bytes).reshape(part, config.block_out, config.block_in)
        loads.append(make_table(np.bincount(weights.reshape(-1).view(np.uint8), minlength=256)))
        rows.append((CodeMode.TABLE, 0, 1))
        while part:
            count = int(rng.integers(1, part + 1))
            rows.append((CodeMode.WEIGHTS, sum(len(t) for t in tiles), count))
            tiles.append(weights[:count])
            loads.append(weights[:count])
            weights, part, left = weights[count:], part - count, left - count
    made = encode_stream(config, loads)
    ops, at = [], 0
    for (mode, row, count), beats in zip(rows, made.beats, strict=True):
        ops.append(op("LOAD_CODED", region=2, offset=at, mode=mode, row=row, count=count, beats=beats))
        at += beats * config.bus_bytes
    return ops, made.data, np.concatenate(tiles)


def _damaged(rng: np.random.Generator, ops: list[Op], data: bytes, size: int) -> tuple[list[Op], bytes, int]:
    """Damages a program: bits of the stream, fields of an instruction, or the size of its region."""
    raw = np.frombuffer(data, np.uint8).copy()
    kind = int(rng.integers(5))
    if kind == 0:
        at = rng.integers(0, len(raw), int(rng.integers(1, 6)))
        raw[at] ^= rng.integers(1, 256, len(at)).astype(np.uint8)
    elif kind == 1:
        raw = rng.integers(0, 256, len(raw)).astype(np.uint8)
    elif kind == 2:
        size = int(rng.integers(0, len(raw) + 1))
    else:
        number = int(rng.integers(len(ops)))
        values = dict(ops[number].values)
        name = str(rng.choice(["beats", "offset", "mode", "row", "count"]))
        values[name] = {
            "beats": max(0, values["beats"] + int(rng.integers(-3, 4))),
            "offset": int(rng.integers(0, len(raw) + 40)),
            "mode": 1 - values["mode"],
            "row": int(rng.integers(0, 1 << 18)),
            "count": int(rng.integers(1, 6)),
        }[name]
        ops = [*ops[:number], op("LOAD_CODED", **values), *ops[number + 1 :]]
    if rng.random() < 0.1:
        del ops[int(rng.integers(len(ops)))]
    return ops, raw.tobytes(), size


def coded_program(seed: int, config: NpuConfig, damage: float = 0.5) -> tuple[GeneratedProgram, np.ndarray | None]:
    """Returns a program, and the tiles it must load; None where its stream is damaged.

    Args:
        damage: how often it is.
    """
    rng = np.random.default_rng([seed, config.tile_bytes, config.weight_codes])
    bi, bo = config.block_in, config.block_out
    most = max(1, min(6, config.wgt_tiles, config.acc_rows // bi, (1 << 13) // config.tile_bytes))
    ops, data, tiles = _stream(rng, config, most)
    size = STREAM_BYTES
    wanted: np.ndarray | None = tiles
    if rng.random() < damage:
        ops, data, size = _damaged(rng, list(ops), data, size)
        wanted = None
    unit = np.eye(bi, dtype=np.int8).reshape(-1).view(np.uint8)
    scales = np.zeros((bi, 2), np.uint32)
    scales[:, 1] = np.float32(1).view(np.uint32)
    image = np.zeros(_OUT + (1 << 14), np.uint8)
    image[PROGRAM_BYTES : PROGRAM_BYTES + unit.size] = unit
    at = -(-unit.size // 64) * 64
    image[PROGRAM_BYTES + at : PROGRAM_BYTES + at + scales.nbytes] = scales.reshape(-1).view(np.uint8)
    image[_STREAM : _STREAM + len(data)] = np.frombuffer(data, np.uint8)

    # ACC row r of a tile is its column r: block_in rows of block_out, which VECTOR sees as block_out of block_in.
    vectors = len(tiles) * bo
    setup = [
        op("LOAD", region=1, offset=0, target=Memory.ACT, row=0, count=bi),
        op("LOAD", region=1, offset=at, target=Memory.PRM, row=0, count=1),
    ]
    order = random.Random(seed)
    for load in setup:  # plain loads between coded ones
        ops.insert(order.randint(0, len(ops)), load)
    program = [
        *ops,
        op("LOAD_SYNC", signal0=1),
        op("GEMM_LOOP", level=0, count=bi, act_stride=1, acc_stride=1),
        op("GEMM_LOOP", level=1, count=len(tiles), wgt_stride=1, acc_stride=bi),
        op("GEMM", wait0=1, signal0=2),
        op("VECTOR_LOOP", level=0, count=vectors, a_stride=1, dst_stride=1),
        op("VECTOR_POST", lo=-128, hi=127),
        op("VECTOR", wait0=2, signal0=3, source=Source.ACC, dst=bi),
        op("STORE", wait0=3, region=3, row=bi, count=vectors),
        op("END"),
    ]
    words = to_bytes(program)
    image[: len(words)] = np.frombuffer(words, np.uint8)
    windows = (
        Region(0, PROGRAM_BYTES, read=True), Region(PROGRAM_BYTES, DATA_BYTES, read=True),
        Region(_STREAM, size, read=True), Region(_OUT, 1 << 14, write=True),
    )  # fmt: skip
    return GeneratedProgram(seed, config, program, image, windows), wanted


def shown(memory: np.ndarray, config: NpuConfig, tiles: int) -> np.ndarray:
    """Returns the tiles [tiles, block_out, block_in] that memory shows after a run."""
    count = tiles * config.tile_bytes
    columns = memory[_OUT : _OUT + count].view(np.int8).reshape(tiles, config.block_in, config.block_out)
    return columns.transpose(0, 2, 1)
