# %% [markdown]
# # A board without a host, simulated
#
# A RISC-V core beside the NPU runs the whole network, and answers over a serial line. This is the SoC of a ULX3S,
# Verilated, with its flash memory and SDRAM: what comes over the line is what the board would say.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tilewright as tw
from tilewright.fpga.points import point_of
from tilewright.fpga.sim.standalone import standalone_line
from tilewright.isa.config import preset
from tilewright.measure.demo import DIGITS
from tilewright.standalone.ask import SimulationLine
from tilewright.standalone.build import board_with_core
from tilewright.standalone.client import Client
from tilewright.standalone.firmware import HOST, firmware

config = preset("tiny")
program = tw.compile_program(DIGITS / "digits_int8.onnx", config, host=HOST)
image = firmware(program).image
board = board_with_core("ulx3s_85f")
print(f"{len(image):,} bytes for the flash memory: firmware, kernels, network")

# %% [markdown]
# ## Power on, and ask

# %%
point = point_of(board, config)
raw = standalone_line(board, config, point)
raw.set_flash(b"\xff" * board.alone.place.offset + image)
line, said = SimulationLine(raw), []
client = Client(line, said.append)
client.wait()
digit = np.load(DIGITS / "digits_test.npz")
pixels = digit["images"][:1].astype(np.float32) / 16
client.load(np.ascontiguousarray(pixels).tobytes())
client.infer(1)
(scores,) = client.outputs(program.outputs).values()
print("\n".join([*said[:4], "...", *said[-4:]]))

# %% [markdown]
# ## The answer
#
# The same bytes as on the functional simulator.

# %%
host = tw.compile(DIGITS / "digits_int8.onnx", config=config)
(expected,) = tw.Device("functional").run(host, {host.inputs[0].name: pixels}).values()
assert np.array_equal(np.asarray(scores).reshape(-1), np.asarray(expected).reshape(-1))
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained", width_ratios=(1, 2))
left.imshow(pixels[0, 0], cmap="gray_r")
left.axis("off")
right.bar(range(10), np.asarray(scores).reshape(-1), color="#4c78a8")
right.set(xticks=range(10), xlabel="digit", ylabel="score")
right.set_title(f"the board reads {int(np.argmax(scores))}; it is {digit['labels'][0]}", loc="left")
plt.show()
