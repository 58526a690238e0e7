"""Generating text: language models with a KV cache, token by token on a device.

>>> from tilewright.generate import Chat, Conversation, LanguageModel, ModelFolder, Sampler
>>> model = LanguageModel.load("smollm2/model.onnx")
>>> folder = ModelFolder.of("smollm2/model.onnx")  # tokenizer, tokens that stop, chat template
>>> with tilewright.Device("functional") as device:
...     for step in model.generate(device, folder.tokenizer.encode("HELLO"), 20, sampler=Sampler(0.8, seed=1)):
...         print(step.token)
...     chat = Chat(Conversation(model, device), folder.tokenizer, ChatTemplate.of(folder))
...     for piece in chat.answer("Who are you?", 100, stop=folder.stop_tokens()):
...         print(piece.text, end="")
"""

from tilewright.generate.chat import Chat
from tilewright.generate.chat_template import ChatTemplate
from tilewright.generate.conversation import LENGTH, STOP, Conversation, Piece, Step
from tilewright.generate.feed import DECODE, PREFILL
from tilewright.generate.language_model import LanguageModel
from tilewright.generate.model_folder import ModelFolder, Tokenizer
from tilewright.generate.reference import GreedyReference
from tilewright.generate.sampling import GREEDY, Sampler
from tilewright.generate.state_file import load_state, save_state
from tilewright.generate.text_stream import TextStream, Words
from tilewright.generate.vocabulary import Vocabulary

__all__ = [
    "DECODE", "GREEDY", "LENGTH", "PREFILL", "STOP", "Chat", "ChatTemplate", "Conversation", "GreedyReference",
    "LanguageModel", "ModelFolder", "Piece", "Sampler", "Step", "TextStream", "Tokenizer", "Vocabulary", "Words",
    "load_state", "save_state",
]  # fmt: skip
