"""Schedules as files: given back they make the same program; edits are taken or refused with their place."""

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.common.quantized_chain import quantized_chain
from tilewright.cli import cli
from tilewright.runtime.cost import program_cycles


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and its schedules on `base` and `tiny`."""
    found = tmp_path_factory.mktemp("schedules")
    onnx.save(quantized_chain(4, 32, 24), found / "chain.onnx")
    for config in ("base", "tiny"):
        arguments = ["schedule", str(found / "chain.onnx"), "--config", config, "--tuning", "off"]
        written = CliRunner().invoke(cli, [*arguments, "-o", str(found / f"{config}.toml")])
        assert written.exit_code == 0, written.output
    return found


@pytest.mark.medium
@pytest.mark.parametrize("config", ["base", "tiny"])
def test_a_schedule_given_back_makes_the_same_program(folder: Path, config: str) -> None:
    usual = tw.compile_program(folder / "chain.onnx", config, cache=False, tuning="off")
    given = tw.compile_program(folder / "chain.onnx", config, schedule=folder / f"{config}.toml")
    assert given.instructions == usual.instructions and given.constants == usual.constants
    assert f"{program_cycles(usual):,} cycles" in (folder / f"{config}.toml").read_text(encoding="utf-8")


@pytest.mark.medium
def test_a_schedule_as_json(folder: Path) -> None:
    written = CliRunner().invoke(cli, ["schedule", str(folder / "chain.onnx"), "--tuning", "off", "--json", "-"])
    found = json.loads(written.stdout)
    assert found["step"][0]["unit"][0]["layers"] == ["conv0"] and found["cycles"] > 0 and found["output"] is None


@pytest.mark.medium
def test_edits_are_taken(folder: Path) -> None:
    text = (folder / "base.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("stays.")]
    edited = folder / "edited.toml"
    edited.write_text("\n".join(lines).replace("lines = 8, columns = 12", "lines = 4, columns = 24"), encoding="utf-8")
    program = tw.compile_program(folder / "chain.onnx", schedule=edited)
    tiles = [layer.tile for layer in program.layers if layer.where == "npu"]
    assert tiles[0].startswith("4x24 px")
    assert sum(layer.write_bytes for layer in program.layers) == 4 * 32 * 24 * 24
    arguments = ["compile", str(folder / "chain.onnx"), "--schedule", str(edited), "-o", str(folder / "chain.twp")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert tw.load(folder / "chain.twp").instructions == program.instructions


@pytest.mark.medium
@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            'layers = ["conv1"]',
            'layers = ["conv2"]',
            "layers run in the order of the model: 'conv1' comes next",
        ),
        ('layers = ["conv1"]', 'layers = ["conv9"]', "step 0: there is no layer 'conv9'"),
        ('tiles."conv1"', 'tile."conv1"', "unknown key 'tile' (did you mean tiles?)"),
        ("piece = 1, ", "", "the tile of 'conv0' has lines, columns, blocks, piece, bands_outer, keep_input"),
        ("lines = 8, columns = 12", "lines = 5, columns = 7", "does not fit the machine and what stays in ACT"),
        ('stays."conv1" = ', 'stays."conv1" = 99', "cannot leave its output in ACT from row 99"),
        ("[[step]]", "[[steps]]", "is no schedule: it has no [[step]]"),
        ("[[step]]", "[step", "base.toml"),
    ],
)
def test_mistakes_are_told(folder: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (folder / "base.toml").read_text(encoding="utf-8")
    assert old in text
    edited = tmp_path / "base.toml"
    edited.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(tw.UsageError) as raised:
        tw.compile_program(folder / "chain.onnx", schedule=edited)
    assert message in str(raised.value)


def test_groups_need_rows(folder: Path, tmp_path: Path) -> None:
    text = (folder / "tiny.toml").read_text(encoding="utf-8")
    edited = tmp_path / "tiny.toml"
    edited.write_text(text.replace("rows = 14\n", "", 1), encoding="utf-8")
    with pytest.raises(tw.UsageError, match="the group of 'conv0' needs rows = N, or by_channels = true"):
        tw.compile_program(folder / "chain.onnx", "tiny", schedule=edited)


def test_files_that_are_none(folder: Path) -> None:
    with pytest.raises(tw.UsageError, match="cannot read the schedule"):
        tw.compile_program(folder / "chain.onnx", schedule=folder / "none.toml")
