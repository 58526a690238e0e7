"""Requests and answers of chat completions, as JSON."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.errors import UsageError
from tilewright.generate.chat_template import Message
from tilewright.generate.generation import Ends
from tilewright.generate.sampling import Sampler

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1, None), "best_of": (1, None), "echo": (False, None), "logprobs": (False, None), "top_logprobs": (0, None),
    "tools": ([], None), "functions": ([], None), "presence_penalty": (0, None), "frequency_penalty": (0, None),
    "logit_bias": ({}, None), "suffix": ("", None), "response_format": ({"type": "text"}, None),
}  # fmt: skip
"""Fields that would change the answer, with the values at which they do not."""
_MOST_STOPS = 16


class RequestError(Exception):
    """A request that is refused.

    Attributes:
        status: of HTTP.
        field: of the request that is wrong.
        code: a word for programs.
    """

    def __init__(self, message: str, status: int = 400, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field, self.code = status, field, code

    def to_dict(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.field, "code": self.code}}


@dataclass(frozen=True)
class Request:
    """The wish of a client.

    Attributes:
        messages: of a chat; None for a `prompt`.
        prompt: text to continue.
        ends: when the answer ends, and how its tokens are chosen.
        stream: pieces are sent as they come.
        usage: the last piece of a stream counts tokens.
    """

    messages: list[Message] | None
    prompt: str
    ends: Ends
    stream: bool
    usage: bool

    @staticmethod
    def parse(body: bytes, chat: bool, ends: Ends, seeded: bool) -> Request:
        """Parses a request.

        Args:
            body: of the request, JSON.
            chat: it has messages, not a prompt.
            ends: what counts where the request says nothing.
            seeded: the seed of `ends` is for all requests; else one is drawn for each.

        Raises:
            RequestError: a field is missing, of another kind, or asks for what there is not.
        """
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            raise RequestError("the request is no JSON") from None
        if not isinstance(given, dict):
            raise RequestError("the request must be a JSON object")
        for name, accepted in _NEUTRAL.items():
            if name in given and given[name] not in accepted:
                raise RequestError(f"{name} is not supported: leave it out", field=name)
        messages = _messages(given) if chat else None
        prompt = "" if chat else given.get("prompt")
        if not isinstance(prompt, str) or not (chat or prompt):
            raise RequestError("prompt must be a text that is not empty", field="prompt")
        longest = next((n for n in ("max_completion_tokens", "max_tokens") if given.get(n) is not None), None)
        count = _number(given, longest, 1, 1 << 31, whole=True) if longest else ends.count
        options = given.get("stream_options") or {}
        if not isinstance(options, dict):
            raise RequestError("stream_options must be an object", field="stream_options")
        return Request(
            messages, prompt,
            replace(ends, count=int(count), sampler=_sampler(given, ends.sampler, seeded),
                    stop_texts=[*ends.stop_texts, *_stops(given)]),
            given.get("stream") is True, options.get("include_usage") is True,
        )  # fmt: skip


def _messages(given: Mapping[str, Any]) -> list[Message]:
    found = given.get("messages")
    if not isinstance(found, list) or not found:
        raise RequestError("messages must be a list of at least one message", field="messages")
    result: list[Message] = []
    for number, message in enumerate(found):
        where = f"messages[{number}]"
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in _ROLES:
            raise RequestError(f"{where}.role must be one of {', '.join(_ROLES)}", field=f"{where}.role")
        content = message.get("content")
        if isinstance(content, list):  # of parts
            parts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
                     for part in content]  # fmt: skip
            texts = [part for part in parts if isinstance(part, str)]
            content = "".join(texts) if len(texts) == len(parts) else None
        if not isinstance(content, str):
            raise RequestError(f"{where}.content must be text", field=f"{where}.content")
        result.append({"role": _ROLES[role], "content": content})
    return result


def _stops(given: Mapping[str, Any]) -> list[str]:
    found = given.get("stop")
    found = [found] if isinstance(found, str) else [] if found is None else found
    if not isinstance(found, list) or len(found) > _MOST_STOPS or not all(isinstance(x, str) and x for x in found):
        raise RequestError(f"stop must be a text, or up to {_MOST_STOPS} texts, none of them empty", field="stop")
    return found


def _sampler(given: Mapping[str, Any], sampler: Sampler, seeded: bool) -> Sampler:
    changes: dict[str, Any] = {}
    for name, least, most, whole in (
        ("temperature", 0, 100, False), ("top_p", 0, 1, False), ("top_k", 0, 1 << 31, True),
        ("seed", -(1 << 63), (1 << 64) - 1, True),
    ):  # fmt: skip
        if given.get(name) is not None:
            changes[name] = _number(given, name, least, most, whole)
    if "seed" in changes:
        changes["seed"] %= 1 << 64
    elif not seeded:
        changes["seed"] = secrets.randbits(63)
    try:
        return replace(sampler, **changes)
    except UsageError as error:
        raise RequestError(str(error), field="top_p") from None


def _number(given: Mapping[str, Any], name: str, least: float, most: float, whole: bool) -> float:
    found = given[name]
    kinds = (int,) if whole else (int, float)
    if isinstance(found, bool) or not isinstance(found, kinds) or not least <= found <= most:
        what = "a whole number" if whole else "a number"
        raise RequestError(f"{name} must be {what} from {least} to {most}, not {str(found)[:40]!r}", field=name)
    return found


class Answer:
    """The JSON of an answer.

    Args:
        request: what it answers.
        model: name of the model.
    """

    def __init__(self, request: Request, model: str) -> None:
        self._chat, self._seed = request.messages is not None, request.ends.sampler.seed
        self._drawn = request.ends.sampler.temperature > 0
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{secrets.token_hex(12)}", "created": int(time.time()),
            "model": model,
        }  # fmt: skip

    def whole(self, text: str, finish: str, prompt: int, made: int) -> dict[str, Any]:
        """The answer in one."""
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
        found = self._head | {
            "object": "chat.completion" if self._chat else "text_completion", "choices": [choice],
            "usage": usage(prompt, made),
        }  # fmt: skip
        return found | ({"seed": self._seed} if self._drawn else {})

    def piece(self, text: str | None, finish: str | None = None) -> dict[str, Any]:
        """A piece of a stream; None for the first one of a chat, which has the role alone."""
        if not self._chat:
            content: dict[str, Any] = {"text": text or ""}
        elif text is None:
            content = {"delta": {"role": "assistant", "content": ""}}
        else:
            content = {"delta": {"content": text} if text else {}}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return self._head | {"object": kind, "choices": [choice]}

    def count(self, prompt: int, made: int) -> dict[str, Any]:
        """The last piece of a stream, with the numbers of tokens."""
        return self.piece("") | {"choices": [], "usage": usage(prompt, made)}


def usage(prompt: int, made: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
