"""The kinds of files: valid ones to begin with, mutations that keep the outside of the format whole, and their readers.

A mutation that only changes bytes mostly ends at a checksum or a magic number. So half of the files are changed inside
of their structure, and put together again with the right sums.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from verification.fuzz.files import databases, inputs, models, programs, requests, settings


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        mutated: a file drawn from the generator.
        read: gives the file to what reads it; raises what that raises.
    """

    mutated: Callable[[random.Random], bytes]
    read: Callable[[bytes, random.Random, Path], None]


KINDS = {
    "npy": Kind(inputs.mutated_npy, inputs.read_input(".npy")),
    "npz": Kind(inputs.mutated_npz, inputs.read_input(".npz")),
    "image": Kind(inputs.mutated_image, inputs.read_input(".png")),
    "json": Kind(settings.mutated_json, settings.read_config(".json")),
    "toml": Kind(settings.mutated_toml, settings.read_config(".toml")),
    "space": Kind(settings.mutated_toml, settings.read_space),
    "tflite": Kind(models.mutated_tflite, models.read_model),
    "onnx": Kind(models.mutated_onnx, models.read_onnx),
    "program": Kind(programs.mutated_program, programs.read_program),
    "database": Kind(databases.mutated_database, databases.read_database),
    "requests": Kind(requests.mutated, requests.read),
}
