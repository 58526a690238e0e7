"""Quantised ops whose scales and zero points put results on ties and at the limits, against onnxruntime and LiteRT.

Random scales hardly ever make a tie, so they say little about rounding. Here every parameter is drawn from a few values
whose ratios are 2, 1/2, 3/2 and the like, zero points lie at both ends of the range and beside them, and inputs hold
all 256 codes of their type.

    parameters.py   the draws: scales, zero points, integers, channel scales
    onnx_model.py   a model builder whose draws are these, so that the cases of `tests/reference` tie, too
    onnx_cases.py   further cases: all pairs of codes, the QLinear forms, pairs of ops that the compiler fuses
    tflite_model.py, tflite_cases.py   the same for TFLite
    run.py          batches of cases in one file, compared as `--check` compares; a batch that differs is taken apart
"""
