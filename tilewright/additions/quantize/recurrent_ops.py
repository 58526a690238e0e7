"""Facts about LSTM, GRU and RNN that layers, preparing and writing share."""

from __future__ import annotations

GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}
"""Gates of each op, in the order of their weights."""

MAX_STEPS = 256
"""Maximum of steps of a sequence that become integers: the compiler writes each of them out."""
