"""`Chat`: turns of a user and of a model, by the model's chat template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.generate.chat_template import ChatTemplate, Message
from tilewright.generate.conversation import Conversation, Piece
from tilewright.generate.text_stream import Words


class Chat:
    """A conversation of messages.

    Args:
        conversation: keeps the tokens; only what is new of each turn is computed.
        words: texts of tokens.
        template: makes one text of the messages.
        messages: that were exchanged before, such as one of the role "system".
    """

    def __init__(
        self, conversation: Conversation, words: Words, template: ChatTemplate, messages: Sequence[Message] = ()
    ) -> None:
        self.conversation, self.words, self.template = conversation, words, template
        self.messages = list(messages)

    def answer(self, text: str, most: int, **options: Any) -> Iterator[Piece]:
        """The answer to a turn of the user, as it comes.

        Args:
            most: tokens of the answer; it ends earlier where the model knows no more positions.
            options: `sampler`, `stop`, `stop_texts` as of `Conversation.write`; others are handed to the device.

        Raises:
            InputError: the template refuses the messages, or they are too long for the model.
        """
        said = ""
        messages = [*self.messages, {"role": "user", "content": text}]
        for piece in write_answer(self.conversation, self.words, self.template.text(messages), most, **options):
            said += piece.text
            if piece.finish:
                self.messages = [*messages, {"role": "assistant", "content": said}]
            yield piece


def write_answer(conversation: Conversation, words: Words, text: str, most: int, **options: Any) -> Iterator[Piece]:
    """Continues a text, of which the conversation may have computed a part; see `Chat.answer`."""
    language = conversation.language
    tokens = conversation.encode(words, text, special=False)
    language.check(tokens, 1)
    conversation.follow(tokens)
    count = min(most, language.room(len(tokens)))
    yield from conversation.write(words, [], count, text=text, **options)
