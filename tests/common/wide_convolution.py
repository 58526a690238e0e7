"""A convolution of 16-bit activations and 8-bit weights, written as instructions: all of it fits the scratchpads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.isa import wide_numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, Device, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.instructions import Memory, Rounding, Source, WideByte

_LOADED, _MULTIPLIED, _MADE = 1, 2, 3  # semaphores


@dataclass
class WideConvolution:
    """x [H,W,C] int16, w [O,kh,kw,C] int8, bias int64 [O], a multiplier and a shift of each output; stride 1, no pads.

    C and O are multiples of both blocks of the machine.
    """

    config: NpuConfig
    x: np.ndarray
    w: np.ndarray
    bias: np.ndarray
    multipliers: list[int]
    shifts: list[int]

    def run(self, device: Device, *, sixteen: bool = True) -> tuple[np.ndarray, Counters]:
        """The result [OH,OW,O] int16, and what the device says of the run. Without `sixteen` only the high bytes are
        multiplied, and the result is one byte: the work of an 8-bit convolution."""
        program = self._program(sixteen)
        data = self._data()
        size = self.out[0] * self.out[1] * self.w.shape[0] * (2 if sixteen else 1)
        base = device.allocate(16 * len(program) + len(data) + size + 64)
        device.write(base, to_bytes(program))
        at = base + 16 * len(program)
        device.write(at, data)
        end = at + -(-len(data) // 64) * 64
        regions = [
            Region(base, 16 * len(program), read=True),
            Region(at, len(data), read=True),
            Region(end, size, write=True),
        ]
        counters = device.run(regions, 0, 0, len(program))
        planes = np.frombuffer(bytes(device.read(end, size)), np.int8).astype(np.int64)
        planes = planes.reshape(2 if sixteen else 1, -1, *self.out, self.config.block_in).transpose(0, 2, 3, 1, 4)
        high, *low = planes.reshape(len(planes), *self.out, -1)
        return (256 * high + low[0] + 128 if sixteen else high).astype(np.int16), counters

    @property
    def out(self) -> tuple[int, int]:
        return self.x.shape[0] - self.w.shape[1] + 1, self.x.shape[1] - self.w.shape[2] + 1

    def _data(self) -> bytes:
        """PRM rows, tiles, rows of high bytes, rows of low bytes less 128."""
        bi, bo = self.config.block_in, self.config.block_out
        o, kh, kw, c = self.w.shape
        bias = self.bias + 128 * self.w.astype(np.int64).reshape(o, -1).sum(1)  # low bytes are 128 less
        low, scale = wide_numerics.wide_parameters(bias, self.multipliers, self.shifts)
        prm = np.stack([low.view(np.uint32), scale], 1)
        tiles = self.w.reshape(o // bo, bo, kh, kw, c // bi, bi).transpose(0, 2, 3, 4, 1, 5)
        x = self.x.astype(np.int64).reshape(*self.x.shape[:2], c // bi, bi).transpose(2, 0, 1, 3)
        planes = [(x >> 8).astype(np.int8), ((x & 255) - 128).astype(np.int8)]
        return b"".join(np.ascontiguousarray(part).tobytes() for part in (prm, tiles, *planes))

    def _program(self, sixteen: bool) -> list[Op]:
        bi, bo = self.config.block_in, self.config.block_out
        (h, wide, c), (o, kh, kw, _), (oh, ow) = self.x.shape, self.w.shape, self.out
        blocks, pixels, rows, vectors = c // bi, oh * ow, o // bo, o // bi
        tiles, plane = rows * kh * kw * blocks, blocks * h * wide
        prm_bytes, tile_bytes = vectors * self.config.prm_row_bytes, tiles * self.config.tile_bytes
        planes = 2 if sixteen else 1
        load = lambda target, offset, count, **more: op(
            "LOAD", region=1, offset=offset, target=target, count=count, **more
        )
        ops = [
            load(Memory.PRM, 0, vectors), load(Memory.WGT, prm_bytes, tiles),
            load(Memory.ACT, prm_bytes + tile_bytes, planes * plane, signal0=_LOADED),
        ]  # fmt: skip
        nest = [  # count, strides of ACT, WGT, ACC
            (blocks, h * wide, 1, 0), (kw, 1, blocks, 0), (kh, wide, kw * blocks, 0),
            (ow, 1, 0, rows), (oh, wide, 0, ow * rows), (rows, 0, kh * kw * blocks, 1),
        ]  # fmt: skip
        names = ("count", "act_stride", "wgt_stride", "acc_stride")
        ops += [op("GEMM_LOOP", level=n, **dict(zip(names, level))) for n, level in enumerate(nest)]
        for p in range(planes):
            sync = {"wait0": _LOADED} if p == 0 else {}
            sync |= {"signal0": _MULTIPLIED} if p + 1 == planes else {}
            ops.append(op("GEMM", act=p * plane, acc=p * pixels * rows, reduce=3, **sync))
        first = planes * plane  # ACT row of the result
        levels = [(planes, pixels * vectors, 0, 0), (vectors, 1, pixels, 1), (pixels, vectors, 1, 0)]
        names = ("count", "a_stride", "dst_stride", "prm_stride")
        ops += [op("VECTOR_LOOP", level=n, **dict(zip(names, level))) for n, level in enumerate(levels)]
        if sixteen:
            made = {"reduce": 1, "low": -(1 << 15), "high": (1 << 15) - 1}
            ops.append(op("VECTOR_WIDE", byte=WideByte.HIGH, dst=first, wait0=_MULTIPLIED, **made))
            ops.append(op("VECTOR_WIDE", byte=WideByte.LOW, dst=first + vectors * pixels, signal0=_MADE, **made))
        else:
            ops.append(op("VECTOR_POST", lo=-128, hi=127))
            ops.append(
                op("VECTOR", source=Source.ACC, rounding=Rounding.EVEN, dst=first, wait0=_MULTIPLIED, signal0=_MADE)
            )
        return [*ops, op("STORE", region=2, row=first, count=planes * vectors * pixels, wait0=_MADE), op("END")]
