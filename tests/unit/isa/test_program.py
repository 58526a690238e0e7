"""Program files: nothing is lost, and no damage goes unnoticed."""

import hashlib
import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.isa import program_check
from tilewright.isa.config import preset
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.program import (
    MAGIC,
    BlockedLayout,
    Buffer,
    CpuStep,
    HostFacts,
    Layer,
    Layout,
    NpuStep,
    Program,
    ProgramError,
    StateInfo,
    TensorInfo,
    Window,
)
from tilewright.runtime.layout import dtype_of


def example() -> Program:
    return Program(
        name="two layers",
        config=preset("tiny"),
        instructions=to_bytes([op("GEMM", act=5), op("END")]),
        constants=bytes(range(64)),
        arena_bytes=4096,
        host_bytes=128,
        buffers=[Buffer("x", "arena", 0, 64), Buffer("h", "host", 64, 8, data="table")],
        inputs=[TensorInfo("in", (1, 3, 4), "int8", "x", 0.5, -3)],
        outputs=[TensorInfo("out", (), "float32", "h", [0.5, 0.25], [1, 2], where="cpu", reason="even window")],
        tensors=[TensorInfo("mid", (2, 2), "int8", "", relayout=BlockedLayout((2, 1, 1, 1, 4), 4, 128))],
        steps=[NpuStep(0, 2), CpuStep("softmax", "code", ["x", "h"], 16, ["Softmax s"], ["one loop"])],
        layers=[Layer("conv", "Conv", "npu", 0, 1, 1000, 10, 20, 15, "4x4"), Layer("s", "Softmax", "cpu", macs=3)],
        sections={"code": b"\x7fELF", "table": b""},
        compiler="0.1.0",
        keep_all=True,
        host=HostFacts("riscv64-unknown-linux-gnu", ("c", "d"), 2),
        input_ranges={"in": (-1.0, 0.5)},
        notes=["a note"],
        compile_seconds=1.5,
    )


def manifest_of(program: Program) -> dict[str, Any]:
    raw = program.to_bytes()
    length = int.from_bytes(raw[12:16], "little")
    return json.loads(raw[20 : 20 + length])  # type: ignore[no-any-return]


def test_manifest() -> None:
    """Typed facts have the names in the file that docs/program-file.md gives them."""
    manifest = manifest_of(example())
    assert manifest["options"] == {
        "keep": "all", "host": "riscv64-unknown-linux-gnu", "host_features": ["c", "d"], "threads": 2,
        "input_ranges": {"in": [-1.0, 0.5]},
    }  # fmt: skip
    relayout = {"shape": [2, 1, 1, 1, 4], "block": 4, "xor": 128, "convention": "c1"}
    assert manifest["tensors"][0]["relayout"] == relayout and manifest["inputs"][0]["relayout"] is None


def test_round_trip(tmp_path: Path) -> None:
    program = example()
    path = tmp_path / "model.twp"
    program.save(path)
    assert Program.is_program(path) and [p.name for p in tmp_path.iterdir()] == ["model.twp"]
    again = Program.load(path)
    assert (
        again == program and again.to_bytes() == program.to_bytes() and again.content_hash() == program.content_hash()
    )
    assert [o.name for o in again.ops()] == ["GEMM", "END"]
    assert again.buffer("h").nbytes == 8 and again.macs == 1003 and again.npu_macs == 1000


def test_content_hash_is_of_behaviour() -> None:
    base = example().content_hash()

    def after(change: Callable[[Program], Any]) -> str:
        program = example()
        change(program)
        return program.content_hash()

    same: list[Callable[[Program], Any]] = [lambda p: p.notes.append("x"), lambda p: setattr(p, "compile_seconds", 9.0)]
    different: list[Callable[[Program], Any]] = [
        lambda p: setattr(p, "constants", b""),
        lambda p: setattr(p, "config", preset("base")),
        lambda p: p.sections.update(code=b""),
        lambda p: p.steps.pop(),
        lambda p: p.buffers.pop(),
    ]
    assert all(after(change) == base for change in same)
    assert len({after(change) for change in different} | {base}) == len(different) + 1


