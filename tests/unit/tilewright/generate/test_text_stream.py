"""Text of tokens as they come: no half characters, nothing of a text that stops, and all of the rest."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tilewright.generate import TextStream


class Bytes:
    """A token a byte, as the tokens of characters that a tokenizer does not know."""

    def __len__(self) -> int:
        return 256

    def encode(self, text: str, special: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    def number(self, text: str) -> int | None:
        return None


def pieces(stream: TextStream, tokens: Sequence[int]) -> list[str]:
    found = []
    for token in tokens:
        found.append(stream.push(token))
        if stream.stopped:
            return found
    return [*found, stream.end()]


def test_characters_come_whole() -> None:
    found = pieces(TextStream(Bytes()), Bytes().encode("aé€😀b"))
    assert found == ["a", "", "é", "", "", "€", "", "", "", "😀", "b", ""]


def test_what_is_no_character_comes_as_one_that_says_so() -> None:
    assert "".join(pieces(TextStream(Bytes()), b"a\xffb\xe2\x82")) == "a\ufffdb\ufffd"
    assert "".join(pieces(TextStream(Bytes()), b"\xff" * 100)) == "\ufffd" * 100
    assert len([p for p in pieces(TextStream(Bytes()), b"\xff" * 100) if p]) > 4  # none waits for ever


@pytest.mark.parametrize(
    "stops, text, wanted",
    [
        (["END"], "one END two", "one "),
        (["END"], "one EN", "one EN"),
        (["END"], "EENDx", "E"),
        (["\n", "ab"], "xxab\n", "xx"),
        (["abab", "bab"], "ababx", ""),
        (["abac", "bab"], "ababx", "a"),
        (["é"], "caféx", "caf"),
        ([], "", ""),
    ],
)
def test_stop_texts(stops: list[str], text: str, wanted: str) -> None:
    stream = TextStream(Bytes(), stops)
    assert "".join(pieces(stream, Bytes().encode(text))) == wanted
    assert stream.stopped == (wanted != text) and stream.end() == ""


def test_a_possible_stop_waits() -> None:
    assert pieces(TextStream(Bytes(), ["###"]), b"a##b#") == ["a", "", "", "##b", "", "#"]


def test_random_texts_arrive_whole() -> None:
    random_ = random.Random(3)
    for _ in range(200):
        text = "".join(random_.choices("ab é€😀\n", k=random_.randrange(30)))
        stop = "".join(random_.choices("abé€", k=random_.randrange(1, 4)))
        before = Bytes().encode("".join(random_.choices("aé😀", k=3)))
        found = "".join(pieces(TextStream(Bytes(), [stop], before), Bytes().encode(text)))
        assert found == text.partition(stop)[0]
