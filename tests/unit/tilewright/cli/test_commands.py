"""The command line in this process, on hand-made programs."""

import json
import os
import re
import shutil
import subprocess
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.common import needs
from tests.common.waiting import HANG, wait_until
from tilewright.cli import COMMANDS, cli, terminal
from tilewright.cli.group import Cli
from tilewright.common.native import Library, shared_library
from tilewright.isa.assembler import assemble
from tilewright.isa.config import PRESETS
from tilewright.isa.encoding import to_bytes
from verification.rtl_text import verilog_of


@pytest.fixture
def run(hand_compiler):
    """Invokes `tilewright`; checks the exit code and that errors are one line."""

    def invoke(*args, code=0, **options):
        result = CliRunner().invoke(cli, [str(a) for a in args], prog_name="tilewright", **options)
        assert result.exit_code == code, (result.output, result.exception)
        if code > 1:
            lines = result.stderr.strip().splitlines()
            assert len(lines) == 1 and lines[0].startswith("tilewright: error: "), result.stderr
        return result

    return invoke


@pytest.fixture
def program_file(hand, tmp_path):
    path = tmp_path / "hand.twp"
    hand.make_program().save(path)
    return path


def commands(command=cli, path=()):
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_has_examples(run, path):
    text = run(*path, "--help").stdout
    assert "Usage: tilewright" in text and "Examples:" in text


def test_no_arguments_is_help_with_groups(run):
    """Every command is under one heading, additions beside the command that they follow."""
    text = run().stdout
    headings = ["Networks", "Machines", "Boards", "Networks to try, and measurements", "This machine"]
    assert re.findall(r"^([A-Z][\w ,]*):$", text, re.MULTILINE) == ["Options", *headings]
    listed = re.findall(r"^  ([a-z][a-z-]*)  ", text.partition("Networks:")[2], re.MULTILINE)
    assert listed == list(COMMANDS) and listed.index("quantize") == listed.index("compile") + 1


class TestCompile:
    def test_writes_a_program(self, run, model_file, tmp_path):
        out = tmp_path / "out.twp"
        text = run("compile", model_file, "-o", out, "--config", "small").stdout
        assert tw.load(out).config.name == "small"
        assert "75.00% on the NPU" in text and "note: made by hand" in text

    def test_json(self, run, model_file, tmp_path):
        out = tmp_path / "out.twp"
        found = json.loads(run("compile", model_file, "-o", out, "--json", "-").stdout)
        assert found["macs"] == 400 and found["npu_mac_fraction"] == 0.75 and found["output"] == str(out)

    def test_compiler_output_stays_off_stdout_with_json(self, run, model_file, tmp_path, monkeypatch, hand):
        def compile(*args, **options):
            print("--- after eliminate ---")
            return hand.make_program()

        monkeypatch.setattr(tw, "compile_program", compile)
        result = run("compile", model_file, "-o", tmp_path / "o", "--print-after", "eliminate", "--json", "-")
        json.loads(result.stdout)
        assert "after eliminate" in result.stderr

    @pytest.mark.parametrize(
        "arguments, message",
        [
            (["none.onnx", "-o", "x.twp"], "no such file"),
            (["{model}"], "Missing option '-o'"),
            (["{model}", "-o", "/no/where/x.twp"], "no such directory"),
            (["{model}", "-o", "{tmp}"], "is a directory"),
            (["{tmp}", "-o", "x.twp"], "is a directory"),
            (["{program}", "-o", "x.twp"], "is a compiled program"),
            (
                ["{model}", "-o", "x.twp", "--config", "nope"],
                "presets: nano, tiny, pynq, small, wide, base, large, double, quad",
            ),
            (["{model}", "-o", "x.twp", "--shape", "x"], "must be a name and sizes"),
            (["{model}", "-o", "x.twp", "--shape", "x=1,b"], "must be a name and sizes"),
            (["{model}", "-o", "x.twp", "--shape", "x=1", "--shape", "x=1"], "given twice"),
            (["{model}", "-o", "x.twp", "--effort", "99"], "--effort"),
            (["{model}", "-o", "x.twp", "--nonsense"], "No such option"),
        ],
    )
    def test_mistakes(self, run, model_file, program_file, tmp_path, monkeypatch, arguments, message):
        work = tmp_path / "work"
        work.mkdir()
        monkeypatch.chdir(work)
        places = {"model": model_file, "program": program_file, "tmp": tmp_path}
        result = run("compile", *[a.format(**places) for a in arguments], code=2)
        assert message in result.stderr
        assert list(work.iterdir()) == []


