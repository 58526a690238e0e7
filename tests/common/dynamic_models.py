"""Small models whose shapes are only known when they run, as exporters write them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper, parser

from tilewright.zoo import build_quantized


def model(text: str, opset: int = 18, **weights: np.ndarray) -> onnx.ModelProto:
    """A model from ONNX's text form, with initialisers."""
    header = f'<ir_version: 10, opset_import: ["" : {opset}, "ai.onnx.ml" : 3]>\n'
    made = parser.parse_model(header + text)
    made.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in weights.items())
    return made


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def greedy_decode(width: int = 16, words: int = 24) -> onnx.ModelProto:
    """Appends the best next word until that is word 0 or `limit` words are made; the tokens grow."""
    return model(
        """
        decode (int64[1, n] tokens, int64 limit) => (int64[1, m] out, float[steps] best) {
            true = Constant <value: tensor = bool {1}> ()
            out, best = Loop (limit, true, tokens) <body: graph = step (int64 i, bool go, int64[1, k] now)
                => (bool more, int64[1, l] then, float score) {
                axis0 = Constant <value_ints = [0]> ()
                axis1 = Constant <value_ints = [1]> ()
                minus1 = Constant <value_ints = [-1]> ()
                zero = Constant <value: tensor = int64 {0}> ()
                e = Gather <axis = 0> (embedding, now)
                h = ReduceMean <keepdims = 0> (e, axis1)
                last = Slice (e, minus1, ends, axis1)
                l2 = Squeeze (last, axis1)
                s = Add (h, l2)
                t = Tanh (s)
                logits = MatMul (t, head)
                next = ArgMax <axis = 1, keepdims = 1> (logits)
                then = Concat <axis = 1> (now, next)
                top = ReduceMax <keepdims = 0> (logits)
                score = Identity (top)
                flat = Squeeze (next)
                same = Equal (flat, zero)
                more = Not (same)
            }>
        }""",
        embedding=normal(1, words, width),
        head=normal(2, width, words),
        ends=np.array([2**31 - 1], np.int64),
    )


def power_iteration(size: int = 8) -> onnx.ModelProto:
    """A state of fixed shape, iterated until it moves less than `tolerance`."""
    a = normal(3, size, size)
    return model(
        """
        power (float[s, 1] start, float tolerance) => (float[s, 1] vector, int64 steps) {
            true = Constant <value: tensor = bool {1}> ()
            zero = Constant <value: tensor = int64 {0}> ()
            vector, steps = Loop (, true, start, zero) <body: graph = step (int64 i, bool go, float[s, 1] x, int64 n)
                => (bool more, float[s, 1] y, int64 m) {
                one = Constant <value: tensor = int64 {1}> ()
                ax = MatMul (matrix, x)
                norm = ReduceL2 <keepdims = 1> (ax)
                y = Div (ax, norm)
                d = Sub (y, x)
                e = ReduceL2 <keepdims = 0> (d)
                more = Greater (e, tolerance)
                m = Add (n, one)
            }>
        }""",
        matrix=a @ a.T,
    )


def windows() -> onnx.ModelProto:
    """Three values from every step's own position on: where a slice lies is known at run time, its size is not."""
    return model(
        """
        windows (float[n] x, int64 count) => (float total, float[c] sums) {
            true = Constant <value: tensor = bool {1}> ()
            nothing = Constant <value: tensor = float {0}> ()
            total, sums = Loop (count, true, nothing) <body: graph = step (int64 i, bool go, float so_far)
                => (bool same, float then, float sum) {
                same = Identity (go)
                first = Constant <value_ints = [0]> ()
                three = Constant <value_ints = [3]> ()
                start = Unsqueeze (i, first)
                end = Add (start, three)
                part = Slice (x, start, end, first)
                sum = ReduceSum <keepdims = 0> (part)
                then = Add (so_far, sum)
            }>
        }"""
    )


def rows_above(width: int = 6) -> onnx.ModelProto:
    """The rows whose sum is positive, through a layer; their number depends on the values."""
    return model(
        """
        rows (float[n, 6] x) => (float[k, 4] y, int64[k] at) {
            axes = Constant <value_ints = [1]> ()
            first = Constant <value_ints = [0]> ()
            zero = Constant <value: tensor = float {0}> ()
            total = ReduceSum <keepdims = 0> (x, axes)
            mask = Greater (total, zero)
            found = NonZero (mask)
            at = Squeeze (found, first)
            kept = Gather <axis = 0> (x, at)
            product = MatMul (kept, w)
            y = Relu (product)
        }""",
        w=normal(4, width, 4),
    )