def test_truncation_is_found() -> None:
    data = example().to_bytes()
    for length in range(len(data)):
        with pytest.raises(ProgramError):
            Program.from_bytes(data[:length])


def test_every_flipped_byte_is_found() -> None:
    data = bytearray(example().to_bytes())
    for i in range(len(data)):
        for mask in (1, 0xFF):
            data[i] ^= mask
            with pytest.raises(ProgramError):
                Program.from_bytes(bytes(data))
            data[i] ^= mask
    assert Program.from_bytes(bytes(data)) == example()


def test_added_bytes_are_found() -> None:
    with pytest.raises(ProgramError):
        Program.from_bytes(example().to_bytes() + b"\0")


def test_messages_name_the_part() -> None:
    data = example().to_bytes()
    manifest_bytes = struct.unpack_from("<I", data, len(MAGIC) + 4)[0]
    start = len(MAGIC) + 12

    def message(position: int) -> str:
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(ProgramError) as info:
            Program.from_bytes(bytes(damaged), "m.twp")
        return str(info.value)

    assert message(0).startswith("m.twp: not a Tilewright program file")
    assert "program format 0, this version reads 1 to 4; compile again" in message(len(MAGIC))
    assert "checksum of the manifest" in message(start + 5)
    assert "checksum of section 'instructions'" in message(start + manifest_bytes + 3)
    assert "checksum of section 'constants'" in message(start + manifest_bytes + 32)
    assert "checksum of section 'code'" in message(start + manifest_bytes + 32 + 64)
    assert "checksum of the file" in message(len(data) - 1)


