"""Inputs of a run: files, images, and random values for the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.common.errors import TilewrightError
from tilewright.common.text import suggest
from tilewright.errors import InputError, UsageError
from tilewright.isa.program import Program, TensorInfo
from tilewright.runtime.images import ImageOptions, image_input
from tilewright.runtime.inputs import misfit, random_input, random_inputs
from tilewright.store.files import IMAGE_SUFFIXES, FileArray, open_arrays

if TYPE_CHECKING:
    from tilewright.dynamic.signature import Signature

#: Bytes of an array that is read even if it does not fit: what checks all inputs together has the better message.
_UNFIT_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class InputFiles:
    """The files that the inputs of a run come from, and the seed of those that come from none.

    Attributes:
        files, inputs: each a FILE or NAME=FILE.
        seed: of random values for the inputs that no file gives; None to make them only if there is no file at all.
        image_fit, image_range: how an image becomes an input; see `ImageOptions`.
    """

    files: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    seed: int | None = None
    image_fit: str = "crop"
    image_range: str = "auto"

    @property
    def random(self) -> bool:
        """Whether inputs that no file gives are random."""
        return self.seed is not None or not (self.files or self.inputs)

    @property
    def arrays(self) -> bool:
        """Whether files of arrays, whose shapes say what the model leaves open, are all there is: an image has none."""
        paths = [Path(text) for text in (*self.files, *self.inputs)]
        return bool(paths) and not any(path.suffix.lower() in IMAGE_SUFFIXES for path in paths)

    def of_program(self, program: Program) -> dict[str, np.ndarray]:
        """The inputs of a program.

        Raises:
            UsageError: an unreadable file, an unknown or doubled name.
        """
        infos = {t.name: t for t in program.inputs}
        options = ImageOptions(self.image_fit, self.image_range)

        def read(name: str, array: FileArray) -> np.ndarray:
            return _read(array, misfit(infos[name], array.dtype, array.shape))

        arrays = self._read(infos, read, lambda path, name: image_input(path, program, infos[name], options))
        return random_inputs(program, self.seed or 0) | arrays if self.random else arrays

    def of_model(self, inputs: list[Signature], reason: TilewrightError | None = None) -> dict[str, np.ndarray]:
        """The inputs of a model that is compiled while it runs.

        Args:
            inputs: of the model.
            reason: raised where an input is not given and cannot be random, in place of an error that names it.

        Raises:
            UsageError: as `of_program`; or an image, which needs a fixed size.
        """

        def refuse(path: str, name: str) -> np.ndarray:
            raise UsageError(f"{path}: an image is fitted to the input's size; set it with --shape")

        known = {s.name: s for s in inputs}
        arrays = self._read(known, lambda name, array: read_value(known[name], array), refuse)
        generator = np.random.default_rng(self.seed or 0)
        for signature in inputs if self.random else ():
            drawn = _drawn(signature, generator)
            if signature.name not in arrays:
                if drawn is None:
                    raise reason or UsageError(f"give input {signature} by --input")
                arrays[signature.name] = drawn
        return arrays

    def _read(
        self,
        names: Collection[str],
        read: Callable[[str, FileArray], np.ndarray],
        image: Callable[[str, str], np.ndarray],
    ) -> dict[str, np.ndarray]:
        """The arrays of all files by input.

        Args:
            names: of the inputs.
            read: the array of an input from its file.
            image: the array of an image file for an input.
        """
        arrays: dict[str, np.ndarray] = {}
        for text in (*self.files, *self.inputs):
            for name, array in _arrays(text, names, image).items():
                if name in arrays:
                    raise UsageError(f"input {name!r} is given twice")
                arrays[name] = read(name, array) if isinstance(array, FileArray) else array
        return arrays


def read_value(signature: Signature, array: FileArray) -> np.ndarray:
    """The array of a file as an input of a model. Raises `UsageError` for a large one that does not fit."""
    from tilewright.dynamic.signature import misfits

    kind = "string" if array.dtype.kind == "U" else array.dtype.name
    return _read(array, "; ".join(misfits(signature, kind, array.shape, {})) if signature.kind == "tensor" else "")


def _read(array: FileArray, problem: str) -> np.ndarray:
    """Reads an array. Raises `UsageError` without reading it where it is large and has a problem."""
    if problem and array.nbytes > _UNFIT_BYTES:
        raise InputError(f"{array.path}: {problem}")
    return array.read()


def _arrays(
    text: str, names: Collection[str], image: Callable[[str, str], np.ndarray]
) -> dict[str, FileArray] | dict[str, np.ndarray]:
    """The arrays of one FILE or NAME=FILE."""
    name, equals, path = text.partition("=")
    if not equals or (name not in names and Path(text).is_file()):
        name, path = "", text
    if name and name not in names:
        raise UsageError(f"unknown input {name!r}{suggest(name, names)}; inputs: {', '.join(names)}")
    if not path:
        raise UsageError(f"input {text!r} names no file")
    is_image = Path(path).suffix.lower() in IMAGE_SUFFIXES
    found = {} if is_image else open_arrays(path)
    if not name and found and set(found) <= set(names):
        return found  # an .npz with the inputs' own names
    if not name:
        if len(names) != 1:
            raise UsageError(f"{path}: which input? there are {', '.join(names)}; write NAME={path}")
        name = next(iter(names))
    if is_image:
        return {name: image(path, name)}
    if name in found or len(found) == 1:
        return {name: found[name] if name in found else next(iter(found.values()))}
    raise UsageError(
        f"{path} holds {', '.join(found) or 'no arrays'}; input {name!r} needs an array of its name, or one"
    )


def _drawn(signature: Signature, generator: np.random.Generator) -> np.ndarray | None:
    """A random value, None where shape or type leave open what it could be."""
    sizes = signature.shape
    if signature.kind != "tensor" or signature.dtype == "string" or sizes is None:
        return None
    shape = tuple(d for d in sizes if isinstance(d, int))
    if len(shape) != len(sizes):
        return None
    return random_input(TensorInfo(signature.name, shape, signature.dtype, ""), None, generator)
