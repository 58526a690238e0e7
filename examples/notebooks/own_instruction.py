# %% [markdown]
# # An instruction of my own, from the table to the RTL
#
# An instruction is a row in a table. Assembler, encoder and the decoder in hardware follow from the row. Here the row
# is added at run time, before anything is derived; in a checkout it is a line in `isa/instructions.py`.

# %%
import matplotlib.pyplot as plt
from amaranth.sim import Simulator

from tilewright.isa import instructions
from tilewright.isa.fields import HEADER, INSTRUCTION_BITS, Field

ROW = instructions._i(
    "VECTOR_SCALE", 0x36, "Sets a factor.",
    Field("factor", 24, signed=True, doc="the multiplier"),
    Field("level", 3, doc="0..vector_loops-1", below="vector_loops"),
    configures=True,
)  # fmt: skip
if "VECTOR_SCALE" not in instructions.BY_NAME:
    instructions.INSTRUCTIONS += (ROW,)
    names, opcodes = instructions.indexed(instructions.INSTRUCTIONS)
    instructions.BY_NAME.update(names)
    instructions.BY_OPCODE.update(opcodes)

# %% [markdown]
# ## Text and bits

# %%
from tilewright.isa.assembler import assemble, disassemble_one
from tilewright.isa.encoding import decode, to_bytes

(operation,) = assemble("VECTOR_SCALE factor=-5 level=2")
word = int.from_bytes(to_bytes([operation]), "little")
print(f"{disassemble_one(decode(word))}\n{word:#034x}")

# %%
figure, axes = plt.subplots(figsize=(10, 1.9), layout="constrained")
fields = [*HEADER, *(f for f in ROW.by_name.values() if f not in HEADER)]
for number, f in enumerate(fields):
    axes.barh(0, f.bits, left=f.low, color=f"C{number % 10}", edgecolor="white")
    axes.text(f.low + f.bits / 2, 0, f.name, ha="center", va="center", rotation=90 if f.bits < 12 else 0, fontsize=8)
for bit in range(INSTRUCTION_BITS):
    axes.text(bit + 0.5, -0.6, str(word >> bit & 1), ha="center", fontsize=5)
axes.set(xlim=(INSTRUCTION_BITS, 0), ylim=(-0.8, 0.5), yticks=[], xlabel="bit")
axes.set_title("VECTOR_SCALE factor=-5 level=2", loc="left")
plt.show()

# %% [markdown]
# ## The decoder in hardware
#
# Amaranth simulates the decoder of the RTL: it knows the instruction, and refuses levels that this machine does not
# have.

# %%
from tilewright.hw.issue.decoder import Decoder
from tilewright.isa.config import preset

config = preset("tiny")
decoder, legal = Decoder(config), []
levels = range(8)
low = ROW.by_name["level"].low


async def bench(context) -> None:
    """Shows the decoder the instruction with every level."""
    for level in levels:
        context.set(decoder.word, word & ~(7 << low) | level << low)
        await context.delay(1e-9)
        legal.append((context.get(decoder.legal), context.get(decoder.operands_ok)))


simulator = Simulator(decoder)
simulator.add_testbench(bench)
simulator.run()
assert [bool(ok) for _, ok in legal] == [level < config.vector_loops for level in levels]

# %%
figure, axes = plt.subplots(figsize=(8, 2.2), layout="constrained")
for place, title in enumerate(("legal", "operands_ok")):
    wave = [sample[place] for sample in legal]
    axes.step(levels, [0.7 * value - place for value in wave], where="post", linewidth=2, label=title)
axes.set(yticks=[0, -1], yticklabels=["legal", "operands_ok"], xlabel="level")
axes.set_title(f"{config.name} has {config.vector_loops} levels", loc="left")
plt.show()

# %% [markdown]
# What the instruction does is written once for each model of the machine; CONTRIBUTING.md has the list of files.
