"""Answers to requests of several clients by one model on one device, each with its conversation."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.common.text import one_line
from tilewright.errors import InputError
from tilewright.generate.chat import write_answer
from tilewright.generate.chat_template import ChatTemplate
from tilewright.generate.conversation import Conversation, Piece
from tilewright.generate.language_model import LanguageModel
from tilewright.generate.requests import Request, RequestError
from tilewright.generate.text_stream import Words
from tilewright.runtime.devices import Runner

_TURN_SECONDS = 0.25
"""Time that an answer has the device while others wait."""
_MOST_WAITING = 64
log = logging.getLogger("tilewright.generate")


@dataclass
class Job:
    """An answer under way.

    Attributes:
        request: what it answers.
        pieces: what came of it; an exception ends it.
        prompt: number of its tokens, known with the first piece.
        left: the client does not want the rest.
    """

    request: Request
    pieces: queue.SimpleQueue[Piece | Exception] = field(default_factory=queue.SimpleQueue)
    prompt: int = 0
    left: bool = False
    conversation: Conversation | None = None
    answer: Iterator[Piece] | None = None


class Service:
    """Conversations of a model on a device. Answers take turns, token by token.

    A conversation is kept when its answer is over. A request that goes on where it ended computes only what is new; one
    that begins alike gets a copy of what both begin with. Where there are too many, that used longest ago goes.

    Args:
        language: the model.
        device: that it runs on, used by the service alone from now on.
        words: texts of tokens.
        template: of chats, None where the model has none.
        limit: conversations kept, and answers under way, at most.
    """

    def __init__(
        self, language: LanguageModel, device: Runner, words: Words, template: ChatTemplate | None, limit: int
    ) -> None:
        self.language, self._device, self._words, self._template = language, device, words, template
        self._limit = limit
        self._waiting: deque[Job] = deque()
        self._running: deque[Job] = deque()
        self._idle: list[Conversation] = []  # those used longest ago first
        self._wake = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="device", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Job:
        """Puts a request at the end of the queue. Raises `RequestError` where the queue is full."""
        job = Job(request)
        with self._wake:
            if self._ended or len(self._waiting) >= _MOST_WAITING:
                raise RequestError(f"{_MOST_WAITING} requests wait already; try again later", 503, code="overloaded")
            self._waiting.append(job)
            self._wake.notify()
        return job

    def close(self) -> None:
        """Ends answers under way, after the token that is computed now."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        """Gives the device to one answer after the other."""
        while True:
            with self._wake:
                while not (self._waiting or self._running or self._ended):
                    self._wake.wait()
                if self._ended:
                    for job in (*self._running, *self._waiting):
                        job.pieces.put(RequestError("the server ends", 503, code="shutdown"))
                    return
                while self._waiting and len(self._running) < self._limit:
                    self._running.append(self._waiting.popleft())
            job = self._running.popleft()
            if self._go_on(job):
                self._running.append(job)
            elif job.conversation is not None:
                self._idle.append(job.conversation)

    def _go_on(self, job: Job) -> bool:
        """Computes tokens of an answer for a while. Returns False when it is over."""
        until = time.monotonic() + _TURN_SECONDS
        try:
            if job.answer is None and not job.left:
                job.answer = self._begin(job)
            while not job.left and job.answer is not None:
                piece = next(job.answer)
                job.pieces.put(piece)
                if piece.finish:
                    break
                if time.monotonic() > until or self._ended:
                    return True
        except (RequestError, InputError) as error:
            job.pieces.put(error)
        except Exception as error:  # of the device: other answers may succeed
            log.error("an answer failed: %s: %s", type(error).__name__, one_line(error))
            job.conversation = None
            job.pieces.put(RequestError(f"the device failed: {one_line(error)}", 500, code="device_error"))
        return False

    def _begin(self, job: Job) -> Iterator[Piece]:
        """Chooses a conversation, and begins the answer."""
        request = job.request
        if request.messages is None:
            text = request.prompt
        elif self._template is None:
            raise RequestError("the model has no chat template: ask for /v1/completions", 400, code="no_chat_template")
        else:
            text = self._template.text(request.messages)
        special = request.messages is None
        tokens = self._words.encode(text, special)
        job.conversation, job.prompt = self._conversation(text, tokens), len(tokens)
        if not tokens:
            raise RequestError("the prompt is empty")
        if not self.language.room(len(tokens)):
            raise RequestError(
                f"the prompt has {len(tokens)} tokens; {self.language.program.name} knows {self.language.context} "
                "positions", code="context_length_exceeded",
            )  # fmt: skip
        return write_answer(
            job.conversation, self._words, text, request.ends.count, special=special, **request.ends.options()
        )

    def _conversation(self, text: str, tokens: list[int]) -> Conversation:
        """A conversation for these tokens, with as many of them computed as in any that is idle."""
        found: tuple[int, Conversation] | None = None
        for each in self._idle:
            same = each.common(each.encode(self._words, text) if each.knows(text) else tokens)
            if same and (found is None or same >= found[0]):
                found = same, each
        if found is None:
            chosen = Conversation(self.language, self._device)
        elif found[0] >= found[1].computed:  # the last token of an answer is not computed
            chosen = found[1]
            self._idle.remove(chosen)
        elif found[1].computed <= self.language.cache:
            chosen = found[1].fork(found[0])
        else:
            chosen = Conversation(self.language, self._device)
        while len(self._idle) + len(self._running) + 1 > self._limit:
            del self._idle[0]
        return chosen
