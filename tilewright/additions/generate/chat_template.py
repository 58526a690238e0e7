"""Chat templates: how the messages of a chat become one text, by Jinja."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.common.installation import told
from tilewright.common.text import one_line
from tilewright.errors import InputError, UsageError
from tilewright.generate.model_folder import ModelFolder

Message = Mapping[str, str]
"""A message: its "role" ("system", "user" or "assistant") and "content"."""

_MOST_CHARACTERS = 1 << 22


class ChatTemplate:
    """A template of `tokenizer_config.json`, in the form that models are published with.

    It runs in Jinja's sandbox: it comes with the model.

    Args:
        source: of the template.
        names: values it may use, such as `bos_token`.

    Raises:
        MissingPackageError: jinja2 is not installed. UsageError: it is no template.
    """

    def __init__(self, source: str, names: Mapping[str, Any] | None = None) -> None:
        try:
            import jinja2
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ModuleNotFoundError as error:
            raise (told(error, "language") or error) from None
        self._error = jinja2.TemplateError
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals |= {
            "raise_exception": self._refuse,
            "strftime_now": lambda form: datetime.datetime.now().strftime(form),
        }
        self._names = dict(names or {})
        try:
            self._template = environment.from_string(source)
        except self._error as error:
            raise UsageError(f"the chat template is damaged: {one_line(error)}") from None

    @staticmethod
    def of(folder: ModelFolder) -> ChatTemplate | None:
        """The template of a folder, None if it has none."""
        source = folder.template()
        if source is None:
            return None
        return ChatTemplate(source, {name: folder.special_text(name) for name in ("bos_token", "eos_token")})

    def text(self, messages: Sequence[Message]) -> str:
        """The text that an answer to the last message continues.

        Raises:
            InputError: the template takes no such messages.
        """
        try:
            pieces, size = [], 0
            for piece in self._template.generate(messages=list(messages), add_generation_prompt=True, **self._names):
                pieces.append(piece)
                size += len(piece)
                if size > _MOST_CHARACTERS:
                    raise InputError(f"the chat template makes more than {_MOST_CHARACTERS:,} characters")
            return "".join(pieces)
        except (self._error, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise InputError(f"the chat template refuses these messages: {one_line(error)}") from None

    def _refuse(self, text: str) -> None:
        raise self._error(text)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """JSON as it is: Jinja's own filter writes it for HTML."""
    return json.dumps(value, indent=indent, ensure_ascii=options.get("ensure_ascii", False))
