"""The execution provider in onnxruntime: the same bytes as its CPU provider, reasons for what is left to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.common import onnx_models
from tests.common.custom_ops import pyramid_model
from tests.common.onnx_models import model_of
from tests.common.paths import ROOT
from tests.common.quantized_chain import input_of, quantized_chain
from tests.common.side_by_side import side_by_side
from tilewright.errors import UsageError
from tilewright.kernel.files import load_kernels
from tilewright.onnxruntime.library import compiler_process, reports
from tilewright.onnxruntime.session import PROVIDER, onnxruntime_report, onnxruntime_session, register


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    onnxruntime.set_default_logger_severity(4)
    yield
    onnxruntime.set_default_logger_severity(2)


def quiet(**entries: str) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for name, value in entries.items():
        options.add_session_config_entry("ep." + name, value)
    return options


#: The first release with plugins hands no values from a plugin to nodes of its own.
SHARES = onnxruntime.__version__ != "1.23.0"


def last() -> Any:
    """The last graph's report."""
    return reports()[-1]


def same(model: onnx.ModelProto, feeds: dict[str, Any], **options: Any) -> bool:
    """Whether a session with the provider gives the CPU provider's bytes."""
    running = onnxruntime_session(model, session_options=quiet(), **options)
    want = onnx_models.run(model, feeds)
    got = dict(zip(want, running.run(list(want), feeds)))
    return all(got[n].dtype == want[n].dtype and got[n].tobytes() == want[n].tobytes() for n in want)


def test_whole_model_is_one_program() -> None:
    model = quantized_chain()
    assert same(model, input_of())
    found = last()
    assert [p["nodes"] for p in found["programs"]] == [found["nodes"]] and not found["left"]
    assert found["programs"][0]["macs"] == found["programs"][0]["npu_macs"] == 2 * 8 * 8 * 9 * 64
    assert onnxruntime_report().startswith(f"{found['nodes']} of {found['nodes']} nodes on functional (base): 100.0%")


def test_kernels_take_the_place_of_layers(tmp_path: Path) -> None:
    """A kernel that is wrong is seen to run; the gallery's gives the same bytes."""
    kernels = ROOT / "examples" / "kernels" / "layers_of_networks.py"
    model, feeds = quantized_chain(3, 16, 12), input_of(16, 12)
    assert same(model, feeds, kernels=kernels)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(kernels.read_text().replace("**layer.post", "**(layer.post | {'zero_point': 99})"))
    assert not same(model, feeds, kernels=wrong)
    with pytest.raises(UsageError, match="no such file of kernels"):
        onnxruntime_session(model, session_options=quiet(), kernels=tmp_path / "none.py")


def test_kernels_run_nodes_that_onnxruntime_does_not_know(tmp_path: Path) -> None:
    file = ROOT / "examples" / "kernels" / "custom_op.py"
    model, x = pyramid_model(dilations=[1, 2]), np.random.default_rng(1).normal(0, 2, (1, 3, 12, 12))
    feeds = {"x": x.astype(np.float32)}
    running = onnxruntime_session(model, session_options=quiet(), config="tiny", kernels=file)
    program = tilewright.compile_program(model, "tiny", kernels=load_kernels(file))
    (got,) = running.run(None, feeds)
    assert got.tobytes() == tilewright.Device("functional").run(program, feeds)["c.q.f"].tobytes()
    assert last()["kernels"] == ["levels"]
    large = tmp_path / "large.py"
    large.write_text(file.read_text().replace("rows=4", "rows=400"))
    with pytest.raises(UsageError, match=r"no kernel runs 'levels': kernel pyramid for .*large.py:\d+: 720 rows"):
        onnxruntime_session(pyramid_model(dilations=[1, 2]), session_options=quiet(), config="nano", kernels=large)


def test_what_is_not_taken_has_a_reason() -> None:
    """An operator of which nobody knows the shape in the middle: programs before it; onnxruntime runs it."""
    model = quantized_chain(1, tail="NonZero")
    assert same(model, input_of())
    found = last()
    if not SHARES:
        assert not found["programs"] and "1.23.1 and later do" in found["left"][0]["reason"]
        return
    assert [left["op"] for left in found["left"]] == ["NonZero"]
    assert "shape of 'y' is not known" in found["left"][0]["reason"]
    assert found["programs"][0]["npu_macs"]
    assert "left to onnxruntime: NonZero 'tail': the shape" in onnxruntime_report()


