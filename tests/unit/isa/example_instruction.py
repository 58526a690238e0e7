"""An instruction more, as a row of the table. Run as a script, so that everything is derived from the longer table.

It prints what has become of the row, as JSON; `test_adding_an_instruction.py` looks at it.
"""

from __future__ import annotations

import json

from tilewright.isa import instructions
from tilewright.isa.fields import Field

ROW = instructions._i(
    "VECTOR_SCALE", 0x36, "Sets the factor of the example.",
    Field("factor", 24, signed=True, doc="multiplier of the example"),
    Field("level", 3, doc="0..vector_loops-1", below="vector_loops"),
    configures=True,
)  # fmt: skip
instructions.INSTRUCTIONS += (ROW,)
_NAMES, _OPCODES = instructions.indexed(instructions.INSTRUCTIONS)
instructions.BY_NAME.update(_NAMES)
instructions.BY_OPCODE.update(_OPCODES)


def main() -> None:
    from amaranth.sim import Simulator

    from tilewright.hw.issue.decoder import Decoder
    from tilewright.isa.assembler import assemble, disassemble_one
    from tilewright.isa.config import preset
    from tilewright.isa.encoding import decode, from_bytes, to_bytes
    from tilewright.isa.generate.outputs import OUTPUTS

    text = "VECTOR_SCALE factor=-5 level=2"
    (operation,) = assemble(text)
    word = int.from_bytes(to_bytes([operation]), "little")
    decoder, decoded = Decoder(preset("tiny")), []

    async def bench(ctx) -> None:  # type: ignore[no-untyped-def]
        for level in (2, preset("tiny").vector_loops):
            ctx.set(decoder.word, word & ~(7 << ROW.by_name["level"].low) | level << ROW.by_name["level"].low)
            await ctx.delay(1e-9)
            decoded.append([ctx.get(decoder.legal), ctx.get(decoder.operands_ok), ctx.get(decoder.engine)])

    simulator = Simulator(decoder)
    simulator.add_testbench(bench)
    simulator.run()
    print(json.dumps({
        "word": f"{word:x}",
        "text": [disassemble_one(from_bytes(to_bytes([operation]))[0]), disassemble_one(decode(word))],
        "decoded": decoded,
        "files": {str(path): make() for path, make in OUTPUTS.items()},
    }))  # fmt: skip


if __name__ == "__main__":
    main()
