"""Certificates: written by `compile --prove`, shown by `info`, and checked without the compiler."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.common.paths import ROOT
from tilewright.cli import cli
from tilewright.isa.program import Certificate, Program
from tilewright.prove import plain_text

DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="tilewright")


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the digits for `tiny`, with its certificate."""
    path = tmp_path_factory.mktemp("proved") / "digits.twp"
    result = call("compile", DIGITS, "-o", path, "--config", "tiny", "--prove")
    assert result.exit_code == 0, result.output
    assert "proved for all inputs" in result.output
    return path


def test_a_certificate_is_checked_without_the_compiler(proved: Path) -> None:
    program = "import sys; from tilewright.cli import cli\n"
    program += f"cli(['prove', {str(proved)!r}, {str(DIGITS)!r}, '--json', '-'], standalone_mode=False)\n"
    program += "sys.exit(any(m.startswith('tilewright.compiler.npu.') for m in sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stderr
    verdict = json.loads(found.stdout)
    assert verdict["proved"]
    assert verdict["elements"] == 10
    assert verdict["conversions"] == 2


def test_info_shows_a_certificate(proved: Path) -> None:
    shown = call("info", proved, "--json", "-")
    found = json.loads(shown.stdout)["certificate"]
    assert found["program"] == Program.load(proved).content_hash()
    assert found["proofs"][""]["elements"] == 10
    assert "work" not in found["proofs"][""]
    assert "right for all inputs" in call("info", proved).output


def rewritten(proved: Path, folder: Path, certificate: Certificate | None, **changes: object) -> Path:
    path = folder / "changed.twp"
    replace(Program.load(proved), certificate=certificate, **changes).save(path)  # type: ignore[arg-type]
    return path


def refused(path: Path, model: Path, reason: str) -> None:
    result = call("prove", path, model)
    assert result.exit_code not in (0, 1)
    assert reason in result.output
    assert len(result.output.strip().splitlines()) == 1, result.output


def test_a_certificate_of_something_else_is_refused(proved: Path, tmp_path: Path) -> None:
    program = Program.load(proved)
    assert program.certificate is not None
    refused(rewritten(proved, tmp_path, None), DIGITS, "has no certificate")
    refused(proved, Path(__file__), "another model")
    constants = bytes([program.constants[0] ^ 1]) + program.constants[1:]
    path = rewritten(proved, tmp_path, program.certificate, constants=constants)
    refused(path, DIGITS, "another program")
    assert "the certificate is of another program" in call("info", path).output
    older = replace(program.certificate, trusted="annotate")
    refused(rewritten(proved, tmp_path, older), DIGITS, "another front end")
    refused(DIGITS, DIGITS, "is no compiled program")
    refused(proved, tmp_path / "none.onnx", "no such file")


def test_a_damaged_certificate_is_refused(proved: Path, tmp_path: Path) -> None:
    certificate = Program.load(proved).certificate
    assert certificate is not None
    (proof,) = certificate.proofs.values()
    steps, values = plain_text.read(proof.work)
    foreign = [(number, [(*nodes[0][:2], ("nothing",), *nodes[0][3:]), *nodes[1:]]) for number, nodes in steps]
    for work, reason in (
        (proof.work[: len(proof.work) // 2], "damaged"), ("text", "damaged"), (plain_text.write(1), "damaged"),
        (plain_text.write((foreign, values)), "'nothing'"),
        (plain_text.write(([(n, [(*s[:4], {}) for s in nodes]) for n, nodes in steps], values)), "cannot be evaluated"),
    ):  # fmt: skip
        wrong = replace(certificate, proofs={"": replace(proof, work=work)})
        refused(rewritten(proved, tmp_path, wrong), DIGITS, reason)
    more = replace(certificate, proofs={"": replace(proof, elements=11)})
    refused(rewritten(proved, tmp_path, more), DIGITS, "claims 11 output elements")
    refused(rewritten(proved, tmp_path, replace(certificate, proofs={})), DIGITS, "other entry points")
    refused(rewritten(proved, tmp_path, replace(certificate, proofs={"a": 3})), DIGITS, "certificate.proofs")  # type: ignore[dict-item]


def test_a_certificate_does_not_make_a_wrong_program_right(proved: Path, tmp_path: Path) -> None:
    program = Program.load(proved)
    assert program.certificate is not None
    wrong = replace(program, constants=bytes(b ^ 64 for b in program.constants))
    claim = replace(program.certificate, program=wrong.content_hash())
    path = rewritten(proved, tmp_path, claim, constants=wrong.constants)
    result = call("prove", path, DIGITS, "--inputs", 0)
    assert result.exit_code == 1
    assert "not proved" in result.output
    steps, values = plain_text.read(program.certificate.proofs[""].work)  # other nodes on the CPU than the program's
    others = [(n, [(s[0], "other", *s[2:]) for s in nodes]) for n, nodes in steps]
    proof = replace(program.certificate.proofs[""], work=plain_text.write((others, values)))
    result = call("prove", rewritten(proved, tmp_path, replace(program.certificate, proofs={"": proof})), DIGITS)
    assert result.exit_code == 1
    assert "has other nodes" in result.output


def test_only_what_is_proved_gets_a_certificate(tmp_path: Path) -> None:
    result = call("compile", DIGITS, "-o", tmp_path / "cpu.twp", "--prove", "--cpu-only")
    assert result.exit_code == 2
    assert "not with --value or --cpu-only" in result.output
    assert not (tmp_path / "cpu.twp").exists()


def test_plain_data_is_read_as_it_was_written() -> None:
    data = {"a": (1, 2.5, None, True), 3: [b"\x00\xff", "text"], "c": np.arange(6, dtype=np.int16).reshape(2, 3)}
    found = plain_text.read(plain_text.write(data))
    assert list(found) == ["a", 3, "c"]
    assert found["a"] == data["a"]
    assert found[3] == data[3]
    assert found["c"].dtype == np.int16
    assert np.array_equal(found["c"], data["c"])
    with pytest.raises(ValueError, match="no form for object"):
        plain_text.write(object())
