"""The instruction decoder, generated from the instruction table."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.table import header, instructions_on, is_instruction
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import HEADER, INSTRUCTION_BITS, Field
from tilewright.isa.instructions import BY_NAME, Engine


class Decoder(wiring.Component):
    """Decodes the engine of an instruction and checks its operands, as `tilewright.isa.encoding.check` does.

    Latency: 0 cycles (combinational).

    Parameters:
        config: the limits.

    Ports:
        word: instruction.
        engine: engine number; 0 = FETCH (END).
        legal: the opcode is in the table, and the machine has its unit.
        operands_ok: all fields within the limits, waits and signals distinct, none where none may be.
        end: it is END.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "word": In(INSTRUCTION_BITS),
                "engine": Out(range(max(Engine) + 1)),
                "legal": Out(1),
                "operands_ok": Out(1),
                "end": Out(1),
            }
        )

    def _violations(self, f: Field) -> list[Value]:
        """Returns conditions under which field `f` is out of its limits; only those its width does not rule out."""
        bits = self.word[f.low : f.low + f.bits]
        value = bits.as_signed() if f.signed else bits
        low, high = f.limits(self.config)
        violations = []
        if high < f.maximum:
            violations.append(value > high)
        if low > f.minimum:
            violations.append(value < low)
        return violations

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.word
        with m.Switch(header(word, "opcode")):
            for instruction in instructions_on(self.config):
                with m.Case(instruction.opcode):
                    m.d.comb += [self.engine.eq(instruction.engine), self.legal.eq(1)]
        m.d.comb += self.end.eq(is_instruction(word, BY_NAME["END"].name))

        bad: list[Value] = []
        for f in HEADER[1:]:
            bad += self._violations(f)
        for a, b in (("wait0", "wait1"), ("signal0", "signal1")):
            bad.append((header(word, a) != 0) & (header(word, a) == header(word, b)))
        names_semaphore = Cat(header(word, f.name) for f in HEADER[1:]).any()
        for instruction in instructions_on(self.config):
            mine: list[Value] = []
            for f in instruction.fields:
                mine += self._violations(f)
            if not instruction.takes_semaphores:
                mine.append(names_semaphore)
            if mine:
                bad.append(is_instruction(word, instruction.name) & Cat(mine).any())
        m.d.comb += self.operands_ok.eq(~Cat(bad, C(0, 1)).any())
        return m