def test_floats_are_left_unless_all_is_wanted() -> None:
    w = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], {"x": (3, 6)}, {"y": (3, 5)}, {"w": w})
    feeds = {"x": np.ones((3, 6), np.float32)}
    assert same(model, feeds)
    assert not last()["programs"] and "computes in floats" in last()["left"][0]["reason"]
    running = onnxruntime_session(model, session_options=quiet(), claim="all")
    assert np.allclose(running.run(None, feeds)[0], feeds["x"] @ w, rtol=1e-5)
    assert last()["programs"][0]["npu_macs"] == 0 and not last()["left"]


def test_open_shapes_stay_and_can_be_fixed() -> None:
    model = quantized_chain(batch="N")
    assert same(model, input_of(batch=3))
    assert not last()["programs"]
    for left in last()["left"]:
        assert ("constants alone" if left["node"] in ("v0", "v1") else "is not known before") in left["reason"]
    options = quiet()
    options.add_free_dimension_override_by_name("N", 2)
    running = onnxruntime_session(model, session_options=options)
    assert last()["programs"][0]["npu_macs"]
    feeds = input_of(batch=2)
    assert np.array_equal(running.run(None, feeds)[0], onnx_models.run(model, feeds)["y"])


def test_bodies_stay() -> None:
    """A branch with a quantised network inside, and one behind it."""
    body = quantized_chain(1)
    branch = onnx.GraphProto(name="then")
    branch.CopyFrom(body.graph)
    del branch.input[:]
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y2"])], "else", [], [onnx_models.value_info("y2", None)]
    )
    model = model_of(
        [helper.make_node("If", ["c"], ["z"], "choice", then_branch=branch, else_branch=other)],
        {"x": (1, 8, 8, 8), "c": (TensorProto.BOOL, ())}, {"z": (TensorProto.FLOAT, None)},
    )  # fmt: skip
    for choice in (True, False):
        assert same(model, {**input_of(), "c": np.array(choice)})
    assert "bodies" in last()["left"][0]["reason"]


def test_other_devices_and_errors() -> None:
    assert same(quantized_chain(), input_of(), device="cycle", config="tiny")
    assert last()["device"] == "cycle" and last()["config"] == "tiny"
    for options, reason in (
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"wibble": 1}, "unknown option 'wibble'"),
        ({"claim": "some"}, "option claim is 'some'"),
        ({"threads": "two"}, "option threads is 'two'"),
        ({"config": "enormous"}, "enormous"),
        ({"device": "board://socket:/nowhere"}, "/nowhere"),
    ):
        with pytest.raises(UsageError, match=reason) as caught:
            onnxruntime_session(quantized_chain(), session_options=quiet(), **options)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


def test_threads_share_a_session() -> None:
    model = quantized_chain(tail="Abs")
    running = onnxruntime_session(model, session_options=quiet(), runs=2)
    want = [onnx_models.run(model, input_of(seed=seed))["y"] for seed in range(4)]
    wrong: list[int] = []

    def work(seed: int) -> None:
        for _ in range(8):
            if not np.array_equal(running.run(None, input_of(seed=seed))[0], want[seed]):
                wrong.append(seed)

    side_by_side(work)
    assert not wrong


