# %% [markdown]
# # What limits my network?
#
# Every cycle above the bound has a cause: padding of the array, waiting for weights, for VECTOR, for memory. This is
# ResNet-8, on two machines.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tilewright as tw
from tilewright import zoo
from tilewright.isa.timing import MemoryTiming
from tilewright.measure.explain import explain

model = zoo.build_quantized("resnet8")
programs = {config: tw.compile(model, config=config) for config in ("small", "base")}
explained = {config: tw.explain(program) for config, program in programs.items()}

# %% [markdown]
# ## Cycles by cause

# %%
CAUSES = [cause for cause, _ in sorted(explained["base"].losses.items(), key=lambda loss: -loss[1])][:5]
figure, both = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=False)
for axes, (config, found) in zip(both, explained.items()):
    places, left = np.arange(len(found.rows)), np.array([row.bound for row in found.rows])
    axes.barh(places, left, color="#cccccc", label="bound")
    for cause in CAUSES:
        cycles = np.array([max(0, row.losses[cause]) for row in found.rows])
        axes.barh(places, cycles, left=left, label=cause)
        left = left + cycles
    axes.set_yticks(places, [row.layer.name[:24] for row in found.rows])
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(plt.MaxNLocator(5))
    axes.set_title(f"{config}: {found.cycles:,} cycles, {found.bound / found.cycles:.0%} of the bound", loc="left")
both[1].legend()
plt.show()

# %% [markdown]
# ## Is it the memory?
#
# The same program with slower memory: beats further apart cost cycles once the bus is what limits.

# %%
intervals = (1, 1.5, 2, 3, 4, 6, 8)
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
for config, program in programs.items():
    cycles = [explain(program, MemoryTiming(read_interval=n, write_interval=n)).cycles for n in intervals]
    axes.plot(intervals, cycles, "o-", label=config)
axes.set(xlabel="cycles between beats", ylabel="cycles of a run", ylim=(0, None))
axes.set_title("How slow may the memory be?", loc="left")
axes.legend()
plt.show()

# %% [markdown]
# ## Two machines, layer by layer

# %%
compared = tw.compare(programs["small"], programs["base"])
print(f"base takes {compared.ratio:.2f} times the cycles of small, with four times the multipliers")
print(compared)
