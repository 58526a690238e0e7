"""Numeric ops of the domain ai.onnx.ml, written with ops of the default domain; tree ensembles as one op."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, field

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.onnx.onnx_ops import elem_type

ML = "ai.onnx.ml"
MODES = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5, "LEAF": 7}
MEMBER = 6
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _real(builder: OnnxBuilder, name: str) -> str:
    """Converts a tensor to floats: float64 stays, everything else becomes float32."""
    if builder.tensor(name).dtype in (np.float32, np.float64):
        return name
    return builder.emit("Cast", [name], attrs={"to": elem_type(np.dtype(np.float32))})


def _single(builder: OnnxBuilder, name: str) -> str:
    float32 = np.dtype(np.float32)
    if builder.tensor(name).dtype == float32:
        return name
    return builder.emit("Cast", [name], attrs={"to": elem_type(float32)})


@handles("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Selects elements of the last axis; the result has at least two dimensions."""
    data, at = node.inputs
    flat = builder.emit("Reshape", [at, builder.ints("shape", [-1 if builder.tensor(at).size else 0])])
    y = builder.emit("Gather", [data, flat], attrs={"axis": len(builder.shape(data)) - 1})
    shape = builder.shape(y)
    builder.reshaped(y, (1, *shape) if len(shape) == 1 else shape, [node.output(0)])


@handles("Binarizer", domain=ML)
def binarizer(builder: OnnxBuilder, node: OnnxNode) -> None:
    dtype = builder.tensor(node.input(0)).dtype
    threshold = builder.constant("threshold", node.attrs.get("threshold", 0.0), dtype)
    above = builder.emit("Greater", [node.input(0), threshold])
    builder.emit("Cast", [above], [node.output(0)], {"to": elem_type(dtype)})