@pytest.mark.medium
@pytest.mark.parametrize("embed", ["0", "1"])
def test_contexts(tmp_path: Path, embed: str) -> None:
    path = tmp_path / "model_ctx.onnx"
    onnxruntime_session(
        quantized_chain(),
        session_options=quiet(context_enable="1", context_embed_mode=embed, context_file_path=str(path)),
    )
    assert bool(list(tmp_path.glob("*.twctx"))) == (embed == "0")
    before = len(reports())
    running = onnxruntime_session(path, session_options=quiet())
    assert len(reports()) == before  # nothing was claimed, nothing compiled
    assert np.array_equal(running.run(None, input_of())[0], onnx_models.run(quantized_chain(), input_of())["y"])

    model = onnx.load(path)
    attribute = next(a for a in model.graph.node[0].attribute if a.name == "ep_cache_context")
    damaged = bytearray(attribute.s) if embed == "1" else bytearray((tmp_path / attribute.s.decode()).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    if embed == "1":
        attribute.s = bytes(damaged)
        path.write_bytes(model.SerializeToString())
    else:
        (tmp_path / attribute.s.decode()).write_bytes(damaged)
    with pytest.raises(UsageError, match=r"the context: damaged: checksum of [^\n]*$"):
        onnxruntime_session(path, session_options=quiet())
    if embed == "0":
        for name, reason in ((b"../secret", "not the name of a file beside"), (b"missing.twctx", "No such file")):
            attribute.s = name
            path.write_bytes(model.SerializeToString())
            with pytest.raises(UsageError, match=reason):
                onnxruntime_session(path, session_options=quiet())


@pytest.mark.medium
def test_contexts_of_strangers(tmp_path: Path) -> None:
    """Native code that nobody signed is refused, as in files of programs."""
    path = tmp_path / "model_ctx.onnx"
    onnxruntime_session(
        quantized_chain(tail="Sinh"), claim="all",
        session_options=quiet(context_enable="1", context_embed_mode="1", context_file_path=str(path)),
    )  # fmt: skip
    script = (
        "import sys; from tilewright.onnxruntime.session import onnxruntime_session\n"
        "try: onnxruntime_session(sys.argv[1])\n"
        "except Exception as error: print(error)"
    )
    surroundings = {**os.environ, "TILEWRIGHT_KEYS": str(tmp_path / "keys"), "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", script, str(path)], env=surroundings, capture_output=True, text=True)
    assert "carries native code and is not signed by a key that you trust" in found.stdout, found.stderr


@pytest.mark.medium
def test_end_of_the_compiler_process_is_an_error() -> None:
    running = onnxruntime_session(quantized_chain(), session_options=quiet())
    running.run(None, input_of())
    os.kill(compiler_process(), signal.SIGKILL)
    with pytest.raises(Exception, match=r"compiler process \(\d+\) has ended; make the session again"):
        running.run(None, input_of())
    assert same(quantized_chain(), input_of())


@pytest.mark.medium
def test_devices_of_a_server() -> None:
    """A session takes the server's configuration; when the server is gone, a run is an error, and no more."""
    command = [sys.executable, "-m", "tilewright", "serve", "--config", "tiny", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        running = onnxruntime_session(quantized_chain(), address, session_options=quiet())
        assert last()["device"] == address and last()["config"] == "tiny"
        want = onnx_models.run(quantized_chain(), input_of())["y"]
        assert np.array_equal(running.run(None, input_of())[0], want)
        server.kill()
    running.disable_fallback()
    with pytest.raises(Exception, match=r"Tilewright: [^\n]*127\.0\.0\.1"):
        running.run(None, input_of())


def test_sessions_of_a_fork() -> None:
    """A child of a fork has no line of its own: an error there, and the parent goes on."""
    running = onnxruntime_session(quantized_chain(), session_options=quiet())
    script = os.fork()
    if script == 0:
        try:
            running.run(None, input_of())
        except Exception as error:
            os._exit(7 if "does not outlive a fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(script, 0)[1]) == 7
    running.run(None, input_of())


def test_onnxruntime_knows_what_runs_where(tmp_path: Path) -> None:
    """onnxruntime's own interface shows the device and the nodes of the graph it runs."""
    assert [device.ep_name for device in register()] == [PROVIDER]
    optimised = tmp_path / "optimised.onnx"
    options = quiet()
    options.enable_profiling = True
    options.profile_file_prefix = str(optimised.with_suffix(""))
    running = onnxruntime_session(quantized_chain(tail="NonZero" if SHARES else ""), session_options=options)
    assert running.get_providers()[0] == PROVIDER
    running.run(None, input_of())
    spans = json.loads(Path(running.end_profiling()).read_text())
    assert any(PROVIDER in span["name"] for span in spans)
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 25):
        return
    (whole,) = (s for s in spans if s["name"].startswith(PROVIDER) and s["name"].endswith("kernel_time"))
    (npu,) = (s for s in spans if s["name"].startswith("NPU: "))
    assert whole["ts"] <= npu["ts"] and npu["ts"] + npu["dur"] <= whole["ts"] + whole["dur"] + 1
