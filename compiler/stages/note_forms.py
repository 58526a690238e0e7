"""Forms of the notes of a program, which the compiler writes, and commands read that need nothing else of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: How notes about the whole program begin: commands that show nothing else of a program's notes show these.
UNUSED = "nothing runs on the NPU: "
SIXTEEN_BITS = "16-bit activations: "
OPEN_BATCH = "open batch: "
TUNED = "tuned: "
CONSTANT_CHANNELS = "constant channels: "

_OF_NODE = " runs on the CPU: "


def general(notes: Iterable[str]) -> list[str]:
    """Returns the notes of a program that are about all of it."""
    return [note for note in notes if note.startswith((UNUSED, SIXTEEN_BITS, OPEN_BATCH, TUNED, CONSTANT_CHANNELS))]


def is_tuned(notes: Iterable[str]) -> bool:
    """True if a program with these notes has schedules of the tuning log."""
    return any(note.startswith(TUNED) for note in notes)


def notes_of(reasons: Mapping[str, str]) -> list[str]:
    """The notes of single nodes, by name, that run on the CPU."""
    return [f"{name}{_OF_NODE}{reason}" for name, reason in reasons.items()]


def reasons_in(notes: Iterable[str]) -> dict[str, str]:
    """Returns the reasons that `notes_of` was made of, among notes of all kinds."""
    parts = (note.partition(_OF_NODE) for note in notes)
    return {name: reason for name, found, reason in parts if found}
