"""Ops on the host, and kernels with a count, against onnxruntime."""

import numpy as np
import pytest

import tilewright as tw
from tests.common.dynamic_models import model
from tests.unit.tilewright.dynamic.reference import assert_same, check_node, node_model, reference

R = np.random.default_rng(1)
WORDS = [["a b", "c", ""], ["d e f", "a b", "ä ö"]]
ML = "ai.onnx.ml"


@pytest.mark.parametrize(
    "op, inputs, outputs, options",
    [
        ("StringConcat", [WORDS, [["-"], ["+"]]], 1, {}),
        ("StringSplit", [WORDS], 2, {}),
        ("StringSplit", [["a--b--c", "--", "x"]], 2, {"delimiter": "--", "maxsplit": 1}),
        ("RegexFullMatch", [["ab12", "ab", "12x", ""]], 1, {"pattern": r"[a-z]*\d+"}),
        ("Equal", [WORDS, "a b"], 1, {}),
        ("Identity", [WORDS], 1, {}),
        ("Gather", [WORDS, [1, -1]], 1, {"axis": 1}),
        ("GatherElements", [WORDS, [[0, 1, -1]]], 1, {}),
        ("Reshape", [WORDS, [3, -1]], 1, {}),
        ("Transpose", [WORDS], 1, {"perm": [1, 0]}),
        ("Concat", [WORDS, [["y"], ["z"]]], 1, {"axis": 1}),
        ("Squeeze", [[WORDS], [0]], 1, {}),
        ("Unsqueeze", [WORDS, [0, 3]], 1, {}),
        ("Slice", [WORDS, [2], [-4], [1], [-1]], 1, {}),
        ("Split", [WORDS, [1, 2]], 2, {"axis": 1}),
        ("Expand", [[["a"], ["b"]], [2, 3]], 1, {}),
        ("Tile", [WORDS, [1, 2]], 1, {}),
        ("Where", [[[True, False, True]], WORDS, "none"], 1, {}),
        ("Compress", [WORDS, [True, False, True]], 1, {"axis": 1}),
        ("Unique", [["b", "a", "b", "c"]], 4, {"sorted": 0}),
        ("Shape", [WORDS], 1, {"start": 1}),
        ("Size", [WORDS], 1, {}),
        ("Flatten", [[WORDS]], 1, {"axis": 2}),
        ("Cast", [["1.5", "-2", "inf"]], 1, {"to": 1}),
        ("Cast", [["7", "-2"]], 1, {"to": 7}),
        ("Cast", [np.array([7, -2])], 1, {"to": 8}),
        ("Cast", [np.array([0.5, -2.25], np.float32)], 1, {"to": 8}),
        ("LabelEncoder", [["a", "c", "x"]], 1,
         {"domain": ML, "keys_strings": ["a", "b", "c"], "values_int64s": [1, 2, 3], "default_int64": 9}),
        ("LabelEncoder", [np.array([1.0, np.nan, 5.0], np.float32)], 1,
         {"domain": ML, "keys_floats": [1.0, float("nan")], "values_strings": ["one", "none"]}),
        ("LabelEncoder", [np.array([[3], [4]])], 1,
         {"domain": ML, "keys_int64s": [3, 5], "values_floats": [0.5, 1.5], "default_float": 7.0}),
        ("CategoryMapper", [["cat", "cow"]], 1, {"domain": ML, "cats_strings": ["cat"], "cats_int64s": [4]}),
        ("CategoryMapper", [np.array([4, 5])], 1, {"domain": ML, "cats_strings": ["cat"], "cats_int64s": [4]}),
    ],
    ids=str,
)  # fmt: skip
def test_strings(op, inputs, outputs, options):
    check_node(op, inputs, outputs, **options)


