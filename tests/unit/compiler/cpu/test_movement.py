"""Data movement and indexing against onnxruntime."""

import numpy as np
import pytest
from onnx import helper

from tests.unit.compiler.cpu.support import check, check_op

R = np.random.default_rng(1)
I = lambda *v: np.array(v, np.int64)


def normal(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def test_reshapes() -> None:
    check_op("Reshape", [normal(2, 6), I(3, -1)], consts=(1,))
    check_op("Flatten", [normal(2, 3, 4)], axis=2)
    check_op("Unsqueeze", [normal(2, 3), I(0, 3)], consts=(1,))
    check_op("Squeeze", [normal(1, 2, 1, 3)])
    check_op("Identity", [normal(3)])
    check_op("Dropout", [normal(3, 4)])


def test_reshape_in_chain() -> None:
    n = helper.make_node
    nodes = [
        n("Relu", ["x"], ["a"]),
        n("Reshape", ["a", "shape"], ["b"]),
        n("Transpose", ["b"], ["c"], perm=[1, 0]),
        n("Reshape", ["c", "flat"], ["d"]),
        n("Exp", ["d"], ["e"]),
    ]
    check(nodes, {"x": normal(2, 3, 4)}, {"shape": I(6, 4), "flat": I(24)}, ["a", "b", "e"])


@pytest.mark.parametrize("perm", [(0, 2, 1, 3), (3, 2, 1, 0), (0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_transpose(perm: tuple[int, ...], dtype: str) -> None:
    check_op("Transpose", [(normal(2, 3, 17, 5) * 10).astype(dtype)], perm=perm)


@pytest.mark.medium
def test_slices() -> None:
    x = normal(5, 6, 7)
    check_op("Slice", [x, I(1, 0), I(4, 100), I(0, 2), I(2, 3)], consts=(1, 2, 3, 4))
    check_op("Slice", [x, I(-1, 5), I(-100, 1), I(1, 2), I(-1, -2)], consts=(1, 2, 3, 4))
    check_op("Slice", [x], opset=9, starts=[1, 2], ends=[3, -1], axes=[0, 1])
    check_op("Split", [x, I(2, 3, 1)], consts=(1,), outputs=3, axis=1)
    check_op("Split", [x], outputs=3, axis=-1, num_outputs=3)
    check_op("Concat", [x, normal(5, 2, 7), normal(5, 1, 7)], axis=1)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad(mode: str) -> None:
    x = normal(3, 4, 5)
    check_op("Pad", [x, I(0, 1, 2, 2, 0, 3)], consts=(1,), mode=mode)
    if mode == "constant":
        check_op("Pad", [x, I(0, -1, 2, 1, 0, -3), np.float32(2.5)], consts=(1, 2))
        check_op("Pad", [x, I(1, 2), np.float32(2.5), I(-1)], consts=(1, 2, 3))
        check_op("Pad", [x], opset=6, pads=[0, 1, 0, 1, 0, 2], value=1.5)


@pytest.mark.medium
def test_replication() -> None:
    check_op("Expand", [normal(3, 1, 4), I(2, 1, 5, 1)], consts=(1,))
    check_op("Tile", [normal(2, 3), I(3, 2)], consts=(1,))
    check_op("DepthToSpace", [normal(2, 12, 3, 4)], blocksize=2)
    check_op("DepthToSpace", [normal(2, 12, 3, 4)], blocksize=2, mode="CRD")
    check_op("SpaceToDepth", [normal(2, 3, 4, 6)], blocksize=2)


def test_static() -> None:
    check_op("Shape", [normal(2, 3, 4)])
    check_op("Shape", [normal(2, 3, 4)], start=1)
    check_op("Size", [normal(2, 3, 4)])
    check_op("ConstantOfShape", [I(2, 3)], consts=(0,), value=helper.make_tensor("v", 1, [1], [2.5]))
    check_op("Range", [np.int64(3), np.int64(20), np.int64(4)], consts=(0, 1, 2))


@pytest.mark.medium
def test_gather() -> None:
    x = normal(5, 6, 7)
    check_op("Gather", [x, np.array([[0, -1], [3, 2]], np.int64)], axis=1)
    check_op("Gather", [x, np.array(2, np.int64)], consts=(1,), axis=0)
    check_op("GatherElements", [x, R.integers(-6, 6, (5, 3, 7))], axis=1)
    check_op("GatherND", [x, R.integers(0, 5, (4, 2))])
    check_op("GatherND", [x, R.integers(0, 6, (5, 2, 1))], batch_dims=1)
    check_op("ScatterND", [x, np.array([[1], [3]]), normal(2, 6, 7)])
    check_op("ScatterElements", [x, np.argsort(normal(5, 6, 7), 0)[:3], normal(3, 6, 7)], axis=0)
    check_op("ScatterElements", [x, R.integers(0, 5, (3, 6, 7)), normal(3, 6, 7)], axis=0, reduction="add")
    check_op("OneHot", [R.integers(-4, 4, (3, 4)), np.int64(4), np.array([0.5, 2], np.float32)], consts=(1,))
    check_op("Trilu", [normal(4, 5)], upper=0)
    check_op("ReverseSequence", [normal(4, 3, 2), I(1, 4, 2)], time_axis=0, batch_axis=1)


@pytest.mark.medium
@pytest.mark.parametrize(
    "how", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(how: str, mode: str) -> None:
    for scales in ((1.0, 1.0, 2.0, 2.5), (1.0, 1.0, 0.6, 1.5)):
        check_op("Resize", [normal(1, 2, 5, 6), None, np.array(scales, np.float32)], consts=(2,), mode=mode,
                 coordinate_transformation_mode=how)  # fmt: skip
    sizes = I(1, 2, 7, 4)
    check_op(
        "Resize", [normal(1, 2, 5, 6), None, None, sizes], consts=(3,), mode=mode, coordinate_transformation_mode=how
    )


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize_nearest(rounding: str) -> None:
    check_op(
        "Resize", [normal(1, 2, 5, 6), None, np.array([1, 1, 2, 0.5], np.float32)], consts=(2,), nearest_mode=rounding
    )


def test_resize_rest() -> None:
    roi = np.array([0, 0, 0.2, -0.1, 1, 1, 0.8, 1.2], np.float32)
    check_op("Resize", [normal(1, 2, 5, 6), roi, None, I(1, 2, 4, 8)], consts=(1, 3), mode="linear",
             coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0)  # fmt: skip
    check_op(
        "Resize",
        [normal(1, 2, 9, 8), None, np.array([1, 1, 0.5, 0.6], np.float32)],
        consts=(2,),
        mode="linear",
        antialias=1,
    )
    check_op(
        "Resize",
        [normal(1, 2, 9, 8), None, np.array([1, 1, 0.5, 0.6], np.float32)],
        consts=(2,),
        mode="cubic",
        exclude_outside=1,
    )
    check_op("Upsample", [normal(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)], consts=(1,), opset=9)


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding: str) -> None:
    for aligned in (0, 1):
        grid = R.uniform(-1.4, 1.4, (2, 5, 7, 2)).astype(np.float32)
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
        check_op("GridSample", [normal(2, 3, 6, 8), grid], opset=20, **attrs)


def test_sampling_rest() -> None:
    check_op("Col2Im", [normal(1, 12, 25), I(6, 7), I(2, 3)], consts=(1, 2), opset=18)
    attrs = {"strides": [2, 1], "dilations": [2, 2], "pads": [0, 0, 0, 0]}
    check_op("Col2Im", [normal(1, 12, 6), I(6, 7), I(2, 3)], consts=(1, 2), opset=18, **attrs)
    check_op("Compress", [normal(4, 5), np.array([1, 0, 1, 1], bool)], consts=(1,), axis=0)
    check_op("Compress", [normal(4, 5), np.array([1, 0, 1, 1], bool)], consts=(1,))


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 8), (2, 3, 5, 8)]),
        ("bqhd,bkhd->bhqk", [(2, 4, 3, 8), (2, 5, 3, 8)]),
        ("...ij,...jk", [(2, 3, 4), (2, 4, 5)]),
        ("ii->i", [(4, 4)]),
        ("ij->", [(3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ijk,jl,lk->i", [(2, 3, 4), (3, 5), (5, 4)]),
    ],
)
def test_einsum(equation: str, shapes: list) -> None:
    check_op("Einsum", [normal(*s) for s in shapes], equation=equation)
