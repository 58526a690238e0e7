# %% [markdown]
# # From a float network to cycles
#
# A small network reads handwritten digits in floats. It becomes one of 8 bits, runs on the simulated NPU, and every
# byte is compared with onnxruntime. What is left is to see where the cycles go.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import tilewright as tw
from tilewright.measure.demo import DIGITS

held_back = np.load(DIGITS / "digits_test.npz")
images = held_back["images"].astype(np.float32) / 16
labels = held_back["labels"]

# %% [markdown]
# ## To 8 bits
#
# The first hundred images show which ranges the tensors have. `quantize` chooses scales, and what stays in floats.

# %%
quantised = tw.quantize(DIGITS / "digits_float.onnx", images[:100])
model = Path("digits.onnx").resolve()
quantised.save(model)
print(f"{model.stat().st_size} bytes, from {(DIGITS / 'digits_float.onnx').stat().st_size}")

# %% [markdown]
# ## Run, and compare every byte
#
# The functional simulator computes what the hardware does.

# %%
program = tw.compile(model, config="base")
device = tw.Device("functional")
name = program.inputs[0].name
scores = np.stack([next(iter(device.run(program, {name: image[None]}).values()))[0] for image in images[100:]])
found = scores.argmax(axis=1)
report = tw.check(model, keep="all")
assert report.ok
print(f"{(found == labels[100:]).mean():.1%} of {len(found)} digits read correctly; {report.summary()}")

# %%
figure, axes = plt.subplots(2, 8, figsize=(9, 2.8), layout="constrained")
for place, (image, digit) in zip(axes.flat, zip(images[100:], found)):
    place.imshow(image[0], cmap="gray_r")
    place.set_title(str(digit))
    place.axis("off")

# %% [markdown]
# ## Cycles
#
# The cycle-level simulator has the clock of the RTL. The bound is what no schedule can beat.

# %%
explained = tw.explain(program)
rows = explained.rows
figure, axes = plt.subplots(figsize=(9, 3.5), layout="constrained")
places = np.arange(len(rows))
axes.barh(places, [row.cycles for row in rows], color="#f58518", label="cycles")
axes.barh(places, [row.bound for row in rows], color="#4c78a8", label="bound")
axes.set_yticks(places, [row.layer.name[:40] for row in rows])
axes.invert_yaxis()
axes.set_xlabel("cycles")
axes.set_title(f"{explained.cycles:,} cycles, bound {explained.bound:,}", loc="left")
axes.legend()
plt.show()
