"""Small TFLite networks for the delegate: what it takes whole, in parts, and not at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.common.tflite_models import Model, Op, T
from tests.unit.compiler.importer.tflite.tflite_networks import svdf

SCALE, ZERO = 0.05, 3
SIZE = 8


class Network:
    """A network written operator by operator; tensors are called t0, t1, ..."""

    def __init__(self, channels: int = 8, seed: int = 0, signature: Sequence[int] = ()) -> None:
        self.r = np.random.default_rng(seed)
        self.tensors = [T("t0", (1, SIZE, SIZE, channels), "int8", SCALE, ZERO, signature=signature)]
        self.ops: list[Op] = []

    @property
    def last(self) -> T:
        return next(t for t in reversed(self.tensors) if t.data is None)

    def _result(self, shape: Sequence[int], scale: float | None = SCALE, dtype: str = "int8", zero: int = ZERO) -> str:
        name = f"t{sum(t.data is None for t in self.tensors)}"
        self.tensors.append(T(name, shape, dtype, scale, zero))
        return name

    def _constant(self, data: np.ndarray, dtype: str, scale: float | None = None) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(T(name, data.shape, dtype, scale, 0, 0, data))
        return name

    def conv(self, channels: int = 8, kernel: int = 3, source: str = "") -> Network:
        x = next(t for t in self.tensors if t.name == (source or self.last.name))
        weights = self.r.integers(-127, 128, (channels, kernel, kernel, x.shape[3]))
        names = [x.name, self._constant(weights, "int8", 0.004)]
        names.append(self._constant(self.r.integers(-500, 500, channels), "int32", SCALE * 0.004))
        y = self._result((*x.shape[:3], channels))
        options = {"Padding": 0, "StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}
        self.ops.append(Op("CONV_2D", names, [y], ("Conv2DOptions", options), 3))
        return self

    def add(self, other: str) -> Network:
        x = self.last
        self.ops.append(Op("ADD", [x.name, other], [self._result(x.shape)], ("AddOptions", {}), 2))
        return self

    def softmax(self) -> Network:
        x = self.last
        y = self._result(x.shape, 1 / 256, zero=-128)
        self.ops.append(Op("SOFTMAX", [x.name], [y], ("SoftmaxOptions", {"Beta": 1.0}), 2))
        return self

    def unary(self, name: str, shape: Sequence[int] | None = None, dtype: str = "int8") -> Network:
        """An operator of one operand and no options."""
        x = self.last
        y = self._result(shape or x.shape, SCALE if dtype == "int8" else None, dtype)
        self.ops.append(Op(name, [x.name], [y]))
        return self

    def patch(self) -> Network:
        """An operator that LiteRT has and our importer has not: a piece of the tensor is overwritten."""
        x = self.last
        update = self._constant(self.r.integers(-128, 128, (1, 2, 2, x.shape[3])), "int8", SCALE)
        start = self._constant(np.array([0, 1, 1, 0]), "int32")
        self.ops.append(Op("DYNAMIC_UPDATE_SLICE", [x.name, update, start], [self._result(x.shape)]))
        return self

    def reshape(self, shape: Sequence[int], target: str = "") -> Network:
        """Adds a RESHAPE to a constant shape, or to the value of the tensor `target` at run time."""
        x = self.last
        target = target or self._constant(np.asarray(shape), "int32")
        self.ops.append(Op("RESHAPE", [x.name, target], [self._result(shape)], ("ReshapeOptions", {})))
        return self

    def build(self, outputs: Sequence[str] = (), inputs: Sequence[str] = ("t0",)) -> bytes:
        return Model(self.tensors, self.ops, list(inputs), list(outputs or [self.last.name])).build()


def random_network(seed: int) -> bytes:
    """Branches of operators that the NPU runs, that our CPU kernels run, and that only LiteRT has."""
    r = np.random.default_rng(seed)
    n = Network(seed=seed)
    for _ in range(int(r.integers(3, 10))):
        made = [t for t in n.tensors if t.data is None and t.dtype == "int8"]
        x = made[int(r.integers(max(0, len(made) - 3), len(made)))]
        n.tensors.remove(x)  # the operators read the last one
        n.tensors.append(x)
        match int(r.integers(7)):
            case 0 | 1:
                n.conv(int(r.choice([4, 8])), int(r.choice([1, 3])))
            case 2:
                same = [t.name for t in made if t.shape == x.shape]
                n.add(same[int(r.integers(len(same)))])
            case 3:
                n.patch()
            case 4:
                n.softmax() if r.integers(2) else n.unary("RELU")
            case 5:
                n.reshape((1, x.shape[2], x.shape[1], x.shape[3]) if r.integers(2) else x.shape)
            case 6:
                n.unary("DEQUANTIZE", dtype="float32").unary("TANH", dtype="float32").unary("QUANTIZE")
    read = {name for op in n.ops for name in op.inputs}
    return n.build([t.name for t in n.tensors if t.data is None and t.name not in read])


def whole(signature: Sequence[int] = ()) -> bytes:
    """A residual block and a softmax: the block is one part, the softmax is LiteRT's."""
    return Network(signature=signature).conv().conv().add("t0").softmax().build()


def cut(signature: Sequence[int] = ()) -> bytes:
    """An operator we do not know between two pairs of convolutions: two parts."""
    return Network(signature=signature).conv().conv().patch().conv().add("t0").build()


def runtime_shape() -> bytes:
    """A convolution, a reshape by an input, a convolution."""
    n = Network()
    n.tensors.insert(0, T("shape", (4,), "int32"))
    return n.conv().reshape((1, SIZE, SIZE, 8), "shape").conv().build(inputs=("t0", "shape"))


def without_constants() -> bytes:
    """Sums of the input with itself."""
    return Network().add("t0").add("t0").build()


def left_to_litert() -> list[tuple[bytes, str]]:
    """Models of which nothing is taken, with words of the reason."""
    several = Network().conv()
    twice = Model(several.tensors, several.ops, ["t0"], ["t1"], copies=2).build()
    floats = Network().unary("DEQUANTIZE", dtype="float32").unary("TANH", dtype="float32").unary("QUANTIZE").build()
    return [
        (twice, "2 subgraphs"),
        (svdf(np.random.default_rng(0), "int8"), "a state that lives from one run to the next"),
        (Network().softmax().patch().build(), "the machine has no row unit"),
        (without_constants(), "give the option model=FILE"),
        (floats, "give the option model=FILE"),
    ]
