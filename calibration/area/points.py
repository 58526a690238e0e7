"""The machines that the area model is calibrated on, for each FPGA family."""

from __future__ import annotations

import random

from tilewright.isa.config import PRESETS, ConfigError, NpuConfig

#: (block_in, block_out) of the machines whose other fields are drawn: small ones, one to three minutes of synthesis
#: each.
_FITTED = (
    (4, 4), (8, 8), (4, 8), (8, 4), (4, 4), (16, 4), (4, 16), (4, 4), (8, 8), (4, 8), (8, 4), (4, 4), (16, 8), (8, 16),
    (4, 4), (4, 8), (8, 4), (4, 4), (8, 8), (4, 4),
)  # fmt: skip
_HELD_BACK = ((4, 4), (8, 4), (4, 8), (8, 8))
#: A machine with sizes that are no powers of two.
_ODD = NpuConfig(
    name="odd", block_in=16, block_out=8, act_rows=3000, wgt_tiles=300, acc_rows=520, prm_rows=48, lut_tables=3,
    vector_queue=0, semaphores=20, queue_depth=24, axi_data_bits=128, axi_address_bits=36, read_outstanding=6,
)  # fmt: skip
#: Machines with the options that are not drawn: the row unit, in one pass and in several, and the weight decoder.
_ROWS = [
    PRESETS["tiny"].with_(name=name, vector_passes=passes, row_unit=1)
    for name, passes in (("rows", 1), ("rows2", 2), ("rows4", 4))
]
_SMALL_ROWS = PRESETS["small"].with_(name="small_rows", row_unit=1)
_WIDE_ROWS = PRESETS["wide"].with_(name="wide_rows", row_unit=1)
_CODED = PRESETS["small"].with_(name="coded", vector_passes=2, weight_codes=16)
#: The same with results of 16 bits, on the smallest array.
_EXTRAS = PRESETS["tiny"].with_(name="extras", vector_passes=2, weight_codes=16, wide_results=1)
#: Two outputs to a multiplier, which only families with wide multipliers save blocks by.
_PACKED = PRESETS["small"].with_(name="packed", packed_products=1)
#: Arrays beyond 16 x 16, with as few lanes of VECTOR as can be: minutes each.
_HUGE = NpuConfig(
    name="huge", block_in=32, block_out=32, vector_passes=4, act_rows=4096, wgt_tiles=128, acc_rows=512,
    axi_data_bits=128,
)  # fmt: skip
_TALL = NpuConfig(
    name="tall", block_in=16, block_out=32, vector_passes=2, act_rows=4096, wgt_tiles=256, acc_rows=512, lut_tables=4,
    semaphores=16, queue_depth=16,
)  # fmt: skip
#: The points of a family in their order, so that few of them suffice: both sides of the array, every option, and
#: held-back points in between, the largest among them.
_CHOSEN = {
    "ecp5": (
        "tiny", "point0", "point4", "point7", "base", "point5", "point12", "point1", "held2", "small", "point6", "odd",
        "rows", "coded", "huge", "tall", "rows2", "rows4", "wide", "small_rows", "wide_rows", "double",
        "quad",
    ),
}  # fmt: skip
#: The points of families whose fit begins with the coefficients of another one, each with whether it is held back.
_FEWER = {
    "tiny": False, "rows": False, "extras": False, "small": False, "base": True, "tall": True, "point6": True,
    "nano": True, "huge": False,
}  # fmt: skip
#: More points of one of these families.
_MORE = {"xc7": {"packed": True}}
_CHOICES = {
    "act_rows": (512, 1024, 2048, 4096, 8192),
    "act_banks": (2, 4, 8),
    "wgt_tiles": (64, 128, 256, 512, 1024),
    "acc_rows": (64, 128, 256, 512, 1024),
    "prm_rows": (16, 32, 64, 128),
    "lut_tables": (0, 1, 2, 4, 8),
    "depthwise": (0, 1, 1),
    "vector_queue": (0, 1, 1),
    "gemm_loops": (5, 6, 7, 8),
    "vector_loops": (4, 5, 6, 8),
    "semaphores": (12, 15, 23, 31, 47, 63),
    "queue_depth": (4, 8, 16, 32, 64),
    "axi_data_bits": (32, 64, 128),
    "axi_address_bits": (32, 32, 40),
    "burst_beats": (16, 32, 64),
    "read_outstanding": (2, 4, 8, 16),
    "write_outstanding": (2, 4, 8),
}


def points(family: str) -> list[tuple[NpuConfig, bool]]:
    """Returns the calibration machines of a family, the same in every call, each with whether it is held back from the
    fit."""
    rng = random.Random(1)

    def draw(shape: tuple[int, int], name: str) -> NpuConfig:
        while True:
            fields = {field: rng.choice(values) for field, values in _CHOICES.items()}
            try:
                return NpuConfig(name=name, block_in=shape[0], block_out=shape[1], **fields)
            except ConfigError:
                continue

    held = [(draw(shape, f"held{n}"), True) for n, shape in enumerate(_HELD_BACK)]
    fitted = [(draw(shape, f"point{n}"), False) for n, shape in enumerate(_FITTED)]
    whole = [(config, False) for config in (PRESETS["tiny"], PRESETS["wide"], *_ROWS, _EXTRAS, _HUGE)]
    judged = [PRESETS[name] for name in ("nano", "small", "base", "double", "quad")]
    judged += [_SMALL_ROWS, _WIDE_ROWS, _ODD, _CODED, _PACKED, _TALL]
    whole += [(config, True) for config in judged]
    every = {config.name: (config, held_back) for config, held_back in [*whole, *held, *fitted]}
    if family not in _CHOSEN:
        named = _FEWER | _MORE.get(family, {})
        return [(every[name][0], held_back) for name, held_back in named.items()]
    return [every[name] for name in _CHOSEN[family]]
