"""A small decoder, quantised and compiled once for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tilewright import zoo
from tilewright.generate import LanguageModel


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small_llama.onnx"
    onnx.save(zoo.build_quantized("micro_llama", **zoo.ZOO["micro_llama"].small), path)
    return path


@pytest.fixture(scope="session")
def language(model_file: Path) -> LanguageModel:
    return LanguageModel.load(model_file, "base")


@pytest.fixture(scope="session")
def program_file(language: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "small_llama.twp"
    language.program.save(path)
    return path
