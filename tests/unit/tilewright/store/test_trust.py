"""Native code in a program file runs only if its maker is trusted, and no damage gets past the checks."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from tests.common.paths import ROOT
from tests.common.program_files import sealed
from tilewright.cli import cli
from tilewright.common.errors import TilewrightError
from tilewright.isa.program import CpuStep, Program
from tilewright.store import program_cache, trust

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for keys."""
    monkeypatch.setenv("TILEWRIGHT_KEYS", str(tmp_path / "keys"))
    return tmp_path / "keys"


def with_keys_of(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line as a user with these keys has it."""
    return subprocess.run(
        [sys.executable, "-m", "tilewright", *arguments], capture_output=True, text=True, cwd=ROOT, check=False,
        env=os.environ | {"TILEWRIGHT_KEYS": str(folder)},
    )  # fmt: skip


def here_with_keys_of(folder: Path, *arguments: str) -> Result:
    """The same in this process: trust goes with the keys and with a program object, not with the process."""
    return CliRunner().invoke(cli, arguments, env={"TILEWRIGHT_KEYS": str(folder)})


def runs(program: Program) -> bool:
    try:
        tw.Device("functional").run(program, tw.random_inputs(program))
    except tw.UntrustedError:
        return False
    return True


@pytest.mark.medium
def test_own_programs_run(keys: Path, tmp_path: Path) -> None:
    program = tw.compile_program(MODEL, "tiny")
    program.save(tmp_path / "net.twp")
    assert runs(program) and runs(tw.load(tmp_path / "net.twp"))
    assert (keys / trust.OWN).stat().st_mode & 0o077 == 0


def forged(program: Program) -> bytes:
    """The program with the object code of a CPU step replaced, all sums and counts right."""
    step = next(s for s in program.steps if isinstance(s, CpuStep))
    other = copy.deepcopy(program)
    code = bytearray(other.sections[step.section])
    code[-1] ^= 1
    other.sections[step.section] = bytes(code)
    return other.to_bytes()


@pytest.mark.medium
def test_code_of_others_does_not_run(keys: Path, tmp_path: Path) -> None:
    program = tw.compile_program(MODEL, "tiny")
    path = tmp_path / "net.twp"
    path.write_bytes(forged(program))
    with pytest.raises(tw.UntrustedError, match=r"carries native code and is not signed by a key that you trust: "):
        tw.Device("functional").run(tw.load(path), tw.random_inputs(program))
    with pytest.raises(tw.UntrustedError):
        tw.export_c(tw.load(path), tmp_path / "c")
    result = CliRunner().invoke(cli, ["run", str(path)])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "--trust" in result.stderr
    unsigned = copy.deepcopy(program)
    unsigned.signature = ""
    unsigned.save(path)
    with pytest.raises(tw.UntrustedError, match="is not signed: compile the model here"):
        tw.Device("functional").run(tw.load(path), tw.random_inputs(program))
    assert runs(tw.load(path, trust=True))
    assert CliRunner().invoke(cli, ["run", str(path), "--trust"]).exit_code == 0
    assert CliRunner().invoke(cli, ["info", str(path)]).exit_code == 0  # looking at it runs nothing


@pytest.mark.medium
def test_a_program_without_kernels_needs_no_trust(keys: Path) -> None:
    program = tw.compile_program(MODEL, "tiny")
    plain = Program.from_bytes(program.to_bytes())
    plain.steps = [s for s in plain.steps if not isinstance(s, CpuStep)]
    plain.host_work = []
    plain.signature = ""
    assert runs(plain)


@pytest.mark.slow
def test_keys_of_others(keys: Path, tmp_path: Path) -> None:
    """A program compiled by one user runs for another one who trusts the key, until they do not any more."""
    path = str(tmp_path / "net.twp")
    ada = tmp_path / "ada"
    assert with_keys_of(ada, "compile", str(MODEL), "-o", path).returncode == 0
    refused = here_with_keys_of(keys, "run", path)
    assert refused.exit_code == 2 and "is not signed by a key that you trust" in refused.stderr
    (tmp_path / "ada.pub").write_text(here_with_keys_of(ada, "trust", "show").stdout)
    assert "signed by ada may run" in here_with_keys_of(keys, "trust", "add", str(tmp_path / "ada.pub")).stdout
    assert with_keys_of(keys, "run", path).returncode == 0
    listed = json.loads(here_with_keys_of(keys, "trust", "list", "--json", "-").stdout)
    assert [key["name"] for key in listed["trusted"]] == ["ada"]
    assert here_with_keys_of(keys, "trust", "remove", "ada").exit_code == 0
    assert here_with_keys_of(keys, "run", path).exit_code == 2
    for arguments, message in (
        (["trust", "remove", "ada"], "no key 'ada' is trusted"),
        (["trust", "add", str(tmp_path / "none")], "cannot read"),
        (["trust", "add", str(MODEL)], "holds no Ed25519 public key"),
        (["trust", "add", str(tmp_path / "ada.pub"), "--name", "../x"], "must have a plain name"),
    ):
        done = here_with_keys_of(keys, *arguments)
        assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("keys", "empty_cache")
def test_forged_files_in_the_cache_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_PROGRAM_CACHE", "on")
    program = tw.compile_program(MODEL, "tiny")
    (kept,) = program_cache.directory().glob("*.twp")
    assert tw.compile_program(MODEL, "tiny").sections == program.sections
    kept.write_bytes(forged(program))
    again = tw.compile_program(MODEL, "tiny")
    assert again.sections == program.sections and runs(again)
    assert Program.load(kept).sections == program.sections  # and it is right again


@pytest.mark.medium
def test_without_a_place_for_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run in the process that compiles them, and are not signed."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_KEYS", str(tmp_path / "file"))
    program = tw.compile_program(MODEL, "tiny")
    assert program.signature == "" and runs(program)
    with pytest.raises(tw.UsageError, match="no key can be kept in"):
        trust.own_public_key()


@pytest.mark.medium
@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", b"\xff"])
def test_a_damaged_key_is_said(content: bytes, keys: Path, tmp_path: Path) -> None:
    keys.mkdir()
    (keys / trust.OWN).write_bytes(content)
    result = CliRunner().invoke(cli, ["compile", str(MODEL), "--config", "tiny", "-o", str(tmp_path / "net.twp")])
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert "not signed, so its CPU kernels run in this process alone" in said and "is damaged" in said
    assert (keys / trust.OWN).read_bytes() == content  # it may be a backup's to bring back
    with pytest.raises(tw.UsageError, match=r"own\.pem is damaged"):
        trust.own_public_key()
    program = tw.load(tmp_path / "net.twp")
    assert program.signature == "" and any("not signed" in note for note in program.notes)


@pytest.mark.medium
def test_a_signature_is_over_all_that_the_file_says(keys: Path, tmp_path: Path) -> None:
    """Any change of the manifest but of the time of compilation breaks the signature."""
    program = tw.compile_program(MODEL, "tiny")
    raw = program.to_bytes()
    length = int.from_bytes(raw[12:16], "little")
    manifest, body = json.loads(raw[20 : 20 + length]), raw[20 + length : -32]
    assert trust.is_trusted(Program.from_bytes(raw))
    manifest["compile_seconds"] += 1
    assert trust.is_trusted(Program.from_bytes(sealed(manifest, body)))
    changes: list[tuple[str, Any]] = [
        ("name", "other"), ("notes", ["trust me"]), ("metadata", {"vocabulary": "x"}), ("compiler", "tilewright 99"),
    ]  # fmt: skip
    documents = [manifest | {key: value} for key, value in changes]
    for change in (
        lambda m: m["options"].update(input_ranges={manifest["inputs"][0]["name"]: [-1.0, 1.0]}),
        lambda m: m["options"].update(keep="all"),
        lambda m: m["config"].update(name="mine"),
        lambda m: m["layers"][0].update(name="x"),
        lambda m: m["layers"][0].update(macs=1),
        lambda m: m["inputs"][0].update(name="x"),
        lambda m: m["outputs"][0].update(reason="x"),
        lambda m: m["host_work"].clear(),
    ):
        documents.append(copy.deepcopy(manifest))
        change(documents[-1])
    for document in documents:
        assert document != manifest and not trust.is_trusted(Program.from_bytes(sealed(document, body))), document


@pytest.mark.medium
def test_a_signature_of_an_older_form(keys: Path, tmp_path: Path) -> None:
    program = tw.compile_program(MODEL, "tiny")
    program.signature = program.signature.rpartition(":")[2]
    program.save(tmp_path / "net.twp")
    with pytest.raises(tw.UntrustedError, match=r"the form of an older version.* compile the model here"):
        tw.Device("functional").run(tw.load(tmp_path / "net.twp"), tw.random_inputs(program))


@pytest.mark.medium
def test_a_signature_outlives_the_file(keys: Path, tmp_path: Path) -> None:
    """A signature holds even where a number is an integer in memory and none in the field that is read."""
    program = tw.compile_program(MODEL, "tiny")
    program.host_work[0].work = {"vector": 5, "scalar": 0.5}
    program.input_ranges = {program.inputs[0].name: (-1, np.float32(1.0).item())}
    trust.sign(program)
    assert trust.is_trusted(Program.from_bytes(program.to_bytes()))


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of the values of a JSON document."""
    if isinstance(value, dict):
        return [at, *(p for k, v in value.items() for p in paths(v, (*at, k)))]
    if isinstance(value, list):
        return [at, *(p for k, v in enumerate(value) for p in paths(v, (*at, k)))]
    return [at]


ODD = [None, True, 0, 1, -1, 63, 1 << 31, 1 << 60, 1 << 64, -(1 << 63), 0.5, 1e308, "", "x", "cpu0", [], {}, [0], ["x"]]


@pytest.mark.slow
@pytest.mark.parametrize("count", [700, pytest.param(5000, marks=pytest.mark.long)])
def test_mutated_manifests(keys: Path, count: int) -> None:
    """Every one is refused, or loads; what loads runs on its own inputs, or is refused in one line. Nothing crashes."""
    program = tw.compile_program(MODEL, "tiny")
    raw = program.to_bytes()
    length = int.from_bytes(raw[12:16], "little")
    manifest, body = json.loads(raw[20 : 20 + length]), raw[20 + length : -32]
    places = paths(manifest)[1:]
    rng = random.Random(1)
    loaded = ran = 0
    for _ in range(count):
        changed = json.loads(json.dumps(manifest))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            *way, last = rng.choice(places)
            target = changed
            try:
                for step in way:
                    target = target[step]
                kind = rng.random()
                if kind < 0.15:
                    del target[last]
                elif kind < 0.3 and isinstance(target, list):
                    target.insert(last, copy.deepcopy(target[last]))
                elif kind < 0.5 and isinstance(target[last], int):
                    target[last] += rng.choice((-64, -1, 1, 64))
                else:
                    target[last] = copy.deepcopy(rng.choice(ODD))
            except (IndexError, KeyError, TypeError):
                continue  # an earlier change took the place away
        try:
            found = Program.from_bytes(sealed(changed, body))
        except TilewrightError as error:
            assert "\n" not in str(error) and len(str(error)) < 500
            continue
        loaded += 1
        try:
            inputs = {i.name: np.zeros(i.shape, i.dtype) for i in found.inputs if np.prod(i.shape, dtype=float) < 1e6}
            tw.Device("functional").run(found, inputs)
            ran += 1
        except TilewrightError as error:
            assert "\n" not in str(error)
    assert 0 < ran < loaded < count  # rows of reports and notes decide nothing