class TestRun:
    KEYS = {
        "model", "config", "backend", "outputs", "macs", "npu_macs", "npu_mac_fraction", "cpu_ops", "npu_turns",
        "compile_seconds",
        "run_seconds", "gmacs_per_second", "notes", "tuned"
    }  # fmt: skip

    def test_json(self, run, program_file, tmp_path):
        found = json.loads(run("run", program_file, "--json", "-").stdout)
        assert set(found) == self.KEYS
        assert found["outputs"]["y"]["shape"] == [1, 4, 16] and len(found["outputs"]["y"]["sha256"]) == 64
        assert found["cpu_ops"] == ["Add add", "Neg neg", "DequantizeLinear dq"]
        run("run", program_file, "--json", tmp_path / "r.json", "--random", 0)
        again = json.loads((tmp_path / "r.json").read_text())
        assert again["outputs"] == found["outputs"]
        other = json.loads(run("run", program_file, "--json", "-", "--random", 1).stdout)
        assert other["outputs"] != found["outputs"]

    def test_table(self, run, program_file):
        text = run("run", program_file).stdout
        assert "hand on functional (base)" in text and "GMAC/s" in text

    @pytest.mark.parametrize("form", ["x={}", "{}", "positional"])
    @pytest.mark.parametrize("kind", ["npy", "npz", "npz-other"])
    def test_inputs_from_files(self, run, program_file, tmp_path, x, form, kind):
        path = tmp_path / f"in.{kind[:3]}"
        if kind == "npy":
            np.save(path, x)
        else:
            np.savez(path, **({"x": x} if kind == "npz" else {"anything": x}))
        arguments = [path] if form == "positional" else ["--input", form.format(path)]
        run("run", program_file, *arguments, "--output", tmp_path / "out")
        y = np.load(tmp_path / "out" / "y.npy")
        np.testing.assert_array_equal(y, -(np.clip(x + 2.0, -128, 127)) * np.float32(0.5))
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["y.npy"]

    @pytest.mark.parametrize("mode", ["--check", "--check=all", "--check=outputs"])
    def test_check(self, run, model_file, mode, kernels):
        found = json.loads(run("run", mode, model_file, "--json", "-").stdout)
        check = found["check"]
        assert set(found) == self.KEYS | {"check"}
        assert check["reference"].startswith("onnxruntime") and check["mismatches"] == 0 and check["equal"]
        assert {"tensors", "elements", "mismatches", "max_abs_difference", "rows"} <= set(check)
        assert check["tensors"] == (3 if mode == "--check=all" else 1)
        good = kernels["f2"]

        def damaged(b, c):
            good(b, c)
            c[7] ^= 1

        kernels["f2"] = damaged
        assert json.loads(run("run", mode, model_file, "--json", "-", code=1).stdout)["check"]["mismatches"] >= 1
        assert "tensors that differ" in run("run", model_file, mode, code=1).stdout

    def test_check_of_a_program_needs_its_model(self, run, program_file, model_file):
        assert "--reference" in run("run", program_file, "--check", code=2).stderr
        run("run", program_file, "--check", "--reference", model_file)

    @pytest.mark.parametrize(
        "arguments, message",
        [
            (["none.twp"], "no such file"),
            (["{program}", "--config", "small"], "compiled for configuration 'base'"),
            (["{program}", "--shape", "x=1"], "compiled already"),
            (["{model}", "--tolerance", "1e-4"], "is for --check"),
            (["{model}", "--check", "--tolerance", "much"], "or abs=, rel= and ulp="),
            (["{program}", "--backend", "nope"], "available: functional"),
            (["{program}", "--input", "none.npy"], "cannot read input file none.npy: No such file"),
            (["{program}", "--input", "z=none.npy"], "unknown input 'z'; inputs: x"),
            (["{program}", "--input", "x=a.txt"], "accepted: .npy, .npz, .png"),
            (["{program}", "--input", "{model}"], "unknown kind '.onnx'"),
            (["{program}", "--input", "bad.npy"], "no valid .npy file"),
            (["{program}", "--input", "bad.npz"], "no valid .npz file"),
            (["{program}", "--input", "empty.npz"], "holds no arrays"),
            (["{program}", "--input", "wrong.npy"], "must be int8, not float64"),
            (["{program}", "--input", "x=bad.png"], "no valid image"),
            (["{program}", "--input", "ok.npy", "--input", "x=ok.npy"], "given twice"),
            (["{program}", "--output", "{model}"], "is a file"),
            (["{program}", "--json", "/no/where.json"], "no such directory"),
            (["{program}", "--check=some"], "Invalid value for '--check'"),
            (["{program}", "--random", "-1"], "--random"),
            (["damaged.twp"], "damaged"),
        ],
    )
    def test_mistakes(self, run, model_file, program_file, tmp_path, monkeypatch, arguments, message, x):
        monkeypatch.chdir(tmp_path)
        for name in ("bad.npy", "bad.npz", "bad.png"):
            (tmp_path / name).write_bytes(b"PK nonsense")
        np.savez(tmp_path / "empty.npz")
        np.save(tmp_path / "wrong.npy", np.zeros((1, 4, 16)))
        np.save(tmp_path / "ok.npy", x)
        (tmp_path / "damaged.twp").write_bytes(program_file.read_bytes()[:-3] + b"xyz")
        places = {"model": model_file, "program": program_file}
        assert message in run("run", *[a.format(**places) for a in arguments], code=2).stderr


