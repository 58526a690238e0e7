"""The compiler process: answers the provider, one thread per line, and ends when the program that started it does."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence

from onnx import ModelProto

from tilewright.common import store
from tilewright.common.errors import TilewrightError, UsageError
from tilewright.common.version import tilewright_version
from tilewright.isa.program import Program
from tilewright.onnxruntime import contexts, wire
from tilewright.onnxruntime.options import Options
from tilewright.onnxruntime.parts import digest
from tilewright.onnxruntime.programs import Devices, Handles, Loaded
from tilewright.onnxruntime.wire import Request

#: Programs that were claimed and are not compiled yet, over all sessions. A second compile is right, only slow.
_KEPT = 16


class Service:
    """Serves the provider's requests. Any number of threads may call it."""

    def __init__(self) -> None:
        self._devices = Devices()
        self._handles = Handles()
        self._claimed: OrderedDict[tuple[bytes, Options], Program] = OrderedDict()
        self._compiling = threading.Lock()
        self._answers: dict[int, Callable[[Sequence[memoryview]], Sequence[wire.Blob]]] = {
            Request.HELLO: lambda blobs: [tilewright_version().encode()],
            Request.OPEN: self._open,
            Request.CLAIM: self._claim,
            Request.COMPILE: self._compile,
            Request.LOAD: self._load,
            Request.RUN: self._run,
            Request.PROFILE: self._profile,
            Request.DROP: self._drop,
        }

    def answer(self, kind: int, blobs: Sequence[memoryview]) -> tuple[int, Sequence[wire.Blob]]:
        """Kind and blobs of the answer; whatever goes wrong is an answer too."""
        try:
            return wire.OK, self._answers[kind](blobs)
        except TilewrightError as error:
            reason = str(error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if os.environ.get("TILEWRIGHT_DEBUG") == "1":
                traceback.print_exc()
        return wire.ERROR, [" ".join(reason.split()).encode()]

    def _open(self, blobs: Sequence[memoryview]) -> Sequence[wire.Blob]:
        """Checks a session's options: an error now is an error of the session, and not a silent way round the NPU."""
        options = _options(blobs[0])
        self._devices.config(options)
        if options.kernels:
            from tilewright.onnxruntime.claims import kernels_of

            kernels_of(options)
        return []

    def _claim(self, blobs: Sequence[memoryview]) -> Sequence[wire.Blob]:
        from tilewright.onnxruntime.claims import claim  # the compiler: 0.6 s that contexts need not wait for

        options, model = _options(blobs[0]), _model(blobs[1])
        left = dict(_place_and_reason(line) for line in str(blobs[2], "utf-8", "replace").splitlines())
        config = self._devices.config(options)
        with self._compiling:
            found = claim(model, left, options, config, shares=bool(blobs[3]))
        for part, program in zip(found.parts(), found.programs):
            self._claimed[digest(part), options] = program
        while len(self._claimed) > max(_KEPT, len(found.groups)):
            self._claimed.popitem(last=False)
        groups = [b"".join(place.to_bytes(4, "little") for place in group) for group in found.groups]
        report = json.dumps(found.describe(options, config))
        return [report.encode(), "\n".join(found.log()).encode(), *groups]

    def _compile(self, blobs: Sequence[memoryview]) -> Sequence[wire.Blob]:
        options, model = _options(blobs[0]), _model(blobs[1])
        program = self._claimed.pop((digest(model), options), None)
        if program is None:
            from tilewright.onnxruntime.claims import compile_part

            with self._compiling:
                program = compile_part(model, options, self._devices.config(options))
        inputs = [value.name for value in model.graph.input]
        outputs = [value.name for value in model.graph.output]
        handle = self._handles.add(Loaded(program, inputs, outputs, options, self._devices))
        return [handle, contexts.to_bytes(program, inputs, outputs) if blobs[2] else b""]

    def _load(self, blobs: Sequence[memoryview]) -> Sequence[wire.Blob]:
        content = _read(str(blobs[2], "utf-8", "surrogateescape")) if blobs[2] else blobs[1]
        program, inputs, outputs = contexts.from_bytes(content)
        return [self._handles.add(Loaded(program, inputs, outputs, _options(blobs[0]), self._devices))]

    def _run(self, blobs: Sequence[memoryview]) -> Sequence[wire.Blob]:
        values = [wire.tensor(head, data) for head, data in zip(blobs[1::2], blobs[2::2])]
        found, _ = self._handles.get(blobs[0]).run(values)
        return [blob for value in found for blob in wire.blobs_of(value)]

    def _profile(self, blobs: Sequence[memoryview]) -> Sequence[wire.Blob]:
        """Runs once, and returns lines of microseconds before a step, of microseconds it took, and what it does."""
        values = [wire.tensor(head, data) for head, data in zip(blobs[1::2], blobs[2::2])]
        loaded = self._handles.get(blobs[0])
        found, seconds = loaded.run(values)
        ends = [0.0, *itertools.accumulate(seconds)]
        lines = [f"{b * 1e6:.0f}\t{s * 1e6:.0f}\t{name}" for b, s, name in zip(ends, seconds, loaded.steps())]
        return [*(blob for value in found for blob in wire.blobs_of(value)), "\n".join(lines).encode()]

    def _drop(self, blobs: Sequence[memoryview]) -> Sequence[wire.Blob]:
        self._handles.drop(blobs[0])
        return []


def _options(blob: memoryview) -> Options:
    return Options.parse(str(blob, "utf-8", "replace"))


def _model(blob: memoryview) -> ModelProto:
    model = ModelProto()
    model.ParseFromString(bytes(blob))
    return model


def _read(path: str) -> bytes:
    """The context in a file. Raises `UsageError`."""
    try:
        return store.read(path)
    except OSError as error:
        raise UsageError(f"cannot read the context {path}: {error.strerror}") from None


def _place_and_reason(line: str) -> tuple[int, str]:
    place, _, reason = line.partition("\t")
    return int(place), reason


def serve(service: Service, line: socket.socket) -> None:
    """Answers on a line until its other end is gone."""
    with line:
        while True:
            try:
                message = wire.receive(line)
                if message is None:
                    return
                kind, blobs = service.answer(*message)
                wire.send(line, kind, blobs)
            except OSError:
                return


def main() -> None:
    """Answers on the lines that come over the first one, until that is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that started this one
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # and so is its standard output
    service = Service()
    with socket.socket(fileno=wire.LINE) as first:
        while True:
            data, ends, _, _ = socket.recv_fds(first, 1, 1)
            if not data:
                break
            for end in ends:
                line = socket.socket(fileno=end)
                threading.Thread(target=serve, args=(service, line), daemon=True).start()
    sys.stderr.flush()
    os._exit(0)  # runs that are under way have nobody to answer to
