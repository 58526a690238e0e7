"""The additions: packages beside the core, which add names, commands, devices and services to it.

The core imports, compiles, runs, checks and explains models, sweeps machines and writes RTL and bitstreams. It imports
no addition, and a contract of import-linter holds it to that. An addition has its row here instead: what it adds, and
the module of each. A module is imported when what it adds is used for the first time, so that the command line starts
in 0.15 s and a package that an addition needs is missed by nobody else. The sources are in the folder
`tilewright/additions`, to which links such as `tilewright/quantize` lead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tilewright.common.errors import UsageError


@dataclass(frozen=True)
class LazyCommand:
    """A command that is imported when it is called.

    Attributes:
        place: "module:attribute" of the click command.
        summary: first sentence of its help, for the list of commands.
        after: the command that it follows in the list.
    """

    place: str
    summary: str
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Addition:
    """The names, commands, devices and services that a package adds to the core.

    Attributes:
        purpose: what it is for.
        names: public names of `tilewright`, by name the module that has it.
        commands: of the command line; "GROUP NAME" is one of a group.
        devices: "module:attribute" of a `Backend` each.
        services: "module" or "module:attribute" of what the core asks for by name.
    """

    purpose: str
    names: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, LazyCommand] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)


#: By the package of `tilewright`.
ADDITIONS: dict[str, Addition] = {
    "quantize": Addition(
        purpose="float ONNX and TFLite models to 8 bits",
        commands={
            "quantize": LazyCommand(
                "tilewright.quantize.command:command",
                "Quantise MODEL, a float ONNX or TFLite model, to 8 bits.",
                after="compile",
            ),
            "zoo widen": LazyCommand(
                "tilewright.quantize.widen_command:command",
                'Write MODEL, a TFLite file of int8 activations, with 16-bit activations ("16x8") and the same '
                "weights.",
            ),
        },
        services={
            "quantise decoder": "tilewright.quantize.decoders:quantise_decoder",
            "widen activations": "tilewright.quantize.tflite_sixteen:widened",
        },
    ),
    "quantization": Addition(purpose="the short form of the same, for scripts"),
    "onnxruntime": Addition(
        purpose="an execution provider for onnxruntime",
        names={
            "onnxruntime_library": "tilewright.onnxruntime.library",
            "onnxruntime_report": "tilewright.onnxruntime.session",
            "onnxruntime_session": "tilewright.onnxruntime.session",
        },
        services={"speed of sessions": "tilewright.onnxruntime.speed:measure"},
    ),
    "litert": Addition(purpose="a delegate for LiteRT", names={"litert_delegate": "tilewright.litert.library"}),
    "torch": Addition(
        purpose="PyTorch modules, and a backend of `torch.compile`", names={"from_torch": "tilewright.torch.pytorch"}
    ),
    "onnx_backend": Addition(purpose="ONNX's backend interface"),
    "standalone": Addition(
        purpose="boards that run a network without a host",
        commands={
            "fpga ask": LazyCommand(
                "tilewright.standalone.command:ask",
                "Send inputs to a board with the build in FOLDER, and show what goes over the line and comes back.",
            ),
            "fpga image": LazyCommand(
                "tilewright.standalone.command:image",
                "Replace the network in FOLDER, which a build with --standalone wrote; the bitstream stays as it is.",
            ),
            "fpga simulate": LazyCommand(
                "tilewright.standalone.command:simulate",
                "Give the board with the build in FOLDER a serial port here: the SoC, Verilated, behind a "
                "pseudo-terminal.",
            ),
        },
        services={"network without a host": "tilewright.standalone.command:network_options"},
    ),
    "generate": Addition(
        purpose="language models with a KV cache, token by token",
        commands={
            "generate": LazyCommand(
                "tilewright.generate.command:command",
                "Continue a prompt by MODEL, a language model (ONNX) or a program compiled from one.",
                after="run",
            )
        },
    ),
    "prove": Addition(
        purpose="proofs that a program computes its quantised graph, for all inputs",
        commands={
            "prove": LazyCommand(
                "tilewright.prove.command:command",
                "Prove that the program of MODEL, an ONNX or TFLite model, is right for all inputs.",
                after="run",
            )
        },
        services={"certificate of a program": "tilewright.prove.command:certify"},
    ),
    "energy": Addition(
        purpose="energy of runs, by a model calibrated on toggles of gates",
        services={"energy": "tilewright.energy", "energy tables": "tilewright.energy.tables"},
    ),
    "remote": Addition(
        purpose="devices of other machines",
        commands={
            "serve": LazyCommand("tilewright.remote.command:command", "Share a device over the network.", after="probe")
        },
        devices=("tilewright.remote.backend:BACKEND",),
    ),
}


def public_names() -> dict[str, str]:
    """Names that additions give `tilewright`, and the module of each."""
    return {name: module for addition in ADDITIONS.values() for name, module in addition.names.items()}


def commands_of(group: str = "") -> dict[str, LazyCommand]:
    """The commands that additions give a group of the command line, by name; "" is the root."""
    found = {}
    for addition in ADDITIONS.values():
        for path, command in addition.commands.items():
            within, _, name = path.rpartition(" ")
            if within == group:
                found[name] = command
    return found


def devices() -> list[Any]:
    """The kinds of devices that the additions of this installation have, each a `Backend`."""
    found = []
    for addition in ADDITIONS.values():
        for place in addition.devices:
            with contextlib.suppress(UsageError):
                found.append(load(place))
    return found


def service(name: str) -> Any:
    """The service that an addition provides to the core under this name.

    Raises:
        UsageError: the addition is not part of this installation.
    """
    return load(next(a.services[name] for a in ADDITIONS.values() if name in a.services))


def calling(name: str) -> Callable[..., Any]:
    """A function that calls a service, which is imported at the first call."""
    return lambda *arguments, **options: service(name)(*arguments, **options)


def load(place: str) -> Any:
    """A module, or an attribute of one: "module" or "module:attribute".

    Raises:
        UsageError: the module is not part of this installation.
    """
    module, _, name = place.partition(":")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise UsageError(f"{module} is not part of this installation of Tilewright") from None
    return getattr(found, name) if name else found
