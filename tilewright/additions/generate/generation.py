"""A generation of the command line: its tokens, how they compare with the reference, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.cli import terminal
from tilewright.generate.chat import Chat
from tilewright.generate.conversation import Conversation, Piece, Step
from tilewright.generate.feed import DECODE
from tilewright.generate.reference import GreedyReference
from tilewright.generate.sampling import GREEDY, Sampler
from tilewright.generate.speed import Speed
from tilewright.generate.text_stream import Words


@dataclass
class Ends:
    """The end of a text, and the choice of its tokens.

    Attributes:
        count: tokens at most.
        sampler: chooses them.
        stop: numbers of tokens that stop.
        stop_texts: texts that do.
    """

    count: int
    sampler: Sampler = GREEDY
    stop: list[int] = field(default_factory=list)
    stop_texts: list[str] = field(default_factory=list)

    def options(self) -> dict[str, Any]:
        """Options of `Conversation.write` but the number of tokens."""
        return {"sampler": self.sampler, "stop": self.stop, "stop_texts": self.stop_texts}


@dataclass
class Generation:
    """Tokens of one generation, and how they compare with the reference.

    Attributes:
        prompt: numbers of its tokens.
        steps: one for each token made.
        text: that they stand for, None where tokens are numbers.
        finish: why they end, "stop" or "length".
        differences: tokens, by number from 0, for which the reference would have chosen another one.
        unequal: tokens whose logits differ from the reference's in any bit.
        reference: what they were compared with, "" for nothing.
    """

    prompt: list[int]
    steps: list[Step] = field(default_factory=list)
    text: str | None = None
    finish: str = ""
    differences: list[int] = field(default_factory=list)
    unequal: int = 0
    reference: str = ""

    def make(
        self,
        conversation: Conversation,
        words: Words | None,
        ends: Ends,
        show: Callable[[str], None],
        reference: GreedyReference | None,
    ) -> None:
        """Continues the prompt.

        Args:
            words: texts of tokens, None for numbers.
            show: takes text as it comes.
            reference: to compare with, None for nothing.
        """
        self.reference = reference.name if reference is not None else ""
        self.text = "" if words is not None else None
        before, first = self.prompt, len(conversation.tokens) + len(self.prompt)
        for number, piece in enumerate(self._pieces(conversation, words, ends)):
            self.steps.append(piece.step)
            self.text = self.text + piece.text if self.text is not None else None
            self.finish = piece.finish
            show(piece.text)
            if reference is not None:
                wanted = reference.logits(before)
                self.unequal += bool((wanted != piece.step.logits).any())
                if ends.sampler.choose(wanted, first + number) != piece.step.token:
                    self.differences.append(number)
            before = [piece.step.token]

    def _pieces(self, conversation: Conversation, words: Words | None, ends: Ends) -> Iterator[Piece]:
        if words is not None:
            yield from conversation.write(words, self.prompt, ends.count, **ends.options())
            return
        comma = "," if self.prompt else ""
        steps = conversation.generate(self.prompt, ends.count, sampler=ends.sampler, stop=ends.stop)
        for step in steps:
            yield Piece(f"{comma}{step.token}", step, step.finish)
            comma = ","


@dataclass
class Turn:
    """A turn of a chat: what the user said, the answer, its number of tokens, and why it ends."""

    user: str
    assistant: str = ""
    tokens: int = 0
    finish_reason: str = ""


def chat(chat: Chat, turns: Iterator[str], ends: Ends, show: Callable[[str], None]) -> Iterator[Turn]:
    """Answers turns of a user, one after the other."""
    for text in turns:
        turn = Turn(text)
        for piece in chat.answer(text, ends.count, **ends.options()):
            turn.assistant += piece.text
            turn.tokens += 1
            turn.finish_reason = piece.finish
            show(piece.text)
        yield turn


def summary(
    conversation: Conversation, made: Generation | list[Turn], found: dict[str, Speed], sampler: Sampler
) -> dict[str, Any]:
    """Returns the result for JSON."""
    program = conversation.language.program
    decode = found.get(DECODE)
    result: dict[str, Any] = {"model": program.name, "config": program.config.name, "backend": conversation.device.name}
    if isinstance(made, Generation):
        result |= {
            "prompt": made.prompt, "tokens": [step.token for step in made.steps], "text": made.text,
            "finish_reason": made.finish, "simulation_seconds": sum(step.seconds for step in made.steps),
        }  # fmt: skip
    else:
        result["turns"] = [asdict(turn) for turn in made]
    result |= {
        "position": conversation.computed,
        "tokens_per_second": decode.per_second if decode is not None else None,
        "sampling": asdict(sampler) if sampler.temperature else None,
        "entries": {name: speed.to_dict() for name, speed in found.items()},
    }
    if isinstance(made, Generation) and made.reference:
        result["check"] = {
            "reference": made.reference, "different_tokens": made.differences, "unequal_logits": made.unequal,
        }  # fmt: skip
    return result


def show_speeds(found: dict[str, Speed], prompt: int | None) -> None:
    """Prints the lines after the text.

    Args:
        prompt: its tokens, None for those of several turns.
    """
    console = terminal.table_console()
    for name, speed in found.items():
        whole = speed.runs == 1 and prompt is not None
        what = "each token" if name == DECODE else f"the prompt of {prompt} tokens" if whole else "each run of a prompt"
        unit = "tokens/s" if name == DECODE else "prompts/s" if whole else "runs/s"
        console.print(f"{what}: {speed.latency.sentence().replace('inferences/s', unit)}", markup=False)
        of_what = "a token" if name == DECODE else "a run"
        console.print(
            f"  {speed.bus_bytes:,} bytes {of_what} over the bus, which reads {speed.bus_fraction:.1%} of the time",
            markup=False,
        )


def show_check(made: Generation) -> None:
    """Prints how tokens compare with the reference."""
    if made.reference:
        count = len(made.steps)
        same = f"{count - len(made.differences)} of {count} tokens are those of {made.reference}"
        equal = f"logits equal to the bit for {count - made.unequal}"
        terminal.table_console().print(f"{same}; {equal}", markup=False)