@pytest.mark.parametrize("case", ["LOWER", "UPPER", "NONE"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("words", [["Stop", "Go", "stop"], [["stop", "STOP"]]])
def test_string_normalizer(case, sensitive, words):
    attrs = {"case_change_action": case, "is_case_sensitive": sensitive, "stopwords": ["stop", "STOP"], "locale": "C"}
    check_node("StringNormalizer", [words], **attrs)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("skip", [0, 2])
def test_tf_idf(mode, lengths, skip):
    attrs = {
        "mode": mode, "min_gram_length": lengths[0], "max_gram_length": lengths[1], "max_skip_count": skip,
        "ngram_counts": [0, 4], "ngram_indexes": [2, 0, 1, 3, 5, 4, 6], "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        "weights": [0.5, 2.0, 1.0, 3.0, 4.0, 0.25, 8.0],
    }  # fmt: skip
    check_node("TfIdfVectorizer", [np.array([[1, 1, 3, 3, 3, 7, 8], [8, 6, 7, 5, 6, 8, 7]])], **attrs)


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("ordered", [0, 1])
def test_unique(axis, ordered):
    x = R.integers(0, 3, (4, 2)).astype(np.float32)
    check_node("Unique", [x], 4, sorted=ordered, **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("shape", [(7,), (3, 4, 2), (0, 3)])
def test_non_zero(dtype, shape):
    check_node("NonZero", [R.integers(0, 2, shape).astype(dtype)])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis):
    x = R.standard_normal((3, 4, 5), np.float32)
    condition = R.integers(0, 2, 3 if axis is not None else 50).astype(np.bool_)
    check_node("Compress", [x, condition], **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("most, iou, worth", [(3, 0.2, 0.4), (100, 0.9, -1.0), (100, 0.0, 0.0), (0, 0.5, 0.5)])
def test_non_max_suppression(center, most, iou, worth):
    boxes = R.random((2, 40, 4), np.float32)
    if not center:
        boxes[..., 2:] = boxes[..., :2] + boxes[..., 2:] * R.choice([-1, 1], (2, 40, 2))
    boxes[0, 3] = boxes[0, 4]
    scores = np.round(R.random((2, 3, 40), np.float32), 1)  # with ties
    inputs = [boxes, scores, np.array([most]), np.array([iou], np.float32), np.array([worth], np.float32)]
    feeds = {f"x{k}": v for k, v in enumerate(inputs)}
    proto = node_model("NonMaxSuppression", feeds, 1, center_point_box=center)
    got = tw.DynamicModel(proto, cache=False)(feeds)["y0"]
    assert sorted(got.tolist()) == sorted(reference(proto, feeds)[0].tolist())
    order = scores[got[:, 0], got[:, 1], got[:, 2]]
    same_group = np.all(got[1:, :2] == got[:-1, :2], axis=1)
    assert np.all(np.diff(order)[same_group] <= 0)


def test_sequences():
    source = model("""
        parts (float[n, 4] x, int64 at) => (float[m, 4] joined, float[s, n, 4] stacked, int64 length, float[k, 4] one) {
            two = Constant <value: tensor = int64 {2}> ()
            s = SplitToSequence <axis = 0> (x, two)
            t = SequenceInsert (s, x, at)
            u = SequenceErase (t, at)
            v = SequenceInsert (u, x)
            length = SequenceLength (v)
            one = SequenceAt (v, at)
            joined = ConcatFromSequence <axis = 0> (v)
            w = SequenceConstruct (x, x)
            stacked = ConcatFromSequence <axis = 0, new_axis = 1> (w)
        }""")
    dynamic = tw.compile(source, cache=False)
    for rows, at in ((4, 1), (5, -2), (2, 0)):
        feeds = {"x": R.standard_normal((rows, 4), np.float32), "at": np.array(at)}
        for a, b in zip(dynamic(feeds).values(), reference(source, feeds)):
            assert_same(a, b)
    with pytest.raises(tw.TilewrightError, match=r"SequenceInsert .*position 9 is out of range"):
        dynamic({"x": np.zeros((2, 4), np.float32), "at": np.array(9)})


def test_sequences_known_at_compile_time_are_one_program():
    source = model("""
        parts (float[4, 4] x) => (float[4, 4] y) {
            s = SplitToSequence <axis = 1, keepdims = 0> (x)
            i = Constant <value: tensor = int64 {1}> ()
            a = SequenceAt (s, i)
            t = SequenceErase (s, i)
            u = SequenceInsert (t, a)
            y = ConcatFromSequence <axis = 1, new_axis = 1> (u)
        }""")
    program = tw.compile(source, cache=False)
    assert isinstance(program, tw.Program)
    x = R.standard_normal((4, 4), np.float32)
    assert_same(tw.Device("functional").run(program, {"x": x})["y"], reference(source, {"x": x})[0])


def test_branches_of_different_shape():
    source = model("""
        branch (bool yes, float[n] x) => (float[m] y) {
            y = If (yes) <
                then_branch: graph = a () => (float[m] p) { p = Concat <axis = 0> (x, x) },
                else_branch: graph = b () => (float[m] q) { q = Neg (x) }
            >
        }""")
    dynamic = tw.compile(source, cache=False)
    for yes in (True, False):
        feeds = {"yes": np.array(yes), "x": np.arange(3, dtype=np.float32)}
        assert_same(dynamic(feeds)["y"], reference(source, feeds)[0])


@pytest.mark.medium
@pytest.mark.parametrize("steps", [3, 90])
def test_scan(steps):
    """Short ones are unrolled, long ones run step by step."""
    source = model(
        """
        scan (float[2] start, float[t, 2] xs) => (float[2] end, float[2, t] sums) {
            end, sums = Scan <num_scan_inputs = 1, scan_output_axes = [1], scan_input_directions = [1],
                scan_output_directions = [1], body = step (float[2] s, float[2] x) => (float[2] r, float[2] out) {
                    h = Mul (s, x)
                    r = Add (h, x)
                    out = Identity (r)
                }> (start, xs)
        }""".replace("body = step", "body: graph = step")
    )
    dynamic = tw.compile(source, cache=False)
    feeds = {"start": np.ones(2, np.float32), "xs": R.uniform(-1, 1, (steps, 2)).astype(np.float32)}
    for a, b in zip(dynamic(feeds).values(), reference(source, feeds)):
        assert_same(a, b)
    assert (len(dynamic.ran) > 1) == (steps > 66)


def scan_of_opset_8(lengths):
    """A running product and sum of three sequences from their ends, with a length of each or without."""
    return model(
        """
        scan (int64[3] lengths, float[3, 2] start, float[3, t, 2] xs) => (float[3, 2] end, float[3, t, 2] sums) {
            end, sums = Scan <num_scan_inputs = 1, directions = [1],
                body: graph = step (float[2] s, float[2] x) => (float[2] r, float[2] out) {
                    h = Mul (s, x)
                    r = Add (h, x)
                    out = Identity (r)
                }> (LENGTHS, start, xs)
        }""".replace("LENGTHS", "lengths" if lengths else ""),
        opset=8,
    )


@pytest.mark.parametrize("steps", [4, 60])
@pytest.mark.parametrize("lengths", [True, False])
def test_scan_of_opset_8(steps, lengths):
    """A batch axis in front, and a length for every sequence; what is behind the end of one is 0."""
    source = scan_of_opset_8(lengths)
    dynamic = tw.compile(source, cache=False)
    feeds = {
        "lengths": np.array([steps, 2, steps - 1]),
        "start": np.ones((3, 2), np.float32),
        "xs": R.uniform(-1, 1, (3, steps, 2)).astype(np.float32),
    }
    for a, b in zip(dynamic(feeds).values(), reference(source, feeds)):
        assert_same(a, b)


@pytest.mark.parametrize("lengths", [[4, 5, 1], [4, 0, 1], [-1, 4, 4]])
def test_scan_refuses_lengths_beyond_the_sequences(lengths):
    """The result is that of onnxruntime."""
    dynamic = tw.compile(scan_of_opset_8(True), cache=False)
    feeds = {"start": np.ones((3, 2), np.float32), "xs": np.ones((3, 4, 2), np.float32)}
    with pytest.raises(tw.TilewrightError, match=r"Scan .*sequence_lens=.* must be 3 lengths of 1 to 4"):
        dynamic({"lengths": np.array(lengths), **feeds})


def test_a_damaged_node_is_one_line():
    source = model("broken (float[n, 4] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }")
    with pytest.raises(tw.TilewrightError, match=r"^broken: Reshape 'y': \[3, 4\] does not fit the target shape"):
        tw.compile(source, cache=False)({"x": np.zeros((3, 4), np.float32), "s": np.array([5, 5])})


def test_an_op_without_a_form_for_strings_is_named():
    feeds = {"x": np.array(["a"], np.object_)}
    with pytest.raises(tw.TilewrightError, match="Relu 'y0' takes tensors of numbers, not string 1"):
        tw.DynamicModel(node_model("Relu", {"x": np.array(["a"], np.object_)}, 1), cache=False)(feeds)


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        ("Reshape", [WORDS, [4, -1]], r"Reshape 'y0': \[2, 3\] does not fit the target shape \[4, -1\]"),
        ("Expand", [WORDS, [4, 2]], "Expand 'y0' cannot be evaluated: operands could not be broadcast"),
        ("Gather", [WORDS, [2]], "Gather 'y0' cannot be evaluated: index 2 is out of bounds for axis 0 with size 2"),
        ("Split", [WORDS, [3, 2]], r"Split 'y0': split=\[3, 2\] does not divide dimension 0 of \[2, 3\]"),
        ("Tile", [WORDS, [2]], r"Tile 'y0': repeats=\[2\] must be 2 counts"),
        ("Slice", [WORDS, [0, 1], [1]], r"Slice 'y0': starts=\[0, 1\], ends=\[1\], .* differ in length"),
        ("GatherElements", [WORDS, [[3]]], "GatherElements 'y0': index 3 is out of range for 2 elements"),
    ],
)
def test_inputs_that_do_not_fit_are_one_line(op, inputs, message):
    feeds = {f"x{k}": np.asarray(v, np.object_ if k == 0 else None) for k, v in enumerate(inputs)}
    with pytest.raises(tw.TilewrightError, match=message):
        tw.DynamicModel(node_model(op, feeds, 2 if op == "Split" else 1), cache=False)(feeds)