def forged(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A file with an altered manifest and right checksums."""
    data = example().to_bytes()
    start = len(MAGIC) + 12
    length = struct.unpack_from("<I", data, len(MAGIC) + 4)[0]
    manifest = json.loads(data[start : start + length])
    change(manifest)
    text = json.dumps(manifest).encode()
    body = MAGIC + struct.pack("<III", 1, len(text), 0) + text + data[start + length : -32]
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("steps"),
        lambda m: m.update(fingerprint="0" * 16),
        lambda m: m["config"].update(block_in=5),
        lambda m: m["config"].update(color=5),
        lambda m: m.update(config=[]),
        lambda m: m["buffers"][0].update(extra=1),
        lambda m: m["sections"].pop(0),
        lambda m: m["sections"][0].update(bytes=1 << 30),
        lambda m: m.update(inputs=5),
        lambda m: m.update(steps=["x"]),
    ],
)
def test_inconsistent_manifests(change: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(ProgramError):
        Program.from_bytes(forged(change))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"cannot read .*: No such file"):
        Program.load(tmp_path / "none")
    with pytest.raises(ProgramError, match=r"cannot write .*: No such file"):
        example().save(tmp_path / "no" / "where")
    assert not Program.is_program(tmp_path / "none")
    (tmp_path / "short").write_bytes(b"TW")
    assert not Program.is_program(tmp_path / "short")


@pytest.mark.parametrize("dtype", ["float8_zz", "float4", "float8", "float6_e2m3fn", "int3", "bfloat16x", "Float32"])
def test_types_there_are_none_of(dtype: str) -> None:
    program = example()
    program.tensors[0].dtype = dtype
    with pytest.raises(ProgramError, match=f"is of type '{dtype}', which is no type of numbers"):
        Program.from_bytes(program.to_bytes())


def test_types_of_small_numbers() -> None:
    """Types that pass the check are those that a runtime finds."""
    for dtype, size in program_check._OTHER_TYPES.items():
        info = TensorInfo("x", (4,), dtype, "")
        program_check.check_tensor(info, {})
        assert dtype_of(info).itemsize == size and dtype_of(info).name == dtype


def test_steps_of_later_runs() -> None:
    """The file keeps the one step of later runs, which replaces the NPU step."""
    program = example()
    program.instructions += to_bytes([op("END")])
    program.later = [NpuStep(2, 1)]
    again = Program.from_bytes(program.to_bytes())
    assert again == program and again.of_later_runs().steps == [NpuStep(2, 1), program.steps[1]]
    assert again.of_first_run() == example()
    again.later *= 2
    with pytest.raises(program_check.Unfit, match="2 NPU steps for later runs, 1 for a first one"):
        again.check()
    again.later = [NpuStep(0, 1)]
    with pytest.raises(program_check.Unfit, match="does not end with END"):
        again.check()


LAST = Layout.CHANNELS_LAST


def with_window() -> Program:
    """A program with a state in blocks, and a window that follows an input."""
    program = example()
    program.inputs.append(TensorInfo("position", (1, 1), "int64", ""))
    program.windows = [Window(3, "position", 16, 64)]
    program.sections["state"] = bytes(64)
    program.buffers.append(Buffer("s", "arena", 64, 64, data="state"))
    blocks = TensorInfo("s", (1, 1, 16, 4), "int8", "s", 0.5, 1, relayout=BlockedLayout((1, 1, 1, 16, 4), 4, 0, LAST))
    program.states = [StateInfo("past", blocks, blocks)]
    return program


def test_windows() -> None:
    """A window begins at a row of the arena: that of the input modulo the number of rows."""
    program = with_window()
    again = Program.from_bytes(program.to_bytes())
    assert again == program and again.content_hash() == program.content_hash() != example().content_hash()
    assert [program.windows[0].offset(value) for value in (0, 5, 16, 37, -1)] == [0, 320, 0, 320, 960]
    assert struct.unpack_from("<I", program.to_bytes(), len(MAGIC)) == (4,)
    program.constants = bytes(4096)
    program.windows = [replace(program.windows[0], rows=6, space="constant")]
    assert Program.from_bytes(program.to_bytes()).windows == program.windows
    assert [program.windows[0].offset(value) for value in (0, 5, 6, 15, 16)] == [0, 320, 320, 320, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"region": 2}, "window 2 is not one of the regions 3..7"),
        ({"region": 8}, "window 8 is not one of the regions 3..7"),
        ({"period": 0}, "window 3 has 0 rows of 64 bytes"),
        ({"period": 65}, "window 3 has 65 rows of 64 bytes in an arena of 4096"),
        ({"stride": 10}, "window 3 has 16 rows of 10 bytes"),
        ({"rows": 17}, "window 3 has 17 rows of 64 bytes"),
        ({"rows": -1}, "window 3 has -1 rows of 64 bytes"),
        ({"space": "host"}, "window 3 is one of 'host', not of arena or constant"),
        ({"space": "constant", "stride": 1 << 16}, "window 3 has 16 rows of 65536 bytes in constants of "),
        ({"tensor": "in"}, "window 3 follows input 'in', which is no integer"),
        ({"tensor": "none"}, "window 3 follows input 'none'"),
    ],
)
def test_windows_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    program = with_window()
    program.windows = [replace(program.windows[0], **change)]
    with pytest.raises(program_check.Unfit, match=re.escape(message)):
        program.check()


def test_two_windows_of_one_region() -> None:
    program = with_window()
    program.windows *= 2
    with pytest.raises(program_check.Unfit, match="each once"):
        program.check()


@pytest.mark.parametrize("relayout", [True, False])
def test_states_lie_in_blocks_in_the_arena_or_plain_with_the_host(relayout: bool) -> None:
    program = with_window()
    begin = program.states[0].begin
    if relayout:
        program.buffers[-1] = replace(program.buffers[-1], space="host", offset=0)
    else:
        plain = replace(begin, relayout=None)
        program.states = [StateInfo("past", plain, plain)]
    with pytest.raises(program_check.Unfit, match="state 'past' is neither in host memory nor in blocks in the arena"):
        program.check()
