"""`NpuConfig`: every parameter of one NPU, checked, named, stored as JSON or TOML."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from tilewright.common.documents import read_document
from tilewright.common.errors import TilewrightError
from tilewright.common.shown import Shown
from tilewright.common.text import ACCEPTED, MAX_NAME, is_plain, plain, suggest

#: Memories are described in rows; a row address in an instruction has this many bits in any configuration.
ROW_BITS = 18
MAX_ROWS = 1 << ROW_BITS
#: Registers and instructions have 32 bits for an offset in a region.
MAX_OFFSET_BITS = 32
#: Least address bits of the bus: 1 MiB.
MIN_ADDRESS_BITS = 20
#: Semaphore 0 in a field means "none"; ids 1..MAX_SEMAPHORES name counters.
MAX_SEMAPHORES = 63
#: A semaphore counts to this value; one more signal is an error.
SEMAPHORE_LIMIT = 255
MAX_LOOPS = 8
MAX_LUT_TABLES = 16
#: A table has an entry of one byte for every value of a byte.
TABLE_BYTES = 256
#: ROW reads so many tables that follow each other as one, of words instead of bytes.
WIDE_TABLE = 4
#: DEPTHWISE's delay at most.
MAX_WINDOW_DELAY = 31
#: Fields that were added later. Where they have their default value they do not count in the fingerprint: programs and
#: bitstreams made before the field was added keep theirs.
_YOUNGER_FIELDS = (
    "depthwise",
    "window_delay",
    "window_pairs",
    "vector_queue",
    "vector_passes",
    "row_unit",
    "weight_codes",
    "packed_weights",
    "wide_results",
    "packed_products",
)


class ConfigError(TilewrightError):
    """A configuration that cannot be built. The message names field, value and the accepted values."""


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True, repr=False)
class NpuConfig(Shown):
    """One NPU. All fields are integers except `name`; sizes in rows are rows of the memory's own width.

    Attributes:
        name: label used in messages and file names, see `tilewright.common.text`; not part of the fingerprint.
        block_in: lanes of an activation vector = inputs of the array (columns of a weight tile).
        block_out: outputs of the array (rows of a weight tile).
        act_rows: activation scratchpad, rows of `block_in` int8.
        act_banks: banks of the activation scratchpad; row r lives in bank r mod act_banks, one read and one write
            port each.
        wgt_tiles: weight scratchpad, tiles of block_out x block_in int8.
        acc_rows: accumulator scratchpad, rows of `block_out` int32.
        prm_rows: parameter scratchpad, rows of `block_in` pairs (int32 bias, float32 scale).
        lut_tables: resident 256-entry tables; 0 = no memory for tables and no look-up in VECTOR.
        depthwise: 1 = GEMM has the window of DEPTHWISE; 0 = it has none, and the opcode is illegal.
        window_delay: most pushes by which DEPTHWISE may delay each segment of its window (`window_segment` slots), so
            that a column of the kernel lies in each and columns of pushes can be long. 0 = there are no delay lines, as
            where the window is one segment.
        window_pairs: 1 = a push of DEPTHWISE without output is made in one cycle with the next one of its line, if they
            read different banks of ACT; 0 = a push takes a cycle.
        vector_queue: 1 = VECTOR has an instruction queue of its own; 0 = its instructions go through that of GEMM.
        vector_passes: cycles VECTOR takes for a row, 1, 2 or 4: it has block_in / vector_passes lanes.
        row_unit: 1 = VECTOR has the unit of ROW (functions of rows along the channels), which needs tables in fours
            (lut_tables is 4, 8, 12 or 16). 0 = it has none, and the opcode is illegal.
        weight_codes: weights LOAD decodes in a cycle, a power of two from 8 to 64, at least as many as a bus beat has
            bytes and at most as many as a tile. 0 = there is no decoder, and LOAD_CODED is illegal.
        packed_weights: 1 = LOAD unpacks weights of 4 bits, two a byte in memory (LOAD_PACKED), which needs tiles of two
            beats or more; 0 = the opcode is illegal.
        wide_results: 1 = VECTOR makes results of 16 bits, a byte at a time, of sums of 48 (VECTOR_WIDE); 0 = the opcode
            is illegal.
        packed_products: 1 = outputs o and o + block_out / 2 of the array share multipliers, of 25 by 8 bits; needs
            block_out of at least block_in and 8, and leaves DEPTHWISE at most block_out / 2 lanes. 0 = each has its
            own.
        gemm_loops: levels of the GEMM loop nest.
        vector_loops: levels of the VECTOR loop nest.
        semaphores: counting semaphores (ids 1..semaphores).
        queue_depth: instructions each queue holds.
        axi_data_bits: width of the AXI4 data bus.
        axi_address_bits: width of AXI4 addresses. Below 32, offsets in a region have no more bits either: see
            `offset_bits`.
        burst_beats: longest AXI4 burst, in beats.
        read_outstanding: read bursts in flight at most.
        write_outstanding: write bursts in flight at most.

    Raises:
        ConfigError: when a field is out of range or fields contradict each other.
    """

    name: str = "custom"
    block_in: int = 16
    block_out: int = 16
    act_rows: int = 8192
    act_banks: int = 4
    wgt_tiles: int = 384
    acc_rows: int = 1024
    prm_rows: int = 64
    lut_tables: int = 8
    depthwise: int = 1
    window_delay: int = 0
    window_pairs: int = 0
    vector_queue: int = 1
    vector_passes: int = 1
    row_unit: int = 0
    weight_codes: int = 0
    packed_weights: int = 0
    wide_results: int = 0
    packed_products: int = 0
    gemm_loops: int = 6
    vector_loops: int = 6
    semaphores: int = 31
    queue_depth: int = 32
    axi_data_bits: int = 64
    axi_address_bits: int = 32
    burst_beats: int = 64
    read_outstanding: int = 16
    write_outstanding: int = 8

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "name":
                # It is written into generated scripts, so it is refused here, once for all of them.
                if not isinstance(value, str) or not is_plain(value):
                    raise ConfigError(f"name must be 1 to {MAX_NAME} of {ACCEPTED}, not {value!r}")
            elif type(value) is not int:
                raise ConfigError(f"{f.name} must be an integer, not {value!r}")
        self._check_power("block_in", 4, 64)
        self._check_power("block_out", 4, 64)
        self._check_range("act_rows", 64, MAX_ROWS)
        self._check_power("act_banks", 2, 16)
        if self.act_rows % self.act_banks:
            raise ConfigError(f"act_rows must be a multiple of act_banks ({self.act_banks}), not {self.act_rows}")
        self._check_range("wgt_tiles", 4, MAX_ROWS)
        self._check_range("acc_rows", 16, MAX_ROWS)
        if self.acc_rows % max(1, self.block_in // self.block_out):
            raise ConfigError(
                f"acc_rows must be a multiple of block_in / block_out ({self.block_in // self.block_out}), "
                f"not {self.acc_rows}"
            )
        if self.acc_vectors > MAX_ROWS:
            raise ConfigError(f"acc_rows must give at most {MAX_ROWS} vectors of block_in, not {self.acc_vectors}")
        self._check_range("prm_rows", 2, 4096)
        self._check_range("lut_tables", 0, MAX_LUT_TABLES)
        self._check_range("depthwise", 0, 1)
        self._check_range("window_delay", 0, MAX_WINDOW_DELAY)
        self._check_range("window_pairs", 0, 1)
        if self.window_pairs and not self.depthwise:
            raise ConfigError("window_pairs must be 0 with depthwise = 0 (there is no window), not 1")
        self._check_range("vector_queue", 0, 1)
        self._check_power("vector_passes", 1, 4)
        self._check_range("row_unit", 0, 1)
        if self.row_unit and (not self.lut_tables or self.lut_tables % WIDE_TABLE):
            raise ConfigError(
                f"row_unit must be 0 with lut_tables = {self.lut_tables}; the row unit needs 4, 8, 12 or 16 tables"
            )
        self._check_range("packed_weights", 0, 1)
        self._check_range("wide_results", 0, 1)
        self._check_range("packed_products", 0, 1)
        if self.packed_products and self.block_out < (least := max(8, self.block_in)):
            raise ConfigError(
                f"packed_products must be 0 with block_out = {self.block_out} (two outputs share a product where there "
                f"are at least {least}), not 1"
            )
        self._check_range("gemm_loops", 5, MAX_LOOPS)
        self._check_range("vector_loops", 4, MAX_LOOPS)
        self._check_range("semaphores", 12, MAX_SEMAPHORES)
        self._check_range("queue_depth", 2, 256)
        self._check_power("axi_data_bits", 32, 256)
        self._check_range("axi_address_bits", MIN_ADDRESS_BITS, 64)
        self._check_power("burst_beats", 2, 256)
        if self.burst_beats * self.bus_bytes > 4096:
            raise ConfigError(
                f"burst_beats must be at most {4096 // self.bus_bytes} with a {self.axi_data_bits}-bit bus "
                f"(bursts stay within 4 KiB), not {self.burst_beats}"
            )
        self._check_range("read_outstanding", 1, 64)
        self._check_range("write_outstanding", 1, 64)
        if self.bus_bytes > self.block_in * self.act_banks:
            raise ConfigError(
                f"axi_data_bits must be at most {8 * self.block_in * self.act_banks} "
                f"(one beat fills at most one row of every ACT bank), not {self.axi_data_bits}"
            )
        if self.bus_bytes > self.tile_bytes:
            raise ConfigError(
                f"axi_data_bits must be at most {8 * self.tile_bytes} (one beat lies within one weight tile), "
                f"not {self.axi_data_bits}"
            )
        if self.packed_weights and 2 * self.bus_bytes > self.tile_bytes:
            raise ConfigError(
                f"packed_weights must be 0 with axi_data_bits = {self.axi_data_bits} "
                f"(a beat of 4-bit weights lies within one weight tile of {self.tile_bytes}), not 1"
            )
        if self.weight_codes:
            self._check_power("weight_codes", 8, 64)
            if not self.bus_bytes <= self.weight_codes <= self.tile_bytes:
                raise ConfigError(
                    f"weight_codes must be 0 or {self.bus_bytes}..{self.tile_bytes} "
                    f"(from a bus beat to a weight tile), not {self.weight_codes}"
                )

    def _check_range(self, field: str, low: int, high: int) -> None:
        value = getattr(self, field)
        if not low <= value <= high:
            raise ConfigError(f"{field} must be {low}..{high}, not {value!r}")

    def _check_power(self, field: str, low: int, high: int) -> None:
        value = getattr(self, field)
        if not (_power_of_two(value) and low <= value <= high):
            raise ConfigError(f"{field} must be a power of two in {low}..{high}, not {value!r}")

    # Derived sizes, in bytes unless named otherwise.

    @property
    def bus_bytes(self) -> int:
        """Bytes of a beat on the bus."""
        return self.axi_data_bits // 8

    @property
    def macs_per_cycle(self) -> int:
        """Multiplications and additions of the array in a cycle."""
        return self.block_in * self.block_out

    @property
    def tile_bytes(self) -> int:
        """Bytes of one weight tile in memory: block_out rows of block_in int8."""
        return self.block_in * self.block_out

    @property
    def packed_tile_bytes(self) -> int:
        """Bytes of one tile of 4-bit weights in memory, two weights a byte."""
        return self.tile_bytes // 2

    @property
    def prm_row_bytes(self) -> int:
        """Bytes of a row of PRM: bias and scale of each lane."""
        return self.block_in * 8

    @property
    def acc_vectors(self) -> int:
        """Rows of ACC in VECTOR's view: vectors of block_in int32 lanes over the same elements as the GEMM rows."""
        return self.acc_rows * self.block_out // self.block_in

    @property
    def dw_lanes(self) -> int:
        """Channels of one depthwise product, and the lanes of an ACC row in depthwise mode."""
        return min(self.block_in, self.block_out >> self.packed_products)

    @property
    def dw_slices(self) -> int:
        """Slices of `dw_lanes` channels in one activation vector."""
        return self.block_in // self.dw_lanes

    @property
    def window_segment(self) -> int:
        """Slots of the window between two delay lines: kernels of three rows and, where there are many slots, of five
        have a column in each."""
        return 4 if self.block_in < 16 else 5

    @property
    def delay_lines(self) -> int:
        """Delay lines of the window, one between each two segments."""
        return (self.block_in - 1) // self.window_segment if self.depthwise and self.window_delay else 0

    @property
    def acc_dw_rows(self) -> int:
        """Rows of ACC in depthwise mode: `dw_lanes` int32 each."""
        return self.acc_rows * self.block_out // self.dw_lanes

    @property
    def address_bits(self) -> int:
        """Bits of row addresses, which are computed modulo 2 to this power: at least twice the rows of any memory."""
        rows = (self.act_rows, self.wgt_tiles, self.acc_rows, self.acc_dw_rows, self.acc_vectors, self.prm_rows)
        return (max(rows) - 1).bit_length() + 1

    @property
    def offset_bits(self) -> int:
        """Bits of offsets in a region, computed modulo 2 to this power; a region has fewer bytes than that."""
        return min(MAX_OFFSET_BITS, self.axi_address_bits)

    @property
    def vector_lanes(self) -> int:
        """Elements VECTOR processes in a cycle."""
        return self.block_in // self.vector_passes

    @property
    def row_word_bits(self) -> int:
        """Bits of the words ROW takes from a wide table."""
        return 24 + (self.vector_lanes - 1).bit_length()

    @property
    def row_square_bits(self) -> int:
        """Bits of the first of two fields of a word: as many as a sum of vector_lanes values of 16 bits has."""
        return 16 + (self.vector_lanes - 1).bit_length()

    @property
    def table_lookup(self) -> int:
        """1 if VECTOR can look up tables."""
        return int(self.lut_tables > 0)

    @property
    def last_table(self) -> int:
        """The highest table VECTOR_POST may name; 0, which then names nothing, on a machine without tables."""
        return max(0, self.lut_tables - 1)

    @property
    def scratchpad_bytes(self) -> int:
        """Bytes of all scratchpads."""
        return (
            self.act_rows * self.block_in
            + self.wgt_tiles * self.tile_bytes
            + self.acc_rows * self.block_out * 4
            + self.prm_rows * self.prm_row_bytes
            + self.lut_tables * TABLE_BYTES
        )

    @property
    def fingerprint(self) -> str:
        """16 hex digits over every field but the name; equal fingerprints mean interchangeable programs.

        The youngest fields count only where they differ from their defaults: see `_YOUNGER_FIELDS`.
        """
        values = asdict(self)
        del values["name"]
        for f in fields(self):
            if f.name in _YOUNGER_FIELDS and values[f.name] == f.default:
                del values[f.name]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def facts(self) -> dict[str, Any]:
        """The facts shown by `repr` and notebooks."""
        return {
            "name": self.name, "array": f"{self.block_in} x {self.block_out}", "bus_bits": self.axi_data_bits,
            "scratchpad_bytes": self.scratchpad_bytes, "fingerprint": self.fingerprint,
        }  # fmt: skip

    def with_(self, **changes: Any) -> NpuConfig:
        """Copies the configuration with some fields changed, checked again."""
        unknown = sorted(set(changes) - {f.name for f in fields(self)})
        if unknown:
            raise ConfigError(f"unknown configuration field {_with_known_fields(unknown[0])}")
        return replace(self, **changes)

    # Storage.

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Any, where: str = "configuration") -> NpuConfig:
        """Makes a configuration of a table; `base = PRESET` starts from a preset. Raises `ConfigError` for anything but
        a table of known fields.
        """
        if not isinstance(values, dict):
            raise ConfigError(f"{where} must be a table of fields, not {type(values).__name__}")
        values = dict(values)
        try:
            start = preset(values.pop("base")) if "base" in values else None
        except ConfigError as error:
            raise ConfigError(f"{where}: base: {error}") from None
        unknown = sorted(set(values) - {f.name for f in fields(NpuConfig)})
        if unknown:
            raise ConfigError(f"{where}: unknown field {_with_known_fields(unknown[0])}")
        try:
            return start.with_(**({"name": "custom"} | values)) if start else NpuConfig(**values)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def to_json(self) -> str:
        """Returns the fields as JSON, which `load` reads from a file."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_toml(self) -> str:
        """Returns the fields as TOML, which `load` reads from a file."""
        return "".join(f"{k} = {json.dumps(v)}\n" for k, v in self.to_dict().items())

    @staticmethod
    def load(source: str | Path) -> NpuConfig:
        """Loads a preset by name, or a `.json` / `.toml` file.

        A file names its machine; without a name, or with that of a preset which is another machine (a copy of a
        preset's fields that was edited), the machine is called as the file.

        Raises:
            ConfigError: unknown preset, unreadable file, or bad fields.
        """
        if isinstance(source, str) and source in PRESETS:
            return PRESETS[source]
        path = Path(source)
        if path.suffix not in (".json", ".toml"):
            raise ConfigError(
                f"unknown configuration {str(source)!r}{suggest(str(source), PRESETS)}; "
                f"presets: {', '.join(PRESETS)}; or give a .json or .toml file"
            )
        try:
            values = read_document(path)
        except OSError as error:
            raise ConfigError(f"cannot read configuration {path}: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        own = plain(path.stem) or "custom"
        found = NpuConfig.from_dict({"name": own} | values if isinstance(values, dict) else values, str(path))
        for name in (own, "custom"):
            if found.name in PRESETS and found.fingerprint != PRESETS[found.name].fingerprint:
                found = replace(found, name=name)
        return found


def _with_known_fields(field: str) -> str:
    """The text that names an unknown field and the known ones, for messages."""
    known = [f.name for f in fields(NpuConfig)]
    return f"{field!r}{suggest(field, known)}; known: {', '.join(known)}"


PRESETS: dict[str, NpuConfig] = {
    c.name: c
    for c in (
        NpuConfig(
            name="nano", block_in=4, block_out=4, act_rows=2048, wgt_tiles=512, acc_rows=256, prm_rows=32,
            lut_tables=1, vector_queue=0, vector_passes=4, gemm_loops=5, vector_loops=4, semaphores=12, queue_depth=16,
            axi_data_bits=32, axi_address_bits=23, burst_beats=16, read_outstanding=2, write_outstanding=1,
        ),
        NpuConfig(
            name="tiny", block_in=4, block_out=4, act_rows=4096, wgt_tiles=1024, acc_rows=512, lut_tables=4,
            vector_passes=4, semaphores=12, queue_depth=16, axi_data_bits=32, read_outstanding=8, write_outstanding=4,
        ),
        NpuConfig(
            name="pynq", block_in=4, block_out=4, act_rows=4096, wgt_tiles=1024, acc_rows=512, lut_tables=4,
            read_outstanding=8, write_outstanding=4,
        ),
        NpuConfig(
            name="small", block_in=8, block_out=8, act_rows=8192, wgt_tiles=768, acc_rows=1024, lut_tables=4,
            vector_passes=2, semaphores=12, queue_depth=16,
        ),
        NpuConfig(
            name="wide", block_out=8, wgt_tiles=768, acc_rows=2048, vector_passes=4, semaphores=12, queue_depth=16,
        ),
        NpuConfig(name="base", window_delay=16, row_unit=1),
        NpuConfig(
            name="large", block_in=32, block_out=32, act_rows=8192, wgt_tiles=256, acc_rows=1024, axi_data_bits=128,
            row_unit=1,
        ),
        NpuConfig(
            name="double", block_out=32, window_delay=16, vector_passes=2, axi_data_bits=128, row_unit=1,
        ),
        NpuConfig(
            name="quad", block_in=32, block_out=32, act_rows=8192, wgt_tiles=256, acc_rows=1024, vector_passes=2,
            axi_data_bits=128, row_unit=1,
        ),
    )
}  # fmt: skip


def preset(name: Any) -> NpuConfig:
    """A named preset. Raises `ConfigError` listing the names."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}{suggest(str(name), PRESETS)}; presets: {', '.join(PRESETS)}")
    return PRESETS[name]
