"""The record in the folder of a build for a board without a host, beside the bitstream."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright.fpga.board import Point
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.standalone.boards import StandaloneBoard, standalone_board
from tilewright.fpga.standalone.image import Place
from tilewright.isa.config import NpuConfig

RECORD, IMAGE, BOOT, PROGRAM = "standalone.json", "standalone.bin", "boot.bin", "standalone.twp"


#: Values that `Exchange` accepts.
INPUTS = ("own", "unsigned", "floats")
RESULTS = ("values", "error")


@dataclass(frozen=True)
class Exchange:
    """Data exchanged over the serial line.

    Attributes:
        inputs: "own" as the network has them; "unsigned": int8 as bytes of 0 to 255, 128 more than their values;
            "floats": bytes as float32, which the board quantises.
        results: "values" of the first output, or the "error", the mean square of its differences from the first input.
    """

    inputs: str = "own"
    results: str = "values"

    def __post_init__(self) -> None:
        if self.inputs not in INPUTS or self.results not in RESULTS:
            raise ValueError(f"no exchange: {self.inputs}, {self.results}")


@dataclass(frozen=True, kw_only=True)
class Record:
    """The record of a build for a board without a host.

    Attributes:
        board, config, point: inputs of the bitstream's build.
        offset: offset of the image in the flash memory, bytes.
        model: name of its network.
        inputs, results: as in `Exchange`.
        sha256: hash of the image.
    """

    board: str
    config: dict[str, Any]
    point: dict[str, Any]
    offset: int
    model: str
    inputs: str
    results: str
    sha256: str

    def exchange(self) -> Exchange:
        """Inputs and results that go over the serial line."""
        return Exchange(self.inputs, self.results)

    def npu(self) -> NpuConfig:
        """The NPU's configuration."""
        return NpuConfig.from_dict(self.config)


def write(
    folder: Path, board: StandaloneBoard, config: NpuConfig, point: Point, model: str, image: bytes, exchange: Exchange
) -> Record:
    """Writes boot program, image and record. The compiled program goes beside them, as PROGRAM."""
    place: Place = board.alone.place
    made = Record(
        board=board.name,
        config=config.to_dict(),
        point=asdict(point),
        offset=place.offset,
        model=model,
        **asdict(exchange),
        sha256=hashlib.sha256(image).hexdigest(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in ((IMAGE, image), (BOOT, board.boot)):
        (folder / name).write_bytes(data)
    (folder / RECORD).write_text(json.dumps(asdict(made), indent=2) + "\n", encoding="utf-8")
    return made


def read(folder: Path) -> Record | None:
    """The record of a folder; None where its build was for a board with a host.

    Raises:
        FpgaError: the record is damaged, or the image is not the recorded one.
    """
    try:
        values = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        found = Record(**values)
        found.npu()
        Point(**found.point)
        found.exchange()
        image = (folder / IMAGE).read_bytes()
    except FileNotFoundError as error:
        if error.filename and Path(error.filename).name == RECORD:
            return None
        raise FpgaError(f"{error.filename}: {error.strerror}; build it again") from None
    except OSError as error:
        raise FpgaError(f"{error.filename}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise FpgaError(f"{folder / RECORD}: no record of a build") from None
    if hashlib.sha256(image).hexdigest() != found.sha256:
        raise FpgaError(f"{folder / IMAGE} is not the image of {folder / RECORD}; build it again")
    return found


@dataclass(frozen=True)
class Build:
    """A folder's record as objects, with the image."""

    board: StandaloneBoard
    config: NpuConfig
    point: Point
    exchange: Exchange
    image: bytes


def board_of(folder: Path) -> Build:
    """The build in a folder. Raises `FpgaError` where that is no board without a host."""
    found = read(folder)
    if found is None:
        raise FpgaError(f"{folder} holds no build for a board without a host; fpga build --standalone makes one")
    try:
        boot, image = (folder / BOOT).read_bytes(), (folder / IMAGE).read_bytes()
    except OSError as error:
        raise FpgaError(f"{error.filename}: {error.strerror}; build it again") from None
    board = standalone_board(found.board, boot)
    return Build(board, found.npu(), Point(**found.point), found.exchange(), image)
