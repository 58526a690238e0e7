"""Exported C programs, built by a cross compiler (GNU, else that of `ziglang`) and run, if need be by qemu-user."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np

import tilewright as tw
from tests.common import needs
from tilewright.isa.device import DeviceError, Region
from tilewright.simulator.functional import FunctionalDevice

#: By host: processor as qemu names it, GNU compiler, target as zig names it.
HOSTS = {
    "x86_64-linux": ("x86_64", "x86_64-linux-gnu-gcc", "x86_64-linux-musl"),
    "aarch64-linux": ("aarch64", "aarch64-linux-gnu-gcc", "aarch64-linux-musl"),
    "armv7-linux": ("arm", "arm-linux-gnueabihf-gcc", "arm-linux-musleabihf"),
    "riscv64-linux": ("riscv64", "riscv64-linux-gnu-gcc", "riscv64-linux-musl"),
}
DEVICE = Path(__file__).with_name("pipe_device.c")


def compiler(host: str) -> str:
    """A C compiler for a host, as `make` takes it. That of `ziglang` builds a libc first: only where programs can
    run too."""
    _, gnu, zig = HOSTS[host]
    if shutil.which(gnu):
        return gnu
    if importlib.util.find_spec("ziglang") is None or launcher(host) is None:
        needs.skip(needs.CROSS_COMPILERS, f"no {gnu}, and not ziglang with an emulator")
    return f"{sys.executable} -m ziglang cc -target {zig}"


def launcher(host: str) -> list[str] | None:
    """The command that programs of that host are started with; None if they cannot run here."""
    processor = HOSTS[host][0]
    if platform.machine() == processor:
        return []
    emulator = shutil.which(f"qemu-{processor}") or shutil.which(f"qemu-{processor}-static")
    return [emulator] if emulator else None


def build(folder: Path, host: str, name: str, device: bool) -> Path:
    """Runs the exported Makefile; the linker is satisfied by the objects, libc and libm alone."""
    command = ["make", "-s", "-C", str(folder), f"CC={compiler(host)}", "LDFLAGS=-static"]
    command += ["CFLAGS=-O2 -std=c99 -Wall -Wextra -Werror"]
    result = subprocess.run(
        [*command, f"DEVICE={DEVICE}"] if device else command, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return folder / name


def run(binary: Path, host: str, program: tw.Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of one run on files. NPU steps are answered by the functional simulator."""
    start = launcher(host)
    assert start is not None
    paths = []
    for i, info in enumerate(program.inputs):
        paths.append(binary.parent / f"input{i}.bin")
        np.ascontiguousarray(inputs[info.name]).tofile(paths[-1])
    results = [binary.parent / f"output{i}.bin" for i in range(len(program.outputs))]
    command = [*start, str(binary), *map(str, paths), *map(str, results)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        serve(process.stdout, process.stdin, program)
        process.stdin.close()
        errors = process.stderr.read().decode()
        assert process.wait(60) == 0, errors
    return {
        info.name: np.fromfile(path, info.dtype).reshape(info.shape) for info, path in zip(program.outputs, results)
    }


def serve(requests: BinaryIO, answers: BinaryIO, program: tw.Program) -> None:
    """Answers the requests of pipe_device.c until the program ends."""
    while head := requests.read(32):
        region_count, program_region, offset, count = struct.unpack("<4Q", head)
        device = FunctionalDevice(program.config)
        places: dict[int, tuple[int, int]] = {}  # by the client's address: the device's, and bytes
        regions = []
        for _ in range(region_count):
            base, size, read, write = struct.unpack("<4Q", requests.read(32))
            inside = next(
                (at + base - start for start, (at, n) in places.items() if start <= base < start + n and size), None
            )
            if inside is None:
                inside = device.allocate(max(size, 64))
                places[base] = inside, size
            device.write(inside, requests.read(size))
            regions.append(Region(inside, size, bool(read), bool(write)))
        try:
            device.run(regions, program_region, offset, count)
        except DeviceError as error:
            answers.write(struct.pack("<q", int(error.code)))
        else:
            answers.write(struct.pack("<q", 0))
            for region in regions:
                if region.write:
                    answers.write(device.read(region.base, region.size).tobytes())
        answers.flush()
