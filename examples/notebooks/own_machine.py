# %% [markdown]
# # My own machine in four lines, and a sweep with its front

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import tilewright as tw
from tilewright.measure.demo import DIGITS

model = DIGITS / "digits_int8.onnx"
mine = tw.NpuConfig.load("small").with_(name="mine", block_in=16, axi_data_bits=64)
program = tw.compile(model, config=mine)
print(f"{mine.name}: {mine.macs_per_cycle} multipliers, {tw.explain(program).cycles:,} cycles for a digit")

# %% [markdown]
# ## Which machine is best?
#
# A space of machines is a file. Every point is compiled and simulated; area and clock come from calibrated models.

# %%
SPACE = """
base = "small"
[axes]
block_in = [4, 8, 16]
block_out = [4, 8, 16]
axi_data_bits = [32, 64]
[search]
method = "grid"
[objective]
minimise = ["geomean_cycles", "lut"]
"""


def sweep() -> tw.sweep.Table:
    """Returns the points of the space."""
    folder = Path(tempfile.mkdtemp())
    (folder / "space.toml").write_text(SPACE)
    tw.sweep(folder / "space.toml", folder / "points", [str(model)], jobs=1)
    return tw.sweep.load(folder / "points")


# %% [markdown]
# ## The front

# %%
if __name__ == "__main__":  # a sweep starts processes
    columns = sweep().columns
    done = [n for n, state in enumerate(columns["state"]) if columns["lut"][n] and columns["geomean_cycles"][n]]
    done.sort(key=lambda n: columns["lut"][n])
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    named = float("inf")
    for n in done:
        best, cycles = columns["front"][n], columns["geomean_cycles"][n]
        axes.scatter(columns["lut"][n], cycles, c="#e45756" if best else "#cccccc", zorder=2)
        if best and cycles < 0.9 * named:  # names that lie apart
            size = f" {columns['block_in'][n]} x {columns['block_out'][n]}, {columns['axi_data_bits'][n]} bits"
            axes.annotate(size, (columns["lut"][n], cycles), va="bottom")
            named = cycles
    front = sorted((columns["lut"][n], columns["geomean_cycles"][n]) for n in done if columns["front"][n])
    axes.step(*zip(*front), where="post", color="#e45756", linewidth=1)
    axes.set(xlabel="LUT4", ylabel="cycles of a digit", xscale="log", yscale="log")
    others = len(columns["state"]) - len(done)
    axes.set_title(f"{len(front)} machines on the front; {others} others lost before they were compiled", loc="left")
    plt.show()
