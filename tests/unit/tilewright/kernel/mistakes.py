"""Kernels with a mistake each. The line that causes it ends with `# HERE`."""

import numpy as np

from tilewright import kernel as tk

ONES = np.ones((32, 32), np.int8)
#: (kernel, shapes of its inputs, text of the message) by the mistake.
MISTAKES: dict[str, tuple[tk.Kernel, list[tuple[int, ...]], str]] = {}


def mistake(text, *shapes):
    """A decorator: a kernel with these inputs, whose message has this text."""

    def register(function):
        MISTAKES[function.__name__] = tk.kernel(function), list(shapes), text
        return function

    return register


@mistake("rows 60..67 lie outside the 64", (64, 32))
def rows_outside(k, x):
    k.load(x.at(rows=range(60, 68)))  # HERE


@mistake("blocks 1..2 lie outside the 2", (64, 32))
def blocks_outside(k, x):
    tile = k.load(x.at(rows=range(8)))
    tile.at(blocks=range(1, 3))  # HERE


@mistake("rows must be a range of one or more", (64, 32))
def empty_range(k, x):
    k.load(x.at(rows=range(8, 8)))  # HERE


@mistake("a tile of 16384 rows does not fit: ACT has", (4096, 64))
def act_is_full(k, x):
    half = k.load(x.at(rows=range(1024)))
    whole = k.load(x.at())  # HERE
    return half, whole


@mistake("rows of sums do not fit", (4096, 16))
def acc_is_full(k, x):
    w = k.weights(ONES[:, :16])
    tile = k.load(x.at())
    k.matmul(tile, w)  # HERE


@mistake("take 1600 tiles of the", (1, 16, 40, 40))
def wgt_is_full(k, x):
    tile = k.load(x.at())
    w = k.weights(np.ones((16, 16, 40, 40), np.int8))
    k.matmul(tile, w)  # HERE


@mistake("1 x 768 x 1 has 768", (768, 16))
def sums_alive(k, x):
    w, tile = k.weights(ONES[:16, :16]), k.load(x.at())
    first = k.matmul(tile, w)
    second = k.matmul(tile, w)  # HERE
    return first, second


@mistake("requantise reads 8 vectors", (64, 32))
def never_written(k, x):
    w, p = k.weights(ONES), k.params()
    other = k.tile(2, 8)
    other_half = k.load(x.at(rows=range(4)), into=other.at(rows=range(4)))
    sums = k.matmul(k.load(x.at(rows=range(8))), w)
    k.requantise(sums, p, add=tk.Addend(other))  # HERE
    return other_half


@mistake("vectors in this part that nobody stored", (64, 32))
def never_stored(k, x):
    y = k.tensor(x.shape)
    k.store(k.load(x.at(rows=range(8))), y.at(rows=range(8)))
    k.load(y.at(rows=range(4, 12)))  # HERE


@mistake("is returned, but 32 of its 128 vectors are never stored", (64, 32))
def output_in_part(k, x):
    y = k.tensor(x.shape)  # HERE
    k.store(k.load(x.at(rows=range(48))), y.at(rows=range(48)))
    return y


@mistake("has 2 channel blocks, the weights [32, 16, 1, 1] take 1", (64, 32))
def blocks_differ(k, x):
    w = k.weights(ONES[:, :16])
    k.matmul(k.load(x.at()), w)  # HERE


@mistake("the part must be 2 x 8 x 1", (64, 32))
def sizes_differ(k, x):
    y = k.tensor(x.shape)
    tile = k.load(x.at(rows=range(8)))
    k.store(tile, y.at(rows=range(9)))  # HERE


@mistake("an axis must be equal or 1", (64, 32))
def operands_differ(k, x):
    a, b = k.load(x.at(rows=range(8))), k.load(x.at(rows=range(4)))
    k.add(a, b)  # HERE


@mistake("zero_point must be -128..127, not 200", (16, 16))
def zero_point_too_large(k, x):
    sums = k.matmul(k.load(x.at()), k.weights(ONES[:16, :16]))
    k.requantise(sums, k.params(), zero_point=200)  # HERE


@mistake("shift must be 0..31, not 40", (16, 16))
def shift_too_large(k, x):
    tile = k.load(x.at())
    k.add(tile, tile, shift=40)  # HERE


@mistake("ma must be -8388608..8388607", (16, 16))
def multiplier_too_large(k, x):
    tile = k.load(x.at())
    k.add(tile, tile, ma=1 << 23)  # HERE


@mistake("would overwrite vectors", (1, 16, 8, 8))
def overwritten(k, x):
    tile = k.load(x.at())
    k.maximum(tile, 3, into=tile.at(rows=range(6), columns=range(6)))  # HERE


@mistake("scales must be normal float32", (16, 16))
def scale_of_zero(k, x):
    k.params(0, 0.0)  # HERE


@mistake("weights must be int8", (16, 16))
def weights_too_large(k, x):
    k.weights(np.full((16, 16), 300))  # HERE


@mistake("rounding must be one of even, inside, away", (16, 16))
def unknown_rounding(k, x):
    sums = k.matmul(k.load(x.at()), k.weights(ONES[:16, :16]))
    k.requantise(sums, k.params(), rounding="up")  # HERE


@mistake("biases of 16 channels do not cover channel blocks 1..1", (16, 16))
def too_few_biases(k, x):
    tile, w = k.load(x.at()), k.weights(ONES[:, :16])
    sums = k.matmul(tile, w.at(outputs=1))
    k.requantise(sums, k.params(np.zeros(16, np.int32)))  # HERE


@mistake("are fewer than the 3 of the window", (1, 16, 8, 8))
def smaller_than_the_window(k, x):
    w = k.weights(np.ones((16, 16, 3, 3), np.int8))
    tile = k.load(x.at(rows=range(2)))
    k.matmul(tile, w)  # HERE


@mistake("rows 1048576..1048586 of 8192", (1, 16, 20, 10))
def rows_beyond_act(k, x):
    y, tile = k.tensor(x.shape), k.load(x.at())
    for room in tile._rooms:  # no tile of ACT has rows so far apart
        room.tile = room.tile._replace(line=1 << 20)
    k.maximum(tile, 1, into=y.at())  # HERE
    return y


@mistake("must be a matrix whose rows are a multiple of 16 to be weights", (24, 32))
def rows_that_fill_no_tile(k, x):
    k.weights_from(x)  # HERE


@mistake("are read where nobody stored them", (16, 32))
def weights_never_stored(k, x):
    y = k.tensor((32, 32))
    k.store(k.load(x.at()), y.at(rows=range(16)))
    k.matmul(k.load(x.at()), k.weights_from(y))  # HERE


@mistake("load_pad_top cannot be 300", (1, 16, 8, 8))
def padding_beyond_its_field(k, x):
    y, table = k.tensor((1, 16, 308, 8)), k.table(range(-128, 128))
    tile = k.load(x.at(rows=range(-300, 8)), pad=0)  # HERE
    k.apply(tile, table, into=y.at())  # where LOAD is written
    return y


@mistake("'base' unpacks no weights: packed_weights = 0 in its configuration", (16, 32))
def packed_without_the_unit(k, x):
    k.weights(ONES, packed=True)  # HERE
