"""TFLite_Detection_PostProcess: anchors applied to box encodings, non-maximum suppression unrolled.

Each step takes the best box left and drops those that overlap it, for all classes at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.handlers import PLAIN, handles
from tilewright.compiler.importer.tflite.reduction import largest
from tilewright.compiler.importer.tflite.schema import FileOp

_MAX_STEPS = 512
_GONE = -1e30


def _options(b: TfliteBuilder) -> dict[str, Any]:
    try:
        found = flexbuffers.Loads(b.op.custom)
    except Exception as error:  # the reader raises many kinds on damaged bytes
        raise b.damaged(f"options cannot be read: {error}") from error
    needed = ("max_detections", "num_classes", "nms_score_threshold", "nms_iou_threshold",
              "y_scale", "x_scale", "h_scale", "w_scale")  # fmt: skip
    if not isinstance(found, dict) or any(not isinstance(found.get(k), int | float) for k in needed):
        raise b.damaged(f"options must be numbers {', '.join(needed)}")
    if not 0 < found["nms_iou_threshold"] <= 1 or not 0 < found["max_detections"] <= _MAX_STEPS:
        raise b.refuse(f"overlap {found['nms_iou_threshold']} and {found['max_detections']} detections")
    return found


@handles("TFLite_Detection_PostProcess", table=PLAIN)
def detection_postprocess(b: TfliteBuilder, op: FileOp) -> None:
    """Inputs: encodings [1,N,4+], scores [1,N,C], anchors [N,4]. Outputs: boxes, classes, scores, count."""
    o = _options(b)
    encodings, scores, anchors = b.shape(0), b.shape(1), b.shape(2)
    classes, kept = int(o["num_classes"]), int(o["max_detections"])
    n = anchors[0] if len(anchors) == 2 else 0
    fits = len(encodings) == 3 and encodings[:2] == (1, n) and encodings[2] >= 4 and anchors[1:] == (4,)
    if not fits or len(scores) != 3 or scores[:2] != (1, n) or not 0 < classes <= scores[2] <= classes + 1:
        raise b.damaged(f"shapes {list(encodings)}, {list(scores)} and {list(anchors)} for {classes} classes")
    if int(o.get("max_classes_per_detection", 1)) != 1 and not o.get("use_regular_nms"):
        raise b.refuse("several classes per detection are not supported")
    corners = _corners(b, o, n)
    first = scores[2] - classes  # a background class comes first
    table = b.reshaped(b.real(1), [n, scores[2]])
    table = b.onnx("Slice", b.section(table, first, scores[2], 1))
    if o.get("use_regular_nms"):
        each = min(int(o.get("detections_per_class", 100)), kept)
        if not 0 < each * classes <= 1 << 20:
            raise b.refuse(f"{each} detections in each of {classes} classes")
        by_class = b.onnx("Transpose", [table], {"perm": [1, 0]})
        boxes, values = _suppress(b, o, corners, by_class, min(each, n))
        size = b.graph.tensor(values).size
        boxes, values = (b.reshaped(v, [size]) for v in (boxes, values))
        values, places = largest(b, values, min(kept, size), 0, "best")
        kinds = b.onnx("Div", [places, b.constant("each", size // classes, np.int64)])
        boxes = b.onnx("Gather", [boxes, places], {"axis": 0})
    else:
        best = b.onnx("ReduceMax", [table, b.constant("axes", [1], np.int64)], {"keepdims": 0})
        best = b.reshaped(best, [1, n])
        boxes, values = _suppress(b, o, corners, best, min(kept, n))
        boxes, values = (b.reshaped(v, [-1]) for v in (boxes, values))
        kinds = b.onnx("Gather", [b.onnx("ArgMax", [table], {"axis": 1, "keepdims": 0}), boxes], {"axis": 0})
    _results(b, kept, corners, boxes, values, kinds)


def _corners(b: TfliteBuilder, o: dict[str, Any], n: int) -> list[str]:
    """Emits ymin, xmin, ymax, xmax [N] as float32, computed in float64."""

    def columns(k: int, width: int) -> list[str]:
        rows = b.reshaped(b.cast(b.real(k), np.float64), [n, width])
        return [b.reshaped(b.onnx("Slice", b.section(rows, i, i + 1, 1)), [n]) for i in range(4)]

    def single(name: str) -> str:
        return b.cast(name, np.float32)

    def number(value: float) -> str:
        return b.constant("number", value, np.float64)

    box, anchor = columns(0, b.shape(0)[2]), columns(2, 4)
    scales = [number(float(np.float32(o[k]))) for k in ("y_scale", "x_scale", "h_scale", "w_scale")]
    centres, halves = [], []
    for i in (0, 1):
        moved = b.onnx("Mul", [b.onnx("Div", [box[i], scales[i]]), anchor[i + 2]])
        centres.append(single(b.onnx("Add", [moved, anchor[i]])))
        grown = b.onnx("Exp", [b.onnx("Div", [box[i + 2], scales[i + 2]])])
        halves.append(single(b.onnx("Mul", [b.onnx("Mul", [grown, number(0.5)]), anchor[i + 2]])))
    return [b.onnx(kind, [c, h]) for kind in ("Sub", "Add") for c, h in zip(centres, halves)]


def _suppress(b: TfliteBuilder, o: dict[str, Any], corners: list[str], scores: str, steps: int) -> tuple[str, str]:
    """Emits box index and score [classes, steps] of the best boxes of scores [classes, N]; `_GONE` for none."""
    threshold = b.constant("threshold", o["nms_score_threshold"], np.float32)
    overlap = b.constant("overlap", o["nms_iou_threshold"], np.float32)
    gone, zero = b.constant("gone", _GONE, np.float32), b.constant("zero", 0, np.float32)
    low_y, low_x, high_y, high_x = corners
    area = b.onnx("Mul", [b.onnx("Sub", [high_y, low_y]), b.onnx("Sub", [high_x, low_x])])
    left = b.onnx("Where", [b.onnx("GreaterOrEqual", [scores, threshold]), scores, gone])
    every = b.constant("boxes", np.arange(b.graph.tensor(scores).shape[1]), np.int64)
    boxes, values = [], []
    for _ in range(steps):
        best = b.onnx("ArgMax", [left], {"axis": 1, "keepdims": 1})
        boxes.append(best)
        values.append(b.onnx("ReduceMax", [left, b.constant("axes", [1], np.int64)], {"keepdims": 1}))
        own = [b.onnx("Gather", [v, best], {"axis": 0}) for v in (*corners, area)]
        height = b.onnx("Sub", [b.onnx("Min", [own[2], high_y]), b.onnx("Max", [own[0], low_y])])
        width = b.onnx("Sub", [b.onnx("Min", [own[3], high_x]), b.onnx("Max", [own[1], low_x])])
        shared = b.onnx("Mul", [b.onnx("Max", [height, zero]), b.onnx("Max", [width, zero])])
        ratio = b.onnx("Div", [shared, b.onnx("Sub", [b.onnx("Add", [own[4], area]), shared])])
        real = b.onnx("And", [b.onnx("Greater", [own[4], zero]), b.onnx("Greater", [area, zero])])
        over = b.onnx("And", [b.onnx("Greater", [ratio, overlap]), real])
        left = b.onnx("Where", [b.onnx("Or", [over, b.onnx("Equal", [every, best])]), gone, left])
    return b.onnx("Concat", boxes, {"axis": 1}), b.onnx("Concat", values, {"axis": 1})


def _results(b: TfliteBuilder, kept: int, corners: list[str], boxes: str, values: str, kinds: str) -> None:
    """Emits the four outputs, zeros behind the last detection."""
    count = b.graph.tensor(values).size
    there = b.cast(b.onnx("Greater", [values, b.constant("gone", _GONE, np.float32)]), np.float32)

    def emit_result(name: str, k: int, shape: list[int]) -> None:
        pads = [0] * len(shape) + [0, kept - count, *[0] * (len(shape) - 2)]
        full = b.reshaped(name, [1, count, *shape[2:]])
        zero = b.constant("value", 0, b.graph.tensor(full).dtype)
        full = b.onnx("Pad", [full, b.constant("pads", pads, np.int64), zero])
        b.onnx("Identity", [full], output=b.result(shape, k=k))

    sides = [b.onnx("Mul", [b.onnx("Gather", [side, boxes], {"axis": 0}), there]) for side in corners]
    column = b.constant("shape", [count, 1], np.int64)
    emit_result(b.onnx("Concat", [b.onnx("Reshape", [side, column]) for side in sides], {"axis": 1}), 0, [1, kept, 4])
    emit_result(b.onnx("Mul", [b.cast(kinds, np.float32), there]), 1, [1, kept])
    emit_result(b.onnx("Mul", [values, there]), 2, [1, kept])
    total = b.onnx("ReduceSum", [there, b.constant("axes", [0], np.int64)], {"keepdims": 1})
    b.onnx("Identity", [total], output=b.result([1], k=3))
