"""A Liberty library of round numbers and circuits of its cells, whose energies the tests work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibration.energy import liberty

_GATE = """
cell ({name}) {{
  area : 10; cell_leakage_power : 2;
  {inputs}
  pin(Y) {{ direction : output; function : "{function}";
    internal_power() {{ related_pin : "A";
      rise_power(energy) {{ index_1 ("0.01, 0.03"); index_2 ("0.1, 0.2"); values ("0.02, 0.04", "0.06, 0.08"); }}
      fall_power(energy) {{ index_1 ("0.01, 0.03"); index_2 ("0.1, 0.2"); values ("0.04, 0.06", "0.08, 0.10"); }}
    }}
    timing() {{ related_pin : "A";
      rise_transition(energy) {{ index_1 ("0.01, 0.03"); index_2 ("0.1, 0.2"); values ("0.1, 0.1", "0.2, 0.2"); }}
      fall_transition(energy) {{ index_1 ("0.01, 0.03"); index_2 ("0.1, 0.2"); values ("0.1, 0.1", "0.2, 0.2"); }}
    }}
  }}
}}
"""
_PIN = "pin({name}) {{ direction : input; capacitance : 0.010; }}"
_HEAD = """
/* round numbers */
library(round) {
  time_unit : "1ns"; voltage_unit : "1V"; leakage_power_unit : "1nW"; capacitive_load_unit (1,pf);
  nom_voltage : 2.0;
  lu_table_template(energy) { variable_1 : total_output_net_capacitance; variable_2 : input_net_transition;
    index_1 ("1, 2"); index_2 ("1, 2"); }
  power_lut_template(passive) { variable_1 : input_transition_time; index_1 ("1, 2"); }
"""
_FLOP = """
cell (DFF) {
  area : 40; cell_leakage_power : 5;
  ff (IQ,IQN) { next_state : "D"; clocked_on : "CLK"; }
  pin(CLK) { direction : input; capacitance : 0.020; clock : true;
    internal_power() {
      rise_power(passive) { index_1 ("0.1, 0.3"); values ("0.10, 0.30"); }
      fall_power(passive) { index_1 ("0.1, 0.3"); values ("0.30, 0.50"); } } }
  pin(D) { direction : input; capacitance : 0.010;
    internal_power() {
      rise_power(passive) { index_1 ("0.1, 0.3"); values ("0.01, 0.03"); }
      fall_power(passive) { index_1 ("0.1, 0.3"); values ("0.03, 0.05"); } } }
  pin(Q) { direction : output; function : "IQ"; }
}
"""


def text() -> str:
    """INV, AND2, XOR2 and DFF."""
    cells = ""
    for name, function, pins in (("INV", "(!A)", "A"), ("AND2", "(A B)", "AB"), ("XOR2", "(A^B)", "AB")):
        cells += _GATE.format(name=name, function=function, inputs=" ".join(_PIN.format(name=pin) for pin in pins))
    return _HEAD + cells + _FLOP + "}\n"


def library(folder: Path) -> liberty.Library:
    path = folder / "round.lib"
    path.write_text(text(), encoding="utf-8")
    return liberty.load(path)


def cell(kind: str, **pins: int | str) -> dict[str, Any]:
    """A cell as Yosys writes it."""
    return {"type": kind, "connections": {pin: [net] for pin, net in pins.items()}}


def module(ports: dict[str, list[int | str]], cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"ports": {name: {"bits": bits} for name, bits in ports.items()}, "cells": cells, "netnames": {}}