@handles("Scaler", domain=ML)
def scaler(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Emits (x - offset) * scale in float32."""
    x = _single(builder, node.input(0))
    offset, scale = (np.asarray(node.attrs.get(k, d), np.float32) for k, d in (("offset", [0.0]), ("scale", [1.0])))
    moved = builder.emit("Sub", [x, builder.constant("offset", offset)])
    builder.emit("Mul", [moved, builder.constant("scale", scale)], [node.output(0)])


@handles("Normalizer", domain=ML)
def normalizer(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Divides rows by their largest element, sum of magnitudes or length; rows of zeros stay."""
    how = node.attrs.get("norm", "MAX")
    ops = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    if how not in ops:
        raise UnsupportedError(f"{node.label}: norm={how!r} is not supported; accepted: {', '.join(map(repr, ops))}")
    x = _single(builder, node.input(0))
    axis = builder.ints("axes", [len(builder.shape(x)) - 1])
    size = builder.emit(ops[how], [x, axis], attrs={"keepdims": 1})
    none = builder.emit("Equal", [size, builder.constant("zero", 0.0, np.float32)])
    size = builder.emit("Where", [none, builder.constant("one", 1.0, np.float32), size])
    builder.emit("Div", [x, size], [node.output(0)])


@handles("LinearRegressor", domain=ML)
def linear_regressor(builder: OnnxBuilder, node: OnnxNode) -> None:
    targets = int(node.attrs.get("targets", 1))
    weights = np.asarray(node.attrs["coefficients"], np.float32).reshape(targets, -1)
    y = builder.emit("MatMul", [_single(builder, node.input(0)), builder.constant("weights", weights.T.copy())])
    intercepts = node.attrs.get("intercepts")
    if intercepts:
        y = builder.emit("Add", [y, builder.constant("intercepts", intercepts, np.float32)])
    _transformed(builder, node, y, node.attrs.get("post_transform", "NONE"))


@handles("Imputer", domain=ML)
def imputer(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Replaces one value (often NaN) by another, which may depend on the column."""
    x = node.input(0)
    dtype = builder.tensor(x).dtype
    kind = "floats" if dtype.kind == "f" else "int64s"
    values = node.attrs.get(f"imputed_value_{kind}")
    wanted = node.attrs.get(f"replaced_value_{kind[:-1]}", 0)
    if not values:
        raise CompileError(f"{node.label}: imputed_value_{kind} is missing")
    if wanted != wanted:
        hit = builder.emit("IsNaN", [x])
    else:
        hit = builder.emit("Equal", [x, builder.constant("replaced", wanted, dtype)])
    builder.emit("Where", [hit, builder.constant("imputed", values, dtype), x], [node.output(0)])


def _transformed(builder: OnnxBuilder, node: OnnxNode, y: str, transform: str) -> None:
    """Emits the node's output: scores after the transform that the standard names."""
    if transform not in ("NONE", "SOFTMAX", "LOGISTIC"):
        raise UnsupportedError(
            f"{node.label}: post_transform={transform!r} is not supported; accepted: 'NONE', 'SOFTMAX', 'LOGISTIC'"
        )
    op = {"NONE": "Identity", "SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid"}[transform]
    attrs = {"axis": len(builder.shape(y)) - 1} if op == "Softmax" else {}
    builder.emit(op, [y], [node.output(0)], attrs)


class Forest(Struct):
    """Decision trees with all their nodes in one list; leaves lead to themselves and hold (target, weight) pairs."""

    feature: list[int] = field(default_factory=list)
    mode: list[int] = field(default_factory=list)
    split: list[float] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)
    leaves: list[list[tuple[int, float]]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def node(self, feature: int, mode: int, split: float, missing: bool) -> int:
        """Adds a branch node whose successors are set later; returns its number."""
        for column, value in zip(
            (self.feature, self.mode, self.split, self.yes, self.no, self.missing, self.leaves),
            (feature, mode, split, 0, 0, missing, []),
        ):
            column.append(value)  # type: ignore[attr-defined]
        return len(self.mode) - 1

    def leaf(self, pairs: list[tuple[int, float]]) -> int:
        at = self.node(0, MODES["LEAF"], 0.0, False)
        self.yes[at] = self.no[at] = at
        self.leaves[at] = pairs
        return at

    def depth(self, node: OnnxNode) -> int:
        """The number of comparisons on the longest path from a root. Raises CompileError for a cycle."""
        depth, level = 0, set(self.roots)
        while level:
            level = {n for at in level if self.mode[at] != MODES["LEAF"] for n in (self.yes[at], self.no[at])}
            depth += 1
            if depth > len(self.mode) + 1:
                raise CompileError(f"{node.label}: the nodes of a tree form a cycle")
        return depth - 1

    def emit(self, builder: OnnxBuilder, node: OnnxNode, x: str, targets: int, aggregate: str) -> str:
        """Emits TreeEnsemble on x [rows, features]: [rows, targets]."""
        rows, features = builder.shape(x)
        bad = [f for f in self.feature if not 0 <= f < features]
        used = [t for pairs in self.leaves for t, _ in pairs if not 0 <= t < targets]
        if bad or used:
            raise CompileError(
                f"{node.label}: feature {bad[0]} of {features}"
                if bad
                else f"{node.label}: target {used[0]} of {targets}"
            )
        dtype = builder.tensor(x).dtype
        flat = [pair for pairs in self.leaves for pair in pairs]
        first = np.concatenate([[0], np.cumsum([len(pairs) for pairs in self.leaves])])
        arrays: list[tuple[str, Any, Any]] = [
            ("feature", self.feature, np.int32), ("mode", self.mode, np.uint8), ("split", self.split, dtype),
            ("yes", self.yes, np.int32), ("no", self.no, np.int32), ("missing", self.missing, np.bool_),
            ("first", first, np.int32), ("target", [t for t, _ in flat], np.int32),
            ("weight", [w for _, w in flat], dtype), ("root", self.roots, np.int32),
        ]  # fmt: skip
        kind = {"SUM": "add", "AVERAGE": "add", "MIN": "min", "MAX": "max"}[aggregate]
        y = builder.emit(
            "TreeEnsemble", [x, *(builder.constant(stem, value, kind_) for stem, value, kind_ in arrays)],
            attrs={"shape": [rows, targets], "kind": kind, "depth": self.depth(node)},
        )  # fmt: skip
        if aggregate == "AVERAGE":
            y = builder.emit("Div", [y, builder.constant("trees", len(self.roots), dtype)])
        return y


@handles("TreeEnsemble", domain=ML)
def tree_ensemble(builder: OnnxBuilder, node: OnnxNode) -> None:
    a = node.attrs
    forest = Forest()
    modes, splits = np.asarray(a["nodes_modes"]), np.asarray(a["nodes_splits"])
    missing = a.get("nodes_missing_value_tracks_true") or [0] * len(modes)
    members = iter(np.asarray(a.get("membership_values", ())).tolist())
    weights = np.asarray(a["leaf_weights"])
    sets: list[list[float]] = []
    for mode in modes:  # every set ends with NaN
        sets.append([])
        while mode == MEMBER and (value := next(members, float("nan"))) == value:
            sets[-1].append(value)
    where: dict[tuple[int, bool], int] = {}

    def build(at: int, is_leaf: bool) -> int:
        if (at, is_leaf) in where:
            return where[at, is_leaf]
        if is_leaf:
            found = forest.leaf([(int(a["leaf_targetids"][at]), float(weights[at]))])
            where[at, True] = found
            return found
        feature, nan = int(a["nodes_featureids"][at]), bool(missing[at])
        # Membership is a chain of comparisons; an empty set holds nothing.
        values = (sets[at] or [float("nan")]) if modes[at] == MEMBER else [float(splits[at])]
        mode = MODES["BRANCH_EQ"] if modes[at] == MEMBER else int(modes[at])
        chain = [forest.node(feature, mode, value, nan and k == 0) for k, value in enumerate(values)]
        where[at, False] = chain[0]
        yes = build(int(a["nodes_truenodeids"][at]), bool(a["nodes_trueleafs"][at]))
        no = build(int(a["nodes_falsenodeids"][at]), bool(a["nodes_falseleafs"][at]))
        for link, following in zip(chain, [*chain[1:], no]):
            forest.yes[link], forest.no[link] = yes, following
        return chain[0]

    for root in a["tree_roots"]:
        leaf = a["nodes_trueleafs"][root] and a["nodes_falseleafs"][root]
        single = leaf and a["nodes_truenodeids"][root] == a["nodes_falsenodeids"][root]
        forest.roots.append(build(int(a["nodes_truenodeids"][root]) if single else int(root), bool(single)))
    aggregate, transform = AGGREGATES[int(a.get("aggregate_function", 1))], TRANSFORMS[int(a.get("post_transform", 0))]
    y = forest.emit(builder, node, _real(builder, node.input(0)), int(a["n_targets"]), aggregate)
    dtype = builder.tensor(node.input(0)).dtype
    if builder.tensor(y).dtype != dtype:
        y = builder.emit("Cast", [y], attrs={"to": elem_type(dtype)})
    _transformed(builder, node, y, transform)


@handles("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports trees whose nodes are named by tree and number; the first node of a tree is its root."""
    a = node.attrs
    reals = lambda name: np.asarray(a.get(f"{name}_as_tensor", a.get(name, ()))).tolist()
    names = list(zip(a["nodes_treeids"], a["nodes_nodeids"]))
    at = {name: k for k, name in enumerate(names)}
    pairs: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for tree, number, target, weight in zip(
        a["target_treeids"], a["target_nodeids"], a["target_ids"], reals("target_weights")
    ):
        pairs.setdefault((tree, number), []).append((int(target), weight))
    missing = a.get("nodes_missing_value_tracks_true") or [0] * len(names)
    forest = Forest()
    rows = zip(names, a["nodes_modes"], a["nodes_featureids"], reals("nodes_values"), missing)
    for (tree, number), mode, feature, value, nan in rows:
        if mode not in MODES:
            raise UnsupportedError(f"{node.label}: node mode {mode!r} is not supported; accepted: {', '.join(MODES)}")
        if mode == "LEAF":
            forest.leaf(pairs.get((tree, number), []))
        else:
            forest.node(int(feature), MODES[mode], value, bool(nan))
    for k, (tree, _) in enumerate(names):
        if forest.mode[k] != MODES["LEAF"]:
            forest.yes[k] = at[tree, a["nodes_truenodeids"][k]]
            forest.no[k] = at[tree, a["nodes_falsenodeids"][k]]
    forest.roots = [k for k, (tree, _) in enumerate(names) if k == 0 or names[k - 1][0] != tree]
    x = _real(builder, node.input(0))
    y = forest.emit(builder, node, x, int(a["n_targets"]), a.get("aggregate_function", "SUM"))
    base = reals("base_values")
    if base:
        y = builder.emit("Add", [y, builder.constant("base", base, builder.tensor(y).dtype)])
    _transformed(builder, node, _single(builder, y), a.get("post_transform", "NONE"))
