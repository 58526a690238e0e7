"""Faults are proved to change nothing only where they do not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from verification.mutants.equivalent import Verdict, prover
from verification.mutants.gates import FALSE, KINDS, TRUE, Gates

#: Faults: 1 in what `seen` says anyhow, 2 in what only `spare` keeps, 3 in when `sum` counts, 4 in what is written to
#: memory, 5 in a bit that could only be seen in a state that is never reached, 6 in a register that is an output, 7 in
#: what is there at the start alone, 8 in a state that only others like it lead to, 9 in a field while it is not valid,
#: 10 in a bit of memory that only `spare` keeps, 11 in which bits are read.
_DESIGN = """module top(input clk, input a, input b, input c, input [3:0] fault, output reg [1:0] sum, output seen,
    output [3:0] read, output never, output reg last, output early, output late, output field, output field_valid);
  reg kept, spare, counts;
  reg one = 0, other = 0, first = 1;
  reg [3:0] nine = 0;
  reg [4:0] store[0:3];
  wire both = fault == 1 ? 1'b1 : a & b;
  wire [4:0] entry = store[fault == 11 ? ~sum : sum];
  assign seen = a | b | (both & a);
  assign read = entry;
  assign never = (fault == 5) & one & other;
  assign early = (fault == 7) & first;
  assign late = (fault == 8) & nine == 12;
  assign field_valid = a & c, field = fault == 9 ? b | ~a : b;
  always @(posedge clk) begin
    kept <= fault == 2 ? 1'b1 : a & c;
    spare <= spare ^ kept ^ entry[4];
    counts <= fault == 3 ? 1'b0 : c;
    if (counts) sum <= sum + 1;
    store[{c, a}] <= {fault == 10 ? 1'b0 : b, a, fault == 4 ? 1'b1 : b, c, counts};
    last <= fault == 6 ? 1'b0 : a;
    one <= a;
    other <= ~a;
    first <= 0;
    nine <= nine == 9 ? 0 : nine + 1;
  end
endmodule"""
_SCRIPT = "read_verilog design.v\nhierarchy -top top\nproc\nflatten\nmemory_collect\nmemory_unpack\nopt_clean"


@pytest.mark.slow
def test_what_is_proved(tmp_path: Path) -> None:
    (tmp_path / "design.v").write_text(_DESIGN.replace("reg kept, spare", "(* keep *) reg kept, spare"))
    made = prover(_SCRIPT, tmp_path, "top", "fault", lambda port: "field_valid" if port == "field" else None)
    assert all(made.verdict(number) == Verdict(True) for number in (1, 5, 9, 12))  # there is no fault 12
    assert made.verdict(2) == Verdict(True, ("kept[0]", "spare[0]"))
    memory = made.verdict(10)
    assert memory.equivalent and len(memory.registers) == 2 and "DATA[4]" in memory.registers[0]
    seen = {number: made.verdict(number).seen for number in (3, 4, 6, 7, 8, 11)}
    outputs = {3: "sum[0]", 4: "read[2]", 6: "last[0]", 7: "early[0]", 8: "late[0]", 11: "read[0]"}
    assert seen == {number: f"output {name}" for number, name in outputs.items()}
    assert str(made.verdict(8)) == "not proved, output late[0] may differ"


def test_gates() -> None:
    """Each kind of gate on constants and on variables is what its name says."""
    wanted = {
        "$_NOT_": lambda a: not a, "$_BUF_": lambda a: a, "$_AND_": lambda a, b: a and b,
        "$_NAND_": lambda a, b: not (a and b), "$_OR_": lambda a, b: a or b, "$_NOR_": lambda a, b: not (a or b),
        "$_XOR_": lambda a, b: a != b, "$_XNOR_": lambda a, b: a == b, "$_ANDNOT_": lambda a, b: a and not b,
        "$_ORNOT_": lambda a, b: a or not b, "$_MUX_": lambda a, b, s: b if s else a,
    }  # fmt: skip
    assert wanted.keys() == KINDS.keys()
    for kind, (names, make) in KINDS.items():
        gates = Gates()
        variables = [gates.variable() for _ in names]
        literal = make(gates, *variables)
        for values in itertools.product((False, True), repeat=len(names)):
            expected = bool(wanted[kind](*values))
            assert make(gates, *(TRUE if v else FALSE for v in values)) == (TRUE if expected else FALSE)
            known = {v >> 1: value for v, value in zip(variables, values, strict=True)}
            assert _evaluate(gates, literal, known) == expected


def _evaluate(gates: Gates, literal: int, known: dict[int, bool]) -> bool:
    inputs = gates.inputs[literal >> 1]
    if inputs is None:
        value = known.get(literal >> 1, False)
    else:
        value = all(_evaluate(gates, i, known) for i in inputs)
    return value != bool(literal & 1)


def test_equal_structure_is_one_node() -> None:
    gates = Gates()
    a, b = gates.variable(), gates.variable()
    assert gates.both(a, b) == gates.both(b, a) and gates.either(a, a ^ 1) == TRUE and gates.both(a, a ^ 1) == FALSE
    assert gates.choose(a, a, b) == a and gates.differ(a, a) == FALSE and gates.differ(a, a ^ 1) == TRUE
