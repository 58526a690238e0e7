"""Conversations in files: tokens and cache, as an .npz of numpy."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilewright.common import store
from tilewright.errors import InputError, UsageError
from tilewright.generate.chat_template import Message
from tilewright.generate.conversation import Conversation
from tilewright.store.files import check_readable, write_bytes

_STATE = "state."
_HEADER = 4096
"""Bytes that an array's header may take."""
_MOST_TEXT = 64 << 20
"""Bytes of the messages."""
_ROLES = ("system", "user", "assistant")


def save_state(path: str | Path, conversation: Conversation, messages: Sequence[Message] = ()) -> None:
    """Writes a conversation to a file.

    Args:
        path: of the file.
        messages: of a chat.

    Raises:
        UsageError: it cannot be written.
    """
    program = conversation.language.program
    arrays = {_STATE + name: value for name, value in conversation.states().items()}
    file = io.BytesIO()
    np.savez(
        file,
        allow_pickle=False,
        digest=np.array(program.content_hash()),
        program=np.array(program.name),
        position=np.array(conversation.computed),
        tokens=np.array(conversation.tokens, np.int64),
        messages=_bytes(list(messages)),
        text=_bytes(conversation.known_text),
        **arrays,
    )
    write_bytes(path, file.getvalue())


def load_state(path: str | Path, conversation: Conversation) -> list[Message]:
    """Goes on with the conversation in a file. Returns the messages of a chat.

    Raises:
        UsageError: the file cannot be read, is damaged, or is of another program.
    """
    check_readable(path)
    language = conversation.language
    states = {_STATE + s.name: s.begin for s in language.program.states}
    limits = {name: int(np.prod(t.shape)) * np.dtype(t.dtype).itemsize for name, t in states.items()}
    limits |= {"digest": 1024, "program": 1 << 16, "position": 8, "tokens": 8 * (language.context + 1)}
    limits |= {"messages": _MOST_TEXT, "text": _MOST_TEXT}
    try:
        with store.opened(path) as file, zipfile.ZipFile(file) as whole:
            sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in whole.infolist()}
            arrays = {}
            for name in ("digest", "program", "position", "tokens", "messages", "text", *states):
                if name in sizes and (name == "digest" or sizes[name] <= limits[name] + _HEADER):
                    with whole.open(f"{name}.npy") as member:
                        arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                if name == "program" and not {"digest", "program"} - arrays.keys():
                    _check_program(path, conversation, str(arrays["digest"]), str(arrays["program"]))
        tokens, position = arrays["tokens"].tolist(), int(arrays["position"])
        messages, text = (json.loads(arrays[name].tobytes()) for name in ("messages", "text"))
        held = {s.name: arrays[_STATE + s.name] for s in language.program.states}
        sound = all(isinstance(token, int) and 0 <= token < language.tokens for token in tokens)
        if (
            not sound
            or len(tokens) > language.context + 1
            or not 0 <= position <= len(tokens)
            or not all(map(_is_message, messages))
        ):
            raise ValueError
        if text is not None and not (isinstance(text[0], str) and 0 <= int(text[1]) <= len(tokens)):
            raise ValueError
        conversation.restore(tokens, position, held)
        conversation.known_text = (text[0], int(text[1])) if text is not None else None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, EOFError, MemoryError, zipfile.BadZipFile, NotImplementedError,
            RuntimeError, InputError):  # fmt: skip
        raise UsageError(f"{path} is no saved conversation, or damaged; --save-state writes them") from None
    return list(messages)


def _check_program(path: str | Path, conversation: Conversation, digest: str, name: str) -> None:
    """Raises `UsageError` for a state of another program."""
    program = conversation.language.program
    if digest != program.content_hash():
        other = "another compilation" if name == program.name else "another model"
        raise UsageError(
            f"{path} is a conversation of {name} ({other}, program {digest[:12]}), not of this {program.name} "
            f"(program {program.content_hash()[:12]}); it goes on with the program and options it was saved with"
        )


def _bytes(value: object) -> np.ndarray:
    """JSON as an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _is_message(found: object) -> bool:
    return isinstance(found, dict) and found.get("role") in _ROLES and isinstance(found.get("content"), str)
