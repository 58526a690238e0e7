"""Diagrams of the documentation, drawn from `NpuConfig`, the instruction set and the import contracts.

`DIAGRAMS` maps the names of files in docs/images to functions that return a figure.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from tilewright.isa.config import TABLE_BYTES, NpuConfig, preset
from tilewright.isa.instructions import Engine

ROOT = Path(__file__).resolve().parent.parent
GREY, LIGHT, DARK = "#eef1f4", "#d9e2ec", "#33475b"
#: Colours of engines, the same in all diagrams.
COLOUR = {
    Engine.FETCH: "#7a8b99",
    Engine.LOAD: "#4c78a8",
    Engine.GEMM: "#f58518",
    Engine.VECTOR: "#54a24b",
    Engine.STORE: "#e45756",
}


def canvas(width: float, height: float, inches: float = 10.0) -> tuple[Figure, Axes]:
    """A figure of `width` x `height` units, `inches` wide, without axes."""
    figure = Figure(figsize=(inches, inches * height / width), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def box(
    axes: Axes, x: float, y: float, width: float, height: float, title: str, lines: Sequence[str] = (), fill: str = GREY
) -> None:
    """A box with a bold title and lines below it; (x, y) is its lower left corner."""
    shape = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.7", fc=fill, ec=DARK, lw=1)
    axes.add_patch(shape)
    count = len(lines) + 1
    for number, text in enumerate([title, *lines]):
        style = {"fontweight": "bold", "fontsize": 10} if number == 0 else {"fontsize": 8}
        place = y + height * (1 - (number + 0.5) / count) if count > 1 else y + height / 2
        axes.text(x + width / 2, place, text, ha="center", va="center", color=DARK, **style)


def arrow(axes: Axes, points: Sequence[tuple[float, float]], colour: str = DARK) -> None:
    """A line through points with an arrowhead at the last one."""
    axes.plot(*zip(*points[:-1], strict=True), color=colour, lw=1.4, solid_capstyle="round")
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", points[-1], points[-2], arrowprops=style)


def label(axes: Axes, x: float, y: float, text: str, size: float = 8, **style: str) -> None:
    axes.text(x, y, text, fontsize=size, color=DARK, **{"ha": "center", "va": "center"} | style)


def kib(count: int) -> str:
    return f"{count / 1024:,.0f} KiB" if count >= 1024 else f"{count} bytes"


def npu(config: NpuConfig) -> Figure:
    """Engines above their queues, scratchpads below, and which engine reads and writes which scratchpad."""
    figure, axes = canvas(100, 62)
    c = config
    box(axes, 1, 3, 11, 44, "DRAM", ["AXI4", f"{c.axi_data_bits} bits", "", "reads:", f"{c.read_outstanding} bursts",
        "in flight", "", "writes:", f"{c.write_outstanding} bursts", "in flight"], LIGHT)  # fmt: skip
    box(axes, 1, 53, 24, 7, "host", ["AXI4-Lite registers, interrupt"], LIGHT)
    box(axes, 30, 53, 24, 7, "FETCH", ["reads and decodes instructions"])
    arrow(axes, [(25, 56.5), (30, 56.5)])
    arrow(axes, [(6.5, 47), (6.5, 50), (42, 50), (42, 53)], COLOUR[Engine.FETCH])
    label(axes, 17, 51, "instructions")
    places = {Engine.LOAD: 17.0, Engine.GEMM: 38.0, Engine.VECTOR: 59.0, Engine.STORE: 80.0}
    says = {
        Engine.LOAD: ["DRAM to scratchpads"],
        Engine.GEMM: [f"array of {c.block_in} x {c.block_out},", "window of DEPTHWISE" if c.depthwise else "no window"],
        Engine.VECTOR: [f"{c.vector_lanes} lanes: requantise,", "add, multiply, table" + ", rows" * c.row_unit],
        Engine.STORE: ["ACT to DRAM"],
    }
    axes.plot([54, 60, 60], [56.5, 56.5, 48.2], color=DARK, lw=1.4)
    axes.plot([25, 88], [48.2, 48.2], color=DARK, lw=1.4)
    for engine, x in places.items():
        box(axes, x, 42.5, 16, 3.5, f"queue of {c.queue_depth}", fill="white")
        box(axes, x, 30, 16, 8, engine.name, says[engine])
        axes.add_patch(Rectangle((x, 29.2), 16, 0.8, color=COLOUR[engine]))
        arrow(axes, [(x + 8, 42.5), (x + 8, 38)])
        arrow(axes, [(x + 8, 48.2), (x + 8, 46)])
    label(axes, 98, 57.5, f"{c.semaphores} semaphores order the engines:", ha="right")
    label(axes, 98, 55, "an instruction waits for up to two and signals up to two", ha="right")
    label(axes, 98, 51.5, "arrow down: write port; arrow up: read port", ha="right")
    pads = {
        "WGT": (
            16.0,
            [f"{c.wgt_tiles:,} tiles of", f"{c.block_out} x {c.block_in} int8", kib(c.wgt_tiles * c.tile_bytes)],
        ),
        "ACT": (
            32.5,
            [f"{c.act_rows:,} rows of {c.block_in} int8", f"{c.act_banks} banks", kib(c.act_rows * c.block_in)],
        ),
        "ACC": (49.0, [f"{c.acc_rows:,} rows of", f"{c.block_out} int32", kib(c.acc_rows * c.block_out * 4)]),
        "PRM": (65.5, [f"{c.prm_rows} rows of {c.block_in}", "biases and scales", kib(c.prm_rows * c.prm_row_bytes)]),
        "LUT": (82.0, [f"{c.lut_tables} tables of", f"{TABLE_BYTES} bytes", kib(c.lut_tables * TABLE_BYTES)]),
    }
    for name, (x, lines) in pads.items():
        box(axes, x, 4, 14, 10, name, lines, LIGHT)
    rails = {Engine.LOAD: 26.0, Engine.GEMM: 23.5, Engine.VECTOR: 21.0, Engine.STORE: 18.5}
    writes = {
        Engine.LOAD: "WGT ACT PRM LUT",
        Engine.GEMM: "ACC",
        Engine.VECTOR: "ACT" + " PRM" * c.row_unit,
        Engine.STORE: "",
    }
    reads = {Engine.LOAD: "", Engine.GEMM: "WGT ACT ACC", Engine.VECTOR: "ACT ACC PRM LUT", Engine.STORE: "ACT"}
    slots: dict[str, int] = dict.fromkeys(pads, 0)
    for engine, height in rails.items():
        centre, ends = places[engine] + 8, [places[engine] + 8]
        for name in pads:
            for way in [w for w, names in (("read", reads), ("write", writes)) if name in names[engine].split()]:
                slots[name] += 1
                x = pads[name][0] + 2.2 * slots[name]
                ends.append(x)
                points = [(x, height), (x, 14.0)]
                arrow(axes, points if way == "write" else points[::-1], COLOUR[engine])
        axes.plot([min(ends), max(ends)], [height, height], color=COLOUR[engine], lw=2.2)
        axes.plot([centre, centre], [29.2, height], color=COLOUR[engine], lw=2.2)
    arrow(axes, [(12, 34), (17, 34)], COLOUR[Engine.LOAD])
    arrow(axes, [(96, 34), (99.2, 34), (99.2, 1.5), (6.5, 1.5), (6.5, 3)], COLOUR[Engine.STORE])
    label(axes, 98, 60.3, f"preset {c.name}", ha="right", size=9)
    return figure


def tiles(config: NpuConfig) -> Figure:
    """One layer cut into tiles, its weights, and two ways to run layers in groups."""
    figure, axes = canvas(100, 58)
    label(axes, 2, 56, "Output of a layer: planes of channel blocks", 10, ha="left", fontweight="bold")
    blocks, size, cell = 4, 8, 2.4
    for block in reversed(range(blocks)):
        x0, y0 = 4 + 2.2 * block, 25 + 2.2 * block
        for row in range(size):
            for column in range(size):
                band, tile = row in (2, 3, 4), row in (2, 3, 4) and column >= 4 and block < 2
                fill = "#f58518" if tile else "#fbd9b5" if band else "white"
                place = (x0 + cell * column, y0 + cell * (size - 1 - row))
                axes.add_patch(Rectangle(place, cell, cell, fc=fill, ec="#9fb0c0", lw=0.5))
    label(axes, 13.6, 23.3, "columns")
    label(axes, 2.4, 34.6, "rows", rotation="vertical")
    for y, text in (
        (47, "channel block: " + f"{config.block_in} channels, a vector per place"),
        (42.5, "band (light): some rows of the output"),
        (38, "chunk: some channel blocks, here two"),
        (33.5, "tile (dark): a band's rows and columns"),
        (31, "of one chunk, in the scratchpads at a time"),
    ):
        label(axes, 34, y, text, ha="left")
    label(axes, 66, 56, "Weights of a layer", 10, ha="left", fontweight="bold")
    for row in range(6):
        for column in range(8):
            inside = row < 2 and column < 4
            axes.add_patch(
                Rectangle(
                    (67 + 3 * column, 49 - 3 * row),
                    3,
                    3,
                    fc="#f58518" if inside else "#fbd9b5" if row < 2 else "white",
                    ec="#9fb0c0",
                    lw=0.5,
                )
            )
    label(axes, 79, 53.3, "input blocks")
    label(axes, 65.5, 43, "output blocks", rotation="vertical")
    label(axes, 92, 50.5, "chunk: rows", ha="left")
    label(axes, 92, 47.8, "(light)", ha="left")
    label(axes, 67, 31.2, f"cell: tile of {config.block_out} x {config.block_in} weights", ha="left")
    label(axes, 67, 28.7, "piece (dark): input blocks whose weights", ha="left")
    label(axes, 67, 26.2, "are in WGT together", ha="left")
    label(axes, 2, 19, "A fused group, band by band", 10, ha="left", fontweight="bold")
    names = ["convolution", "depthwise", "convolution"]
    for layer, name in enumerate(names):
        label(axes, 2, 15 - 3.6 * layer, name, ha="left")
        for band in range(3):
            x = 12 + 11.4 * band + 3.7 * layer
            axes.add_patch(Rectangle((x, 13.6 - 3.6 * layer), 3.5, 2.8, fc=COLOUR[Engine.GEMM], ec="white"))
            axes.text(x + 1.75, 15 - 3.6 * layer, f"band {band}", ha="center", va="center", color="white", fontsize=5.5)
    arrow(axes, [(12, 3.6), (46, 3.6)])
    label(axes, 29, 1.8, "time: between layers only a band is in ACT")
    label(axes, 52, 19, "A group by channels, chunk by chunk", 10, ha="left", fontweight="bold")
    ways = [
        ("convolution", 0, 5, COLOUR[Engine.GEMM]),
        ("depthwise", 1, 5, COLOUR[Engine.GEMM]),
        ("product at the end", 2, 5, COLOUR[Engine.GEMM]),
    ]
    for layer, (name, delay, width, colour) in enumerate(ways):
        label(axes, 52, 15 - 3.6 * layer, name, ha="left")
        for chunk in range(4):
            x = 68 + 5.2 * (chunk + delay)
            axes.add_patch(Rectangle((x, 13.6 - 3.6 * layer), width, 2.8, fc=colour, ec="white"))
            axes.text(
                x + width / 2, 15 - 3.6 * layer, f"chunk {chunk}", ha="center", va="center", color="white", fontsize=6.5
            )
    arrow(axes, [(68, 3.6), (99, 3.6)])
    label(axes, 83, 1.8, "time; the sums of the product stay in ACC")
    return figure


def layouts(config: NpuConfig) -> Figure:
    """A tensor as the model has it, as the NPU's memory has it, in the banks of ACT, and the regions of a program."""
    block, channels, height, width = config.block_in, config.block_in + 4, 2, 3
    figure, axes = canvas(100, 52)
    label(axes, 2, 50, f"In the model: [1, {channels}, {height}, {width}], NCHW", 10, ha="left", fontweight="bold")
    fills = ("#4c78a8", "#a9c4e0")
    for plane in range(4):
        x, y = 4 + 1.4 * plane, 33 + 1.4 * plane
        for row in range(height):
            for column in range(width):
                axes.add_patch(
                    Rectangle(
                        (x + 4 * column, y + 4 * (1 - row)),
                        4,
                        4,
                        fc=fills[1] if plane < 3 else "white",
                        ec=DARK,
                        lw=0.5,
                        zorder=10 - plane,
                    )
                )
    for row in range(height):
        for column in range(width):
            axes.text(
                6 + 4 * column,
                39 - 4 * row,
                f"{row},{column}",
                ha="center",
                va="center",
                fontsize=8,
                color=DARK,
                zorder=20,
            )
    label(axes, 10, 31, "a plane of places for each channel")
    label(
        axes, 36, 50, f"In DRAM: [N][CB][H][W][{block}], CB = {-(-channels // block)}", 10, ha="left", fontweight="bold"
    )
    for number in range(2 * height * width):
        cb, place = divmod(number, height * width)
        x, y = 36 + 31 * cb, 45 - 2.6 * place
        used = min(block, channels - cb * block)
        for lane in range(block):
            axes.add_patch(
                Rectangle(
                    (x + 9.5 + 1.15 * lane, y),
                    1.15,
                    2,
                    fc=fills[0] if lane < used else "white",
                    ec="white" if lane < used else "#9fb0c0",
                    lw=0.4,
                )
            )
        label(axes, x, y + 1, f"+{number * block}", ha="left")
        label(axes, x + 4.6, y + 1, f"{place // width},{place % width}", ha="left")
    label(axes, 36, 48, "offset", ha="left", size=7)
    label(axes, 40.6, 48, "place", ha="left", size=7)
    label(axes, 54.7, 48, "lanes, a byte each", size=7)
    label(axes, 54.7, 30, f"block 0: channels 0 to {block - 1}")
    label(axes, 85.7, 30, f"block 1: channels {block} to {channels - 1}, then padding")
    label(axes, 2, 25, "In ACT: rows in banks", 10, ha="left", fontweight="bold")
    for bank in range(config.act_banks):
        label(axes, 6 + 8 * bank, 22, f"bank {bank}")
        for row in range(3):
            axes.add_patch(Rectangle((2.4 + 8 * bank, 18 - 3 * row), 7.4, 2.4, fc=LIGHT, ec=DARK, lw=0.5))
            label(axes, 6 + 8 * bank, 19.2 - 3 * row, f"row {row * config.act_banks + bank}")
    label(axes, 18, 9, f"a row is a vector of {block} int8; row r is in bank r mod {config.act_banks},", size=8)
    label(axes, 18, 6.6, "which has one read and one write port", size=8)
    label(axes, 46, 25, "A compiled program in memory", 10, ha="left", fontweight="bold")
    regions = (
        ("region 0", "instructions", "read"),
        ("region 1", "constants: weight tiles, biases and scales, tables", "read"),
        ("region 2", "arena: inputs, outputs, tensors between", "read, write"),
    )
    for number, (name, what, how) in enumerate(regions):
        y = 18 - 5.4 * number
        box(axes, 46, y, 10, 4.4, name, fill="white")
        axes.add_patch(Rectangle((57, y), 34, 4.4, fc=LIGHT, ec=DARK, lw=0.7))
        label(axes, 74, y + 2.2, what)
        label(axes, 92, y + 2.2, how, ha="left")
    label(axes, 46, 4.6, "the host sets base, size and permission of each region before a run", ha="left")
    return figure


