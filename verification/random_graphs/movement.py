"""Ops that move elements."""

from __future__ import annotations

from verification.random_graphs.builder import Builder, split_extents


def reshape(b: Builder) -> None:
    x = b.pick(lambda t: t.size > 0)
    shape = split_extents(b.random, x.size)
    b.add("Reshape", [x.name, b.constant(shape)], shape, x.dtype, x.bound, x.exact)


def squeeze(b: Builder) -> None:
    x = b.pick(lambda t: 1 in t.shape)
    axes = [k for k, n in enumerate(x.shape) if n == 1]
    axis = b.random.choice(axes)
    shape = [n for k, n in enumerate(x.shape) if k != axis]
    b.add("Squeeze", [x.name, b.constant([axis])], shape, x.dtype, x.bound, x.exact)


def unsqueeze(b: Builder) -> None:
    x = b.pick(lambda t: t.rank < 5)
    axis = b.random.randrange(x.rank + 1)
    shape = [*x.shape[:axis], 1, *x.shape[axis:]]
    b.add("Unsqueeze", [x.name, b.constant([axis])], shape, x.dtype, x.bound, x.exact)


def transpose(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 1)
    perm = list(range(x.rank))
    b.random.shuffle(perm)
    b.add("Transpose", [x.name], [x.shape[p] for p in perm], x.dtype, x.bound, x.exact, perm=perm)


def slice_(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0 and t.size > 1)
    axis = b.random.randrange(x.rank)
    n = x.shape[axis]
    low = b.random.randrange(n)
    high = b.random.randrange(low + 1, n + 1)
    step = b.random.choice((1, 1, 2, 3))
    start, end = low, high
    count = -(-(high - low) // step)
    if b.random.random() < 0.25:
        start, end, step = high - 1, low - 1 if low else -n - 1, -step
    inputs = [b.constant([v]) for v in (start, end, axis, step)]
    shape = [count if k == axis else m for k, m in enumerate(x.shape)]
    b.add("Slice", [x.name, *inputs], shape, x.dtype, x.bound, x.exact)


def concat(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0)
    axis = b.random.randrange(x.rank)
    same = lambda t: (
        t.dtype == x.dtype
        and t.rank == x.rank
        and all(k == axis or n == m for k, (n, m) in enumerate(zip(t.shape, x.shape)))
    )
    parts = [x, *(b.pick(same) for _ in range(b.random.randrange(1, 3)))]
    b.random.shuffle(parts)
    shape = [sum(p.shape[axis] for p in parts) if k == axis else n for k, n in enumerate(x.shape)]
    exact = all(p.exact for p in parts)
    b.add("Concat", [p.name for p in parts], shape, x.dtype, max(p.bound for p in parts), exact, axis=axis)


def split(b: Builder) -> None:
    x = b.pick(lambda t: any(n > 1 for n in t.shape))
    axis = b.random.choice([k for k, n in enumerate(x.shape) if n > 1])
    at = b.random.randrange(1, x.shape[axis])
    sizes = [at, x.shape[axis] - at]
    shapes = [[s if k == axis else n for k, n in enumerate(x.shape)] for s in sizes]
    b.several("Split", [x.name, b.constant(sizes)], [(s, x.dtype, x.bound) for s in shapes], x.exact, axis=axis)


def pad(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0 and t.dtype in ("float32", "int32", "int64", "uint8"))
    mode = b.random.choice(("constant", "constant", "edge", "reflect"))
    most = lambda n: min(3, n - 1) if mode == "reflect" else 3
    before = [b.random.randrange(most(n) + 1) for n in x.shape]
    after = [b.random.randrange(most(n) + 1) for n in x.shape]
    shape = [n + i + j for n, i, j in zip(x.shape, before, after)]
    b.add("Pad", [x.name, b.constant([*before, *after])], shape, x.dtype, x.bound, x.exact, mode=mode)


def tile(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0 and t.dtype != "uint8")
    times = [b.random.choice((1, 1, 2)) for _ in x.shape]
    shape = [n * k for n, k in zip(x.shape, times)]
    b.add("Tile", [x.name, b.constant(times)], shape, x.dtype, x.bound, x.exact)


def expand(b: Builder) -> None:
    x = b.pick(lambda t: t.rank > 0)
    shape = [b.random.choice((2, 3, 5)) if n == 1 else n for n in x.shape]
    b.add("Expand", [x.name, b.constant(shape)], shape, x.dtype, x.bound, x.exact)


def depth_to_space(b: Builder) -> None:
    x = b.pick(lambda t: t.rank == 4 and t.shape[1] % 4 == 0 and t.dtype == "float32")
    n, c, h, w = x.shape
    b.add("DepthToSpace", [x.name], [n, c // 4, 2 * h, 2 * w], x.dtype, x.bound, x.exact, blocksize=2)


def identity(b: Builder) -> None:
    b.like("Identity", b.pick())
