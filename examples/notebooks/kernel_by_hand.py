# %% [markdown]
# # A kernel by hand
#
# A product of matrices in the NPU's own instructions, first one step after the other, then with transfers behind the
# work. Bytes are compared with numpy; the clock is that of the RTL.

# %%
import matplotlib.pyplot as plt
import numpy as np

from tilewright.isa.assembler import assemble
from tilewright.isa.config import preset
from tilewright.isa.device import Region
from tilewright.isa.encoding import to_bytes
from tilewright.isa.instructions import Engine
from tilewright.simulator.cycle import CycleDevice

config = preset("base")  # 16 x 16 multipliers
ROWS, BLOCK, SCALE = 256, config.block_in, np.float32(2**-7)
rng = np.random.default_rng(1)
x = rng.integers(-128, 128, (ROWS, BLOCK), np.int8)
w = rng.integers(-128, 128, (BLOCK, BLOCK), np.int8)
expected = np.clip(np.rint((x.astype(np.int32) @ w.astype(np.int32).T) * SCALE), -128, 127).astype(np.int8)


# %% [markdown]
# ## The program
#
# Weights and scales come first. Then bands of rows: LOAD brings one, GEMM multiplies, VECTOR turns sums into bytes,
# STORE takes them away. `signal0` and `wait0` are semaphores, by which one engine waits for another.


# %%
def program(bands: int, wait: bool) -> str:
    """Returns the product in so many bands; with `wait` a band is loaded only when the one before is stored."""
    rows = ROWS // bands
    lines = [
        "LOAD region=1 target=WGT count=1",
        f"LOAD region=1 offset={w.nbytes} target=PRM count=1",
        f"GEMM_LOOP count={rows} act_stride=1 acc_stride=1",
        f"VECTOR_LOOP count={rows} a_stride=1 dst_stride=1",
        "VECTOR_POST lo=-128 hi=127",
    ]
    for band in range(bands):
        first, out = band * rows, ROWS + band * rows
        after = "wait0=4" if wait and band else ""
        lines += [
            f"LOAD {after} signal0=1 region=2 offset={first * BLOCK} target=ACT row={first} count={rows}",
            f"GEMM wait0=1 signal0=2 act={first} acc={first}",
            f"VECTOR wait0=2 signal0=3 source=ACC a={first} dst={out} rounding=EVEN",
            f"STORE wait0=3 {'signal0=4' if wait and band < bands - 1 else ''} "
            f"region=2 offset={(ROWS + first) * BLOCK} row={out} count={rows}",
        ]
    return "\n".join([*lines, "END"])


print(program(2, wait=True))


# %%
def run(text: str) -> tuple[CycleDevice, np.ndarray]:
    """Runs a program with the operands in memory. Returns the device, with its trace, and the result."""
    operations = assemble(text)
    code = to_bytes(operations)
    prm = np.zeros((BLOCK, 2), np.uint32)
    prm[:, 1] = SCALE.view(np.uint32)
    device = CycleDevice(config)
    sizes = (len(code), w.nbytes + prm.nbytes, 2 * x.nbytes)
    bases = [device.allocate(size) for size in sizes]
    for base, data in zip(bases, (code, w.tobytes() + prm.tobytes(), x.tobytes())):
        device.write(base, data)
    regions = [Region(base, size, True, n == 2) for n, (base, size) in enumerate(zip(bases, sizes))]
    device.run(regions, 0, 0, len(operations), trace=True)
    return device, device.read(bases[2] + x.nbytes, x.nbytes).view(np.int8).reshape(x.shape)


# %% [markdown]
# ## Two schedules

# %%
COLOURS = {Engine.LOAD: "#4c78a8", Engine.GEMM: "#f58518", Engine.VECTOR: "#54a24b", Engine.STORE: "#e45756"}
schedules = {"one after the other": program(8, wait=True), "behind each other": program(8, wait=False)}
figure, both = plt.subplots(2, 1, figsize=(10, 4.4), layout="constrained", sharex=True)
for axes, (title, text) in zip(both, schedules.items()):
    device, result = run(text)
    assert np.array_equal(result, expected)
    trace = device.traces[0]
    for operation, (_, _, started, ended) in zip(assemble(text), trace.times.tolist()):
        engine = operation.instruction.engine
        if engine in COLOURS and ended > started:
            level = len(COLOURS) - list(COLOURS).index(engine)
            axes.broken_barh([(started, ended - started)], (level - 0.4, 0.8), color=COLOURS[engine], edgecolor="white")
    axes.set_yticks(range(len(COLOURS), 0, -1), [engine.name for engine in COLOURS])
    axes.set_title(f"{title}: {trace.cycles:,} cycles, bytes equal", loc="left")
both[1].set_xlabel("cycles")
plt.show()

# %% [markdown]
# ## How many bands?

# %%
bands = [1, 2, 4, 8, 16, 32, 64]
cycles = [run(program(n, wait=False))[0].traces[0].cycles for n in bands]
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(bands, cycles, "o-")
beats = x.nbytes // config.bus_bytes
axes.axhline(beats, color="#cccccc")
axes.text(1, beats, f"{beats} beats of the bus, as many back", va="bottom", color="#888888")
axes.set(xscale="log", xlabel="bands", ylabel="cycles", ylim=(0, None), xticks=bands, xticklabels=bands)
plt.show()