def packages(contract: Sequence[str]) -> Figure:
    """The floors of the import contract; each package imports from floors below it only."""
    says = {
        "additions": "quantiser, other runtimes, language models, boards without a host, energy, remote devices",
        "tilewright": "the core: Python API, command line, runtime, checks, sweeps",
        "fpga": "boards and bitstreams",
        "hw": "the RTL",
        "compiler": "models to programs",
        "simulator": "bytes and cycles",
        "driver": "boards in use",
        "isa": "the contract: instructions, configuration, registers, numerics, timing, program file",
        "common": "errors, cache folder, C++ builds, allocator",
    }
    below = [[name.strip() for name in floor.split("|")] for floor in contract[2:]]
    floors = [["additions"], ["tilewright"], *below]
    figure, axes = canvas(100, 9 * len(floors) + 3)
    for number, floor in enumerate(floors):
        y, width = 9 * (len(floors) - 1 - number) + 3, 97 / len(floor)
        for place, name in enumerate(floor):
            box(axes, 2 + width * place, y, width - 1, 6, f"{name}/", [says.get(name, "")])
        if number:
            arrow(axes, [(50, y + 9), (50, y + 6)])
    label(axes, 50, 1.2, "an arrow: imports what stands below it; neighbours on one floor never import each other")
    return figure


def contract() -> list[str]:
    """The floors of the import contract in pyproject.toml, the top one first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return next(c["layers"] for c in settings["contracts"] if c["type"] == "layers")


DIAGRAMS: dict[str, Callable[[], Figure]] = {
    "npu.svg": lambda: npu(preset("base")),
    "tiles.svg": lambda: tiles(preset("base")),
    "layouts.svg": lambda: layouts(preset("base")),
    "packages.svg": lambda: packages(contract()),
}
