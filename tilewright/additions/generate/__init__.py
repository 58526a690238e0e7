"""Generating text: language models with a KV cache, token by token on a device.

>>> from tilewright.generate import LanguageModel
>>> model = LanguageModel.load("micro_llama.onnx")
>>> with tilewright.Device("functional") as device:
...     for step in model.generate(device, model.vocabulary.encode("HELLO"), 20):
...         print(model.vocabulary.text(step.token), end="")
"""

from tilewright.generate.language_model import DECODE, PREFILL, LanguageModel, Step
from tilewright.generate.reference import GreedyReference
from tilewright.generate.vocabulary import Vocabulary

__all__ = ["DECODE", "PREFILL", "GreedyReference", "LanguageModel", "Step", "Vocabulary"]