def test_info(run, program_file, model_file):
    text = run("info", program_file).stdout
    assert "copy x" in text and "4 rows" in text and "75.00% on the NPU" in text and "1 Add, 1 Neg" in text
    found = json.loads(run("info", model_file, "--json", "-").stdout)
    assert [layer["where"] for layer in found["layers"]] == ["npu", "cpu", "npu"]
    assert found["notes"] == ["made by hand"] and found["instructions"] == 12


def test_disasm_and_asm(run, hand, program_file, tmp_path):
    text = run("disasm", program_file).stdout
    assert "# layer copy b (Copy)" in text and "# step 2: instructions 4..7" in text
    assert to_bytes(assemble(text)) == hand.make_program().instructions
    source, image = tmp_path / "a.s", tmp_path / "a.bin"
    run("disasm", program_file, "-o", source)
    assert source.read_text() == text
    run("asm", source, "-o", image)
    assert image.read_bytes() == hand.make_program().instructions
    assert "LOAD_DIM" in run("disasm", image).stdout


@pytest.mark.parametrize(
    "text, message", [("NOPE", "unknown instruction"), ("GEMM_LOOP level=7 count=1", "level must be")]
)
def test_asm_mistakes(run, tmp_path, text, message):
    (tmp_path / "a.s").write_text(text)
    assert message in run("asm", tmp_path / "a.s", "-o", tmp_path / "a.bin", code=2).stderr
    assert not (tmp_path / "a.bin").exists()
    assert "cannot read" in run("asm", tmp_path / "b.s", "-o", tmp_path / "a.bin", code=2).stderr


def test_disasm_of_something_else(run, model_file):
    assert "not a compiled program" in run("disasm", model_file, code=2).stderr


def test_config(run, tmp_path):
    assert "tiny" in run("config", "list").stdout
    assert set(json.loads(run("config", "list", "--json", "-").stdout)) == set(PRESETS)
    for form in ("json", "toml"):
        path = tmp_path / f"c.{form}"
        path.write_text(run("config", "show", "small", f"--{form}").stdout)
        assert tw.NpuConfig.load(path).fingerprint == tw.NpuConfig.load("small").fingerprint
    assert "block_in" in run("config", "show", "base").stdout
    assert "presets" in run("config", "show", "nope", code=2).stderr


def test_zoo(run, tmp_path):
    assert "[batch, 3, size, size]" in run("zoo", "list").stdout
    assert "parameters" in json.loads(run("zoo", "list", "--json", "-").stdout)["resnet8"]
    out = tmp_path / "m.onnx"
    run("zoo", "build", "autoencoder", "-o", out, "--form", "float")
    assert out.stat().st_size > 1000
    assert "there are" in run("zoo", "build", "nope", "-o", out, code=2).stderr
    assert "no parameter" in run("zoo", "build", "resnet8", "-o", out, "--set", "nope=1", code=2).stderr
    assert "PARAMETER=VALUE" in run("zoo", "build", "resnet8", "-o", out, "--set", "nope", code=2).stderr


