"""The programs that the parts of a dynamic model are compiled to."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.runtime.cost import measure
from tilewright.store import program_cache, trust

KEPT_BYTES = 512 << 20
"""Bytes of the programs that a model keeps in memory, those used last; on disk they are kept by `program_cache`."""


class PartPrograms:
    """The programs of a dynamic model's parts, compiled when they are first asked for.

    Args:
        file: the model's file or name, for messages.
        versions: opset version by domain.
        config: of the NPU.
        options: of the compiler.
        cache: keep programs on disk.

    Attributes:
        compilations: programs compiled so far; those found on disk are not counted.
        kept_bytes: limit of the programs kept in memory.
    """

    def __init__(
        self, file: str, versions: Mapping[str, int], config: NpuConfig, options: CompileOptions, cache: bool
    ) -> None:
        self.file, self.versions, self.config = file, versions, config
        self.options, self.cache = options, cache
        self.compilations, self.kept_bytes = 0, KEPT_BYTES
        self._programs: OrderedDict[Hashable, Program] = OrderedDict()
        self._bytes = 0

    def program(self, key: Hashable, graph_of: Callable[[], Graph]) -> Program:
        """The program for a key: kept, found on disk, or compiled from `graph_of()`."""
        kept = self._programs.get(key)
        if kept is not None:
            self._programs.move_to_end(key)
            return kept
        name = self._cache_name(key)
        program = program_cache.find(name) if name is not None else None
        if program is None:
            program = self._compile(graph_of())
            trust.sign(program)
            self.compilations += 1
            if name is not None:
                program_cache.keep(name, program)
        self._programs[key] = program
        self._bytes += program.footprint
        while self._bytes > self.kept_bytes and len(self._programs) > 1:
            self._bytes -= self._programs.popitem(last=False)[1].footprint
        return program

    def _cache_name(self, key: Hashable) -> str | None:
        if not self.cache:
            return None
        options = json.dumps([self.config.to_dict(), asdict(self.options), self.versions], sort_keys=True)
        return program_cache.key(hashlib.sha256(repr(key).encode()).digest(), options)

    def _compile(self, graph: Graph) -> Program:
        cost = functools.partial(measure, timing=self.options.memory)
        return compile_graph(graph, self.config, self.options, measure=cost)
