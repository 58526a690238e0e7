"""The C driver on the Verilated NPU: by its port in Python, and linked with an exported program."""

import ctypes
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.common import needs
from tests.common.board_jobs import SIZE, copy_job
from tests.common.paths import ROOT
from tilewright.export import export_c
from tilewright.hw.sim.build import build
from tilewright.hw.sim.device import RtlDevice, load_library
from tilewright.isa.config import preset
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import REGIONS, Engine, Memory
from tilewright.isa.registers import REGISTER, REGISTERS
from tilewright.isa.timing import MemoryTiming

DRIVER = ROOT / "driver" / "c"
pytestmark = pytest.mark.cosim
TINY = preset("tiny")
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
INCLUDES = [f"-I{DRIVER}", f"-I{ROOT / 'isa' / 'include'}"]
MEMORY = 1 << 16
RESULTS = dict(re.findall(r"(TW_NPU_\w+) = (-?\d+)", (DRIVER / "tilewright_npu.h").read_text()))

READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)
SYNC = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)


class Port(ctypes.Structure):
    _fields_ = [
        ("context", ctypes.c_void_p), ("read", READ), ("write", WRITE), ("wait", WAIT), ("to_device", SYNC),
        ("to_host", SYNC),
    ]  # fmt: skip


class Region(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("read", ctypes.c_uint8),
        ("write", ctypes.c_uint8),
    ]


class Job(ctypes.Structure):
    _fields_ = [
        ("regions", ctypes.POINTER(Region)), ("region_count", ctypes.c_uint32), ("program_region", ctypes.c_uint32),
        ("program_offset", ctypes.c_uint32), ("program_length", ctypes.c_uint32), ("watchdog", ctypes.c_uint32),
        ("timeout", ctypes.c_uint32),
    ]  # fmt: skip


class Error(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint32),
        ("engine", ctypes.c_uint32),
        ("pc", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
    ]


COUNTERS = [r.name[:-3].lower() for r in REGISTERS if r.counts and r.name.endswith("_LO")]


