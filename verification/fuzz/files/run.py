"""All cases in several processes, and what is printed of them."""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.common.paths import ROOT
from verification.code import digest_of_code
from verification.fuzz.files.attempt import FAILED, REFUSED, SECONDS, WORKS, attempt
from verification.fuzz.files.kinds import KINDS
from verification.measured import DAY, SOURCES, today, write_with_command

#: Memory of a process: a file that asks for more than this is a failure.
MEMORY = 6 << 30
#: Seconds after which a file is one that hangs, though the alarm of `attempt` has not ended it.
HANG = 2 * SECONDS
#: Share of the cases, by kind: those that compile take longest.
_WEIGHTS = {"tflite": 2, "onnx": 2}
_CHUNK = 25

#: Sources of what reads files, for `--json`.
READERS = [p for package in ("compiler", "isa", "tilewright") for p in (ROOT / package).rglob("*.py")]

Chunk = tuple[str, int, int]


def work(chunk: Chunk) -> tuple[Chunk, list[tuple[int, str, str]]]:
    """Outcomes of seeds first..behind-1 of a kind. The seed at hand stands in a file, should the process crash."""
    kind, first, behind = chunk
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    folder = Path(os.environ["TILEWRIGHT_FUZZ"]) / str(os.getpid())
    folder.mkdir(exist_ok=True)
    found = []
    for seed in range(first, behind):
        (folder / "at").write_text(f"{kind} {seed}", encoding="utf-8")
        found.append((seed, *attempt(kind, seed, folder)))
    (folder / "at").unlink()
    return chunk, found


def chunks(kinds: list[str], count: int, seed: int) -> Iterator[Chunk]:
    """Pieces of all kinds in turn."""
    total = sum(_WEIGHTS.get(k, 1) for k in kinds)
    left = {k: [seed, seed + max(1, count * _WEIGHTS.get(k, 1) // total)] for k in kinds}
    while left:
        for kind, (first, behind) in list(left.items()):
            yield kind, first, min(first + _CHUNK, behind)
            left[kind][0] += _CHUNK
            if left[kind][0] >= behind:
                del left[kind]


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of failures, at most 100."""
    parser = argparse.ArgumentParser(
        prog="python -m verification.fuzz.files", description="Mutated files of every kind."
    )
    parser.add_argument("--count", type=int, default=1000, help="files in all")
    parser.add_argument("--seed", type=int, default=0, help="first seed of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of those in the default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--json", type=Path, help="write what became of each kind here, beside other kinds that are there"
    )
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    unknown = [k for k in kinds if k not in KINDS]
    if unknown:
        parser.error(f"unknown kind {unknown[0]!r}; known: {', '.join(KINDS)}")
    counts: dict[str, collections.Counter[str]] = {k: collections.Counter() for k in kinds}
    failures: dict[tuple[str, str], list[tuple[int, str]]] = {}
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="file-fuzz-") as folder:
        os.environ["TILEWRIGHT_FUZZ"] = folder
        os.environ["TMPDIR"] = folder
        pieces = list(chunks(kinds, options.count, options.seed))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("files", total=sum(behind - first for _, first, behind in pieces))
            try:
                for (kind, first, behind), found in _outcomes(pieces, options.jobs, Path(folder)):
                    bar.advance(task, behind - first)
                    for seed, outcome, text in found:
                        counts[kind][outcome if outcome in (WORKS, REFUSED) else FAILED] += 1
                        if outcome not in (WORKS, REFUSED):
                            failures.setdefault((kind, outcome), []).append((seed, text))
            except KeyboardInterrupt:
                print("interrupted: what follows is of the files until then")
    for (kind, outcome), cases in failures.items():
        seed, text = cases[0]
        print(f"FAILED {len(cases)}x {kind}: {outcome}: {text}")
        print(f"    python -m verification.fuzz.files --kinds {kind} --seed {seed} --count 1 --jobs 1")
    for kind, counter in counts.items():
        print(
            f"{kind:9} {sum(counter.values()):7} files, "
            + ", ".join(f"{n} {what}" for what, n in sorted(counter.items()))
        )
    if options.json:
        stamp: dict[str, Any] = {SOURCES: digest_of_code(READERS), DAY: today()}
        kinds_now: dict[str, dict[str, Any]] = {kind: dict(counter) | stamp for kind, counter in counts.items()}
        figures = {SOURCES: stamp[SOURCES], "kinds": _kept(options.json) | kinds_now}
        write_with_command(options.json, parser, arguments, figures)
    bad = sum(len(cases) for cases in failures.values())
    total = sum(sum(counter.values()) for counter in counts.values())
    print(f"{total} files, {bad} failed, {time.monotonic() - start:.0f} s")
    return min(bad, 100)


def _kept(file: Path) -> dict[str, dict[str, Any]]:
    """Kinds in the file of runs before, each with the sources and the day of its own."""
    kinds: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["kinds"] if file.is_file() else {}
    return kinds


def _outcomes(pieces: list[Chunk], jobs: int, folder: Path) -> Iterator[tuple[Chunk, list[tuple[int, str, str]]]]:
    """Yields the outcomes of `work` for all pieces. A piece whose process crashes is cut at the seed, which is a
    failure."""
    context = multiprocessing.get_context("spawn")
    queue = pieces[::-1]
    running: dict[Connection, tuple[BaseProcess, Chunk | None]] = {}

    def feed(connection: Connection, process: BaseProcess) -> None:
        chunk = queue.pop() if queue else None
        running[connection] = process, chunk
        connection.send(chunk)

    def begin() -> None:
        mine, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        feed(mine, process)

    for _ in range(min(jobs, len(pieces))):
        begin()
    while running:
        kill_timed_out([process for process, _ in running.values()], folder)
        for connection in wait(list(running), HANG / 10):
            assert isinstance(connection, Connection)
            process, chunk = running[connection]
            try:
                found = connection.recv()
            except (EOFError, ConnectionError):
                process.join()
                del running[connection]
                if chunk is not None:
                    yield _crashed(chunk, process, folder, queue)
                    begin()
                continue
            yield found
            feed(connection, process)


def _timed_out(at: Path) -> bool:
    """Returns whether a process has been at the file that `at` names for too long."""
    return at.exists() and time.time() - at.stat().st_mtime > HANG


def kill_timed_out(processes: Sequence[BaseProcess], folder: Path) -> None:
    """Kills those that hang: code in C hears no alarm."""
    for process in processes:
        if _timed_out(folder / str(process.pid) / "at"):
            process.kill()


def _crashed(
    chunk: Chunk, process: BaseProcess, folder: Path, queue: list[Chunk]
) -> tuple[Chunk, list[tuple[int, str, str]]]:
    kind, first, behind = chunk
    at = folder / str(process.pid) / "at"
    seed = int(at.read_text(encoding="utf-8").split()[1]) if at.exists() else first
    if seed + 1 < behind:
        queue.append((kind, seed + 1, behind))
    if first < seed:
        queue.append((kind, first, seed))
    how = f"slower than {HANG} s" if _timed_out(at) else f"the process ended with {process.exitcode}"
    return (kind, seed, seed + 1), [(seed, how, "")]


def _serve(connection: multiprocessing.connection.Connection) -> None:
    while (chunk := connection.recv()) is not None:
        connection.send(work(chunk))
