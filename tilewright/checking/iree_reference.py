"""IREE on the CPU as the reference for TOSA programs: a compiler and kernels that share nothing with Tilewright.

It rounds and scales by the same specification, so integers are equal to the byte. Tensors inside a program are not
looked at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.checking.tolerance import Roundings
from tilewright.common.installation import require
from tilewright.common.text import one_line
from tilewright.compiler.importer.mlir import mlir_text
from tilewright.compiler.importer.tosa import OPERATIONS
from tilewright.compiler.importer.tosa.reading import generic, read
from tilewright.errors import UsageError


class IreeReference:
    """A TOSA program as IREE runs it.

    Args:
        model: file, text or bytecode.
    """

    reason = ""

    def __init__(self, model: str | Path | bytes) -> None:
        self.text = mlir_text(model)
        self.module = read(self.text, OPERATIONS)
        self._function: Any = None

    @property
    def name(self) -> str:
        with contextlib.suppress(PackageNotFoundError):
            return f"IREE {version('iree-base-compiler')}"
        return "IREE"

    def quantised_tensors(self) -> list[str]:
        """Names of the 8-bit tensors the program computes: its values have none."""
        return []

    def rounded_twice(self, name: str) -> float:
        """The share of a tensor's elements that a second rounding may change: none, as the program says it all."""
        return 0.0

    def floats_of(self, name: str) -> list[str]:
        return []

    def floats_only(self) -> bool:
        """Whether the program computes floats only."""
        return all(t.dtype.kind == "f" for t in self.module.types if t.element not in ("shape", "i1"))

    def roundings(self) -> Roundings:
        """The float roundings of the program: one an operation, and the length of sums of products."""
        terms = nodes = 1
        for op in self.module.body.all_ops():
            nodes += 1
            types = [self.module.types[k] for k in op.operands]
            product = op.name in ("conv2d", "conv3d", "depthwise_conv2d", "transpose_conv2d", "matmul")
            terms += int(np.prod(types[1].shape)) // max(types[1].shape[0], 1) if product and types[1].shape else 1
        return Roundings(terms=terms, nodes=nodes)

    def downstream(self, sources: Mapping[str, str]) -> dict[str, list[str]]:
        """Maps tensors that depend on one of `sources` to those: only outputs are known by name."""
        return {name: [name] for name in sources}

    def intermediates(
        self, names: Sequence[str], inputs: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """No values, and why: the compiled program has its results only."""
        return {}, dict.fromkeys(names, "IREE shows results only")

    def run(self, inputs: Mapping[str, np.ndarray], steps: int = 1) -> dict[str, np.ndarray]:
        """The results by name. Raises UsageError where IREE is not installed, or refuses the program."""
        function = self._function or self._compiled(inputs)
        found = function(*(np.asarray(inputs[name], order="C") for name in self.module.inputs))
        found = list(found) if isinstance(found, tuple | list) else [found]
        types = [self.module.types[k] for k in self.module.body.returns]
        arrays = [np.asarray(value).astype(t.dtype) for value, t in zip(found, types)]
        return dict(zip(self.module.outputs, arrays))

    def release(self) -> None:
        """Frees the compiled program."""
        self._function = None

    def _compiled(self, inputs: Mapping[str, np.ndarray]) -> Any:
        """The compiled function, of the batch of these inputs where the text leaves it open.

        IREE reads the assembly of its own release; that of others is given to it in the generic form.
        """
        compiler, runtime = require("iree.compiler"), require("iree.runtime")
        batch = len(inputs[self.module.inputs[0]]) if self.module.open else 1
        refusals = []
        for text in (lambda: self.text, lambda: generic(self.text, OPERATIONS)):
            try:
                code = compiler.compile_str(
                    text().replace("tensor<?x", f"tensor<{batch}x"), input_type="tosa", target_backends=["llvm-cpu"],
                    extra_args=["--iree-llvmcpu-target-cpu=generic"],
                )  # fmt: skip
                break
            except compiler.CompilerToolError as error:
                lines = [line for line in str(error).splitlines() if "error:" in line]
                refusals.append(one_line(lines[0] if lines else str(error)))
        else:
            raise UsageError(f"IREE refuses the program: {refusals[-1]}")
        context = runtime.SystemContext(config=runtime.Config("local-sync"))
        context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))
        self._function = context.modules.module[self.module.name]
        return self._function