class Counters(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in COUNTERS]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = needs.program(needs.C_COMPILER, "gcc")
    library = tmp_path_factory.mktemp("driver") / "driver.so"
    source = DRIVER / "tilewright_npu.c"
    command = [compiler, "-std=c99", *STRICT, "-O2", "-shared", "-fPIC", *INCLUDES, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.tw_npu_open.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    loaded.tw_npu_fingerprint.restype = ctypes.c_uint64
    loaded.tw_npu_text.restype = loaded.tw_npu_engine.restype = ctypes.c_char_p
    return loaded


class Bench:
    """The Verilated NPU with a memory, as the C driver sees them."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        self.driver = driver
        self.rtl = load_library(build(TINY))
        self.handle = self.rtl.tw_rtl_create()
        self.memory = np.zeros(MEMORY, np.uint8)
        self.rtl.tw_rtl_memory(self.handle, self.memory.ctypes.data, MEMORY)
        t = MemoryTiming()
        self.rtl.tw_rtl_timing(self.handle, t.read_latency, t.write_latency, t.read_interval, t.write_interval)
        self.synced: list[tuple[str, int, int]] = []
        self.patience = 1000
        self.changed: dict[int, int] = {}  # registers that read otherwise
        self.port = Port(
            None,
            READ(lambda _, offset: self.changed.get(offset, self.rtl.tw_rtl_read(self.handle, offset))),
            WRITE(lambda _, offset, value: self.rtl.tw_rtl_write(self.handle, offset, value)),
            WAIT(lambda _, asked: self._wait(asked)),
            SYNC(lambda _, address, nbytes: self.synced.append(("device", address, nbytes))),
            SYNC(lambda _, address, nbytes: self.synced.append(("host", address, nbytes))),
        )

    def _wait(self, asked: int) -> int:
        self.rtl.tw_rtl_tick(self.handle, 100)
        return int(asked >= self.patience)

    def open(self, fingerprint: int = 0) -> int:
        return self.driver.tw_npu_open(ctypes.byref(self.port), fingerprint)

    def run(self, ops: list, data: bytes = b"", **limits: int) -> tuple[int, Error]:
        """Program at 4096, input at 8192 (region 1), output at 12288 (region 2)."""
        self.memory[4096 : 4096 + 16 * len(ops)] = np.frombuffer(to_bytes(ops), np.uint8)
        self.memory[8192 : 8192 + len(data)] = np.frombuffer(data, np.uint8)
        windows = (Region * 3)(Region(4096, 16 * len(ops), 1, 0), Region(8192, SIZE, 1, 0), Region(12288, SIZE, 1, 1))
        job = Job(windows, 3, 0, 0, len(ops), limits.get("watchdog", 0), limits.get("timeout", 0))
        error = Error()
        return self.driver.tw_npu_run(ctypes.byref(self.port), ctypes.byref(job), ctypes.byref(error)), error

    def close(self) -> None:
        self.rtl.tw_rtl_destroy(self.handle)


@pytest.fixture
def bench(driver: ctypes.CDLL) -> Iterator[Bench]:
    made = Bench(driver)
    yield made
    made.close()


COPY = [
    op("LOAD_DIM", level=0, count=1),
    op("LOAD", region=1, target=Memory.ACT, count=SIZE // TINY.block_in, signal0=1),
    op("STORE", region=2, count=SIZE // TINY.block_in, wait0=1),
    op("END"),
]
ENDLESS = [*[op("GEMM_LOOP", level=level, count=0xFFFF) for level in range(4)], op("GEMM"), op("END")]


def test_open(bench: Bench) -> None:
    assert bench.driver.tw_npu_fingerprint(ctypes.byref(bench.port)) == int(TINY.fingerprint, 16)
    assert bench.open() == bench.open(int(TINY.fingerprint, 16)) == 0
    assert bench.open(int(preset("base").fingerprint, 16)) == int(RESULTS["TW_NPU_CONFIGURATION"])
    for name, result in (("VERSION", "TW_NPU_OTHER_VERSION"), ("IDENTITY", "TW_NPU_ABSENT")):
        bench.changed[REGISTER[name].offset] = 77
        assert bench.open() == int(RESULTS[result])


def test_a_run_with_its_counters(bench: Bench) -> None:
    assert bench.open() == 0
    data = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8).tobytes()
    for _ in range(2):
        assert bench.run(COPY, data)[0] == 0
        assert bench.memory[12288 : 12288 + SIZE].tobytes() == data
    every = [("device", 4096, 64), ("device", 8192, SIZE), ("device", 12288, SIZE), ("host", 12288, SIZE)]
    assert bench.synced == 2 * every
    counters = Counters()
    bench.driver.tw_npu_read_counters(ctypes.byref(bench.port), ctypes.byref(counters))
    job = copy_job(RtlDevice(TINY))
    assert job.run(data) == data
    expected = job.counters
    found = {name: getattr(counters, name) for name in COUNTERS}
    assert found["bytes_read"] == expected.bytes_read and found["bytes_written"] == expected.bytes_written
    assert found["cycles"] == expected.cycles and found["macs"] == 0
    for engine, values in expected.engines.items():
        for kind in ("busy", "wait_semaphore", "wait_memory"):
            assert found[f"{engine.lower()}_{kind}"] == getattr(values, kind), (engine, kind)


def test_errors_are_decoded(bench: Bench) -> None:
    assert bench.open() == 0
    wait = [op("END"), op("LOAD_SYNC", wait0=5), op("END")][1:]
    closed = [op("LOAD_DIM", count=1), op("LOAD", region=7, count=1), op("END")]
    for ops, limits, code, engine, pc, address in (
        (wait, {"watchdog": 300}, ErrorCode.WATCHDOG, Engine.LOAD, 0, 5),
        (closed, {}, ErrorCode.WINDOW, Engine.LOAD, 1, 0),
        (ENDLESS, {"timeout": 2000}, ErrorCode.TIMEOUT, Engine.FETCH, None, 0),
    ):
        result, error = bench.run(ops, **limits)
        assert (result, error.code, error.engine, error.address) == (code, code, engine, address)
        assert pc is None or error.pc == pc
        assert bench.driver.tw_npu_text(result).decode().startswith(f"{code.name}: ")
        assert bench.driver.tw_npu_engine(error.engine).decode() == engine.name
        assert bench.run(COPY, b"again" * 20)[0] == 0
    assert bench.driver.tw_npu_text(-9).decode() == "unknown result"


def test_a_run_that_is_given_up(bench: Bench) -> None:
    bench.patience = 5
    assert bench.run(ENDLESS)[0] == int(RESULTS["TW_NPU_GIVEN_UP"])
    assert bench.run(COPY, b"x")[0] == 0
    bench.rtl.tw_rtl_write(bench.handle, REGISTER["CONTROL"].offset, 1)  # left running by an earlier owner
    assert bench.open() == 0 and bench.run(COPY, b"y")[0] == 0


def test_what_registers_cannot_express(bench: Bench) -> None:
    windows = (Region * REGIONS)(Region(0, 1 << 32))
    for job in (
        Job(windows, 1, 0, 0, 1),
        Job(windows, REGIONS + 1, 0, 0, 1),
        Job(windows, 0, REGIONS, 0, 1),
        Job(windows, 0, 0, 8, 1),
    ):
        assert bench.driver.tw_npu_start(ctypes.byref(bench.port), ctypes.byref(job)) == int(RESULTS["TW_NPU_ARGUMENT"])


@pytest.mark.parametrize(
    "compiler", ["gcc", "g++", "clang", "arm-linux-gnueabihf-gcc", "aarch64-linux-gnu-gcc", "riscv64-linux-gnu-gcc"]
)
def test_compilers_accept_it(compiler: str, tmp_path: Path) -> None:
    needs.program(needs.C_COMPILERS, compiler)
    standard = ["-x", "c++", "-std=c++11"] if compiler == "g++" else ["-std=c99"]
    places = ["-DNPU_REGISTERS=0xA0000000", "-DNPU_POOL=0x70000000", "-DNPU_POOL_BYTES=0x100000", "-DNPU_LOOKS=1000"]
    for source in ("tilewright_npu.c", *(["bare_metal.c"] if compiler != "g++" else [])):
        command = [compiler, *standard, *STRICT, "-O2", *INCLUDES, *places, "-c", str(DRIVER / source)]
        subprocess.run([*command, "-o", str(tmp_path / "out.o")], check=True)


def test_it_calls_nothing(driver: ctypes.CDLL, tmp_path: Path) -> None:
    """Freestanding: the object has no undefined symbol."""
    command = ["gcc", "-std=c99", "-O2", "-ffreestanding", *INCLUDES, "-c", str(DRIVER / "tilewright_npu.c")]
    subprocess.run([*command, "-o", str(tmp_path / "out.o")], check=True)
    listed = subprocess.run(["nm", "-u", str(tmp_path / "out.o")], check=True, capture_output=True, text=True).stdout
    assert not [line for line in listed.split() if line not in ("U", "_GLOBAL_OFFSET_TABLE_")]


def test_an_exported_program_on_the_rtl(tmp_path: Path) -> None:
    """Digits as a C program, its runtime, this driver and the RTL in one executable: the bytes of the simulator."""
    program = tw.compile(ROOT / "examples/digits/digits_int8.onnx", config="tiny", host="x86_64-linux")
    export_c(program, tmp_path, "digits")
    port = ROOT / "tests" / "common" / "rtl_port.c"
    library = build(TINY)
    command = ["make", "-s", "-C", str(tmp_path), "CC=gcc", f"DEVICE={port} {DRIVER / 'tilewright_npu.c'} {library}"]
    command += [f"CFLAGS=-O2 -std=c11 {' '.join([*STRICT, *INCLUDES])} -DFINGERPRINT=0x{TINY.fingerprint}u"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    inputs = tw.random_inputs(program, 5)
    (name,) = inputs
    inputs[name].tofile(tmp_path / "in.bin")
    run = [str(tmp_path / "digits"), str(tmp_path / "in.bin"), str(tmp_path / "out.bin")]
    result = subprocess.run(run, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    expected = tw.Device("functional").run(program, inputs)["output"]
    assert (tmp_path / "out.bin").read_bytes() == expected.tobytes()