def test_backends(run):
    assert "functional" in run("backends").stdout
    assert json.loads(run("backends", "--json", "-").stdout)["functional"]["available"]


def test_bench(run, model_file):
    found = json.loads(run("bench", "--model", model_file, "--runs", 2, "--json", "-").stdout)
    assert found["equal"] and found["runs"] == 2 and found["ratio"] > 0
    assert {"compile_seconds", "gmacs_per_second", "reference_seconds"} <= set(found)
    assert "onnxruntime" in run("bench", "--model", model_file, "--runs", 1).stdout


class TestFaults:
    @pytest.fixture
    def faulty(self):
        group = Cli("tilewright")
        error = {"kind": RuntimeError("two\nlines")}

        @group.command()
        def go():
            raise error["kind"]

        def invoke(kind, **options):
            error["kind"] = kind
            return CliRunner().invoke(group, ["go"], **options)

        return invoke

    def test_internal(self, faulty):
        result = faulty(RuntimeError("two\nlines"))
        assert result.exit_code == 3
        assert result.stderr.startswith("tilewright: error: internal fault: RuntimeError at test_commands.py:")
        assert "two lines" in result.stderr and "TILEWRIGHT_DEBUG=1" in result.stderr
        assert result.stderr.count("\n") == 1

    def test_debug(self, faulty):
        result = faulty(RuntimeError("x"), env={"TILEWRIGHT_DEBUG": "1"})
        assert result.exit_code == 3 and "Traceback" in result.stderr

    @pytest.mark.parametrize(
        "kind, code",
        [
            (KeyboardInterrupt(), 130),
            (tw.TilewrightError("no"), 2),
            (FileNotFoundError(2, "No such file", "a.txt"), 2),
            (click.UsageError("bad"), 2),
            (MemoryError(), 3),
        ],
    )
    def test_codes(self, faulty, kind, code):
        result = faulty(kind)
        assert result.exit_code == code and "Traceback" not in result.stderr