def detector() -> onnx.ModelProto:
    """A head over features, non-maximum suppression, and a loop over what is left."""
    grid = 6
    ys, xs = np.meshgrid(np.arange(grid), np.arange(grid), indexing="ij")
    anchors = np.stack([ys, xs, ys + 1.5, xs + 1.5], -1).reshape(1, -1, 4).astype(np.float32)
    return model(
        """
        detector (float[1, 3, 12, 12] image, int64 most, float iou, float worth)
            => (int64[k, 3] chosen, float[k, 4] boxes, float[k] areas) {
            f = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (image, w0)
            g = Relu (f)
            b = Conv <kernel_shape = [1, 1]> (g, w1)
            c = Conv <kernel_shape = [1, 1]> (g, w2)
            b4 = Reshape (b, shape_b)
            bt = Transpose <perm = [0, 2, 1]> (b4)
            half = Constant <value: tensor = float {0.2}> ()
            moved = Mul (bt, half)
            all = Add (anchors, moved)
            c3 = Reshape (c, shape_c)
            scores = Sigmoid (c3)
            chosen = NonMaxSuppression (all, scores, most, iou, worth)
            two = Constant <value: tensor = int64 {2}> ()
            at = Gather <axis = 1> (chosen, two)
            first = Constant <value_ints = [0]> ()
            flat = Squeeze (all, first)
            boxes = Gather <axis = 0> (flat, at)
            sizes = Shape (chosen)
            zero = Constant <value: tensor = int64 {0}> ()
            count = Gather <axis = 0> (sizes, zero)
            true = Constant <value: tensor = bool {1}> ()
            nothing = Constant <value: tensor = float {0}> ()
            sum, areas = Loop (count, true, nothing) <body: graph = each (int64 i, bool go, float so_far)
                => (bool same, float total, float area) {
                same = Identity (go)
                box = Gather <axis = 0> (boxes, i)
                y0, x0, y1, x1 = Split <axis = 0, num_outputs = 4> (box)
                height = Sub (y1, y0)
                width = Sub (x1, x0)
                product = Mul (height, width)
                area = Squeeze (product)
                total = Add (so_far, area)
            }>
        }""",
        w0=normal(5, 8, 3, 3, 3),
        w1=normal(6, 4, 8, 1, 1),
        w2=normal(7, 3, 8, 1, 1) / 8,  # far from saturation, where the order of scores hangs on their last bit
        anchors=anchors,
        shape_b=np.array([1, 4, -1], np.int64),
        shape_c=np.array([1, 3, -1], np.int64),
    )


def transformer(width: int = 32, heads: int = 4, words: int = 40) -> onnx.ModelProto:
    """One decoder layer on [batch, time] tokens; head shapes and the causal mask follow from Shape ops."""
    return model(
        f"""
        transformer (int64[batch, time] tokens) => (float[batch, time, {words}] logits) {{
            sizes = Shape (tokens)
            i0 = Constant <value: tensor = int64 {{0}}> ()
            i1 = Constant <value: tensor = int64 {{1}}> ()
            axis0 = Constant <value_ints = [0]> ()
            axis1 = Constant <value_ints = [1]> ()
            b = Gather <axis = 0> (sizes, i0)
            t = Gather <axis = 0> (sizes, i1)
            b1 = Unsqueeze (b, axis0)
            t1 = Unsqueeze (t, axis0)
            hd = Constant <value_ints = [{heads}, {width // heads}]> ()
            flat = Constant <value_ints = [{width}]> ()
            split = Concat <axis = 0> (b1, t1, hd)
            joined = Concat <axis = 0> (b1, t1, flat)
            places = Range (i0, t, i1)
            word = Gather <axis = 0> (embedding, tokens)
            place = Gather <axis = 0> (positions, places)
            x = Add (word, place)
            n = LayerNormalization <axis = -1> (x, g1, z1)
            q0 = MatMul (n, wq)
            k0 = MatMul (n, wk)
            v0 = MatMul (n, wv)
            q1 = Reshape (q0, split)
            k1 = Reshape (k0, split)
            v1 = Reshape (v0, split)
            q = Transpose <perm = [0, 2, 1, 3]> (q1)
            k = Transpose <perm = [0, 2, 3, 1]> (k1)
            v = Transpose <perm = [0, 2, 1, 3]> (v1)
            qk = MatMul (q, k)
            scale = Constant <value: tensor = float {{{(width // heads) ** -0.5}}}> ()
            scores = Mul (qk, scale)
            row = Unsqueeze (places, axis1)
            column = Unsqueeze (places, axis0)
            seen = LessOrEqual (column, row)
            never = Constant <value: tensor = float {{-10000.0}}> ()
            masked = Where (seen, scores, never)
            p = Softmax <axis = -1> (masked)
            o = MatMul (p, v)
            o1 = Transpose <perm = [0, 2, 1, 3]> (o)
            o2 = Reshape (o1, joined)
            o3 = MatMul (o2, wo)
            y = Add (x, o3)
            m = LayerNormalization <axis = -1> (y, g1, z1)
            u = MatMul (m, w1)
            r = Relu (u)
            d = MatMul (r, w2)
            z = Add (y, d)
            logits = MatMul (z, head)
        }}""",
        embedding=normal(8, words, width),
        positions=normal(9, 64, width),
        g1=np.ones(width, np.float32),
        z1=np.zeros(width, np.float32),
        **{name: normal(10 + i, width, width) / 6 for i, name in enumerate(("wq", "wk", "wv", "wo"))},
        w1=normal(15, width, 2 * width) / 6,
        w2=normal(16, 2 * width, width) / 8,
        head=normal(17, width, words) / 6,
    )


def text_classifier() -> onnx.ModelProto:
    """Words to lower case, counted, weighted, and the name of the best class."""
    return model(
        """
        classifier (string[n] words) => (string[1] label, float[1, 2] scores) {
            clean = StringNormalizer <case_change_action = "LOWER", stopwords = ["the"], locale = "C"> (words)
            counts = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 2, max_skip_count = 1,
                ngram_counts = [0, 3], ngram_indexes = [0, 1, 2, 3, 4],
                pool_strings = ["good", "bad", "film", "good", "film", "bad", "film"]> (clean)
            first = Constant <value_ints = [0]> ()
            row = Unsqueeze (counts, first)
            scores = MatMul (row, w)
            best = ArgMax <axis = 1, keepdims = 0> (scores)
            label = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1], values_strings = ["positive", "negative"]> (best)
        }""",
        w=np.array([[1, -1], [-1, 1], [0, 0], [2, -2], [-2, 2]], np.float32),
    )


def dynamic_batch_cnn() -> onnx.ModelProto:
    """A quantised CNN whose batch is open."""
    made = build_quantized("resnet8", size=8)
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del made.graph.value_info[:]
    return made
