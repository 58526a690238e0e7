"""Helpers that run layers made by hand, with a schedule made by hand, on the functional simulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.common.machine_harness import DATA_BYTES, PROGRAM_BYTES, Bench
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.emission import emit_step
from tilewright.compiler.npu.schedule.problem import Schedule
from tilewright.compiler.npu.views import View, dense_view
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import from_bytes
from tilewright.isa.program import ARENA_REGION


def planes(name: str, channels: int, height: int, width: int, config: NpuConfig) -> View:
    """Returns the view of a tensor [1, channels, height, width] in a buffer of its own."""
    return dense_view(name, name, ARENA_REGION, (1, channels, height, width), config.block_in)


def blocked(x: np.ndarray, view: View) -> np.ndarray:
    """Returns a tensor [C, H, W] as the machine stores it: [CB][H][W][block]."""
    full = np.zeros((view.cb * view.block, *x.shape[1:]), np.int8)
    full[: view.c] = x
    return full.reshape(view.cb, view.block, *x.shape[1:]).transpose(0, 2, 3, 1)


def plain(raw: np.ndarray, view: View) -> np.ndarray:
    """Returns the tensor [C, H, W] that is stored as [CB][H][W][block]."""
    return raw.reshape(view.cb, view.h, view.w, view.block).transpose(0, 3, 1, 2).reshape(-1, view.h, view.w)[: view.c]


def run(config: NpuConfig, layers: Sequence[Layer], schedule: Schedule, x: np.ndarray) -> np.ndarray:
    """Returns the last layer's output, int8 [C, H, W], for the first layer's input [C, H, W], both of one image."""
    first, last = layers[0].inputs[0], layers[-1].output
    offsets, at = {}, 0
    for view in (first, *(layer.output for layer in layers)):
        offsets[view.buffer] = at
        at += -(-view.nbytes // 256) * 256
    emitter, constants = Emitter(config, at), ConstantPool()
    context = Context(config, emitter, constants, offsets)
    schedule.use_tiles(context, list(layers))
    emit_step(context, schedule.units, schedule.stays)
    bench = Bench(
        config,
        program_bytes=max(PROGRAM_BYTES, len(emitter.image)),
        data_bytes=max(DATA_BYTES, 1 << max(at, constants.size).bit_length()),
    )
    bench.fill()
    bench.data[: constants.size] = np.frombuffer(constants.blob(), np.uint8)
    bench.out[: first.nbytes] = blocked(x, first).reshape(-1).view(np.uint8)
    bench.run(from_bytes(bytes(emitter.image)), end=False)
    return plain(bench.out[offsets[last.buffer] :][: last.nbytes].view(np.int8), last)