def test_no_partial_file_when_writing_fails(run, model_file, tmp_path, monkeypatch):
    monkeypatch.setattr(tw.Program, "to_bytes", lambda self: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert "No space left" in run("compile", model_file, "-o", tmp_path / "o.twp", code=2).stderr
    assert not (tmp_path / "o.twp").exists() and "hand.onnx" in {p.name for p in tmp_path.iterdir()}


class TestRtl:
    @pytest.mark.slow
    def test_writes_verilog_and_readme(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr("tilewright.hw.verilog.convert", lambda config, top: verilog_of(config))
        out = tmp_path / "rtl"
        found = json.loads(run("rtl", "--config", "tiny", "-o", out, "--json", "-").stdout)
        assert sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()) == [
            "Makefile",
            "README.md",
            "bench/bench.cpp",
            "bench/bench.txt",
            "bench/bench_cocotb.py",
            "bench/tilewright_memory.h",
            "driver/tilewright_npu.c",
            "driver/tilewright_npu.h",
            "driver/tilewright_npu_registers.h",
            "lint.vlt",
            "npu.core",
            "npu.f",
            "npu.rdl",
            "npu.sdc",
            "npu.svd",
            "npu.xdc",
            "npu_axi.v",
            "npu_tiny.v",
        ]
        assert re.match(r"# \w+ on tiny, random inputs\n", (out / "bench" / "bench.txt").read_text())
        text = (out / "npu_tiny.v").read_text()
        assert found["top"] == "npu" and "module npu(" in text and found["lines"] == text.count("\n")
        assert {"name": "axi_wdata", "direction": "output", "bits": 32} in found["ports"]
        assert {"name": "LUT", "rows": 4, "row_bytes": 256, "bytes": 1024} in found["memories"]
        assert "top module npu" in run("rtl", "--config", "tiny", "-o", out).stdout
        assert (out / "npu_tiny.v").read_text() == text

    def test_mistakes_leave_nothing(self, run, model_file, tmp_path, monkeypatch):
        out = tmp_path / "rtl"
        assert "unknown configuration 'huge'" in run("rtl", "--config", "huge", "-o", out, code=2).stderr
        assert "no such directory" in run("rtl", "--config", "tiny", "-o", out / "deeper", code=2).stderr
        assert "Missing option '-o'" in run("rtl", "--config", "tiny", code=2).stderr
        assert "must be an identifier" in run("rtl", "--config", "tiny", "--top", "9x", "-o", out, code=2).stderr
        assert "no such file" in run("rtl", "--config", "tiny", "--bench", "none.onnx", "-o", out, code=2).stderr
        program = tmp_path / "hand.twp"
        run("compile", model_file, "--config", "small", "-o", program)
        assert (
            "is compiled for small, not for tiny"
            in run("rtl", "--config", "tiny", "--bench", program, "-o", out, code=2).stderr
        )
        assert not out.exists()
        out.write_text("a file")
        assert "not a folder" in run("rtl", "--config", "tiny", "-o", out, code=2).stderr
        monkeypatch.setattr("tilewright.hw.verilog.files", lambda *config, **bench: {"a.v": "a", "b.v": "b"})
        folder = tmp_path / "half"
        (folder / "b.v").mkdir(parents=True)
        assert "is a directory" in run("rtl", "--config", "tiny", "-o", folder, code=2).stderr
        assert [p.name for p in folder.iterdir()] == ["b.v"]


def test_long_work_in_a_log(capsys):
    """A line for each stage with `log`; else only for what takes long."""
    with terminal.Working("synthesis", log=True) as logged, terminal.Working("synthesis") as silent:
        for text in ("synthesis", "routing: pass 1", "routing: pass 2", "bitstream"):
            logged.update(text)
            silent.update(text)
    assert capsys.readouterr().err == "  0:00 routing: pass 1\n  0:00 bitstream\n"


def test_work_that_reports_nothing_shows(capsys):
    """Tools and native code report nothing for minutes; a thread of its own writes a line."""
    with terminal.Working("compiling", every_seconds=0.01):
        wait_until(lambda: "  0:00 compiling\n" in capsys.readouterr().err)


@pytest.mark.medium
def test_native_code_that_is_built_is_named(monkeypatch, capsys, tmp_path):
    """A first compile waits for compilers of C++; the others need not."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    source = tmp_path / "answer.cpp"
    source.write_text("int answer;\n")
    for shown in ("  0:00 building the answer, once\n", "  0:00 compiling\n"):
        with terminal.Working("compiling", every_seconds=0.01):
            shared_library(Library(source, ["-O0"], [source], "test", "answer", "the answer"))
            capsys.readouterr()
            wait_until(lambda shown=shown: capsys.readouterr().err.startswith(shown))


def leaves():
    for path in commands():
        context = click.Context(cli)
        command = cli
        for name in path:
            command = command.get_command(context, name)
        if not isinstance(command, click.Group):
            yield path, command


#: What prints no figures: text for other programs, sessions that last, changes to keys.
WITHOUT_JSON = {
    ("serve",), ("completion",), ("fpga", "simulate"), ("trust", "add"), ("trust", "remove"), ("trust", "show"),
}  # fmt: skip


def test_every_command_with_figures_has_json():
    for path, command in leaves():
        options = [p for p in command.params if "--json" in p.opts]
        assert bool(options) != (path in WITHOUT_JSON), path
        assert all(option.metavar == "FILE|-" and not option.is_flag for option in options), path


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_no_summary_is_cut(run, path):
    listed = run(*path, "--help", terminal_width=80).stdout.partition("Commands:" if path else "Networks:")[2]
    assert "..." not in listed.partition("Examples:")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config", "show", "bsae"], "'bsae' (did you mean base?)"),
        (["zoo", "build", "resnet81", "-o", "x"], "'resnet81' in the zoo (did you mean resnet8"),
        (["zoo", "bild"], "No such command 'bild' (did you mean build?)"),
        (["cmopile"], "No such command 'cmopile' (did you mean compile?)"),
        (["config", "list", "--jsno", "-"], "Did you mean '--json'?"),
        (["fpga", "build", "--board", "ulx3s_58f", "-o", "x"], "'ulx3s_58f' (did you mean ulx3s_85f"),
        (["run", "none.onnx", "--device", "functoinal"], "'functoinal' (did you mean functional?)"),
    ],
)
def test_did_you_mean(run, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = run(*arguments, code=2).stderr
    assert message in said
    assert "{" not in run(*arguments, code=2).stdout
    if "--jsno" not in arguments:  # the same as JSON, usage errors too
        found = json.loads(run(*arguments, "--json", "-", code=2).stdout)
        assert message in found["error"] and found["exit_code"] == 2


def test_a_pass_that_was_meant(run, tmp_path, monkeypatch, model_file):
    from tilewright.compiler.options import CompileOptions

    with pytest.raises(tw.UsageError, match=r"'eliminat' \(did you mean eliminate"):
        CompileOptions(print_after=("eliminat",))


@pytest.mark.parametrize(("arguments", "message"), [
    (["--device", "board"], "device 'board' says no address: give board://ADDRESS"),
    (["--device", "functional://x"], "device 'functional' takes no address"),
])  # fmt: skip
def test_devices_say_what_is_missing(run, model_file, monkeypatch, arguments, message):
    monkeypatch.delenv("TILEWRIGHT_BOARD", raising=False)
    said = run("run", model_file, *arguments, code=2).stderr
    assert message in said and ("TILEWRIGHT_BOARD" in said) == ("board" in arguments)


def test_config_show_forms(run, tmp_path):
    """JSON as everywhere, the flag of before, and a copy that was edited is no preset."""
    whole = PRESETS["base"].to_dict()
    assert json.loads(run("config", "show", "base", "--json").stdout) == whole
    run("config", "show", "base", "--json", tmp_path / "same.json")
    assert tw.NpuConfig.load(tmp_path / "same.json") == PRESETS["base"]
    text = run("config", "show", "base", "--toml").stdout
    (tmp_path / "mine.toml").write_text(text.replace("act_rows = ", "act_rows = 1"))
    (tmp_path / "base.toml").write_text('base = "tiny"\nsemaphores = 20\n')
    assert tw.NpuConfig.load(tmp_path / "mine.toml").name == "mine"
    assert tw.NpuConfig.load(tmp_path / "base.toml").name == "custom"
    assert "not both" in run("config", "show", "base", "--json", "-", "--toml", code=2).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(run, shell):
    assert "_TILEWRIGHT_COMPLETE" in run("completion", shell).stdout


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tilewright exp", ["explain", "export-c"]),
        ("tilewright fpga bu", ["build"]),
        ("tilewright explain --on", ["--onnx"]),
        ("tilewright compile --config ba", ["base"]),
        ("tilewright compile --config my.to", ["my.to"]),
        ("tilewright zoo build resnet1", ["resnet18"]),
    ],
)
def test_what_bash_completes(line, found):
    """The last word of a line, as bash asks for it behind `eval "$(tilewright completion bash)"`."""
    words = line.split()
    asked = {"_TILEWRIGHT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "tilewright"], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert [text.partition(",")[2] for text in done.stdout.split()] == found, done.stderr


@pytest.mark.medium
def test_verilator_command(run, tmp_path):
    """The written command runs, also where it is the first of its name on the PATH."""
    if shutil.which("perl") is None:
        needs.skip(needs.RTL_TOOLS, "no perl")
    found = json.loads(run("verilator", "-o", tmp_path / "bin", "--json", "-").stdout)
    (tmp_path / "t.v").write_text("module t(input a, output b); assign b = ~a; endmodule\n")
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    for arguments in (["--version"], ["--lint-only", "-Wall", "t.v"]):
        done = subprocess.run(["verilator", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True,
                              timeout=HANG)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert found["command"] == str(tmp_path / "bin" / "verilator")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_of_a_command_what_it_says_of_itself(name: str) -> None:
    """The group's help has the sentences in a table, so that it need not import the commands."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.name == name
    assert " ".join((command.help or "").split("\n\n")[0].split()) == COMMANDS[name].summary


def test_the_help_imports_no_command() -> None:
    code = "import sys; from tilewright.cli import cli; cli.main(['--help'], standalone_mode=False); " \
        "print([m for m in sys.modules if m.partition('.')[0] in ('numpy', 'onnx', 'compiler')])"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--clock", "100"],
            "--clock says how fast the NPU is beside a host or a board's memory: give --host or --board",
        ),
        (["--entry", "a:x=1,1", "--tuning", "log.json"], "--tuning is for programs without entry points"),
    ],
)
def test_options_that_would_have_no_effect(run, tmp_path, options, message):
    (tmp_path / "model.onnx").write_bytes(b"no program")
    result = run("compile", tmp_path / "model.onnx", "-o", tmp_path / "out.twp", *options, code=2)
    assert message in result.stderr
