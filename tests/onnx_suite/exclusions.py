"""Tests of the suite that are known not to pass, by cause. The runner reports one that starts to pass as a failure."""

from __future__ import annotations

from dataclasses import replace

from tests.onnx_suite.suite import Result

EXCLUDED: dict[str, str] = {}


def _because(reason: str, *names: str) -> None:
    EXCLUDED.update({f"test_{name}_cpu": reason for name in names})


_because(
    "the expected values are drawn at random, unseeded; the suite says so itself",
    "bernoulli", "bernoulli_double", "bernoulli_double_expanded", "bernoulli_expanded", "bernoulli_seed",
    "bernoulli_seed_expanded",
)  # fmt: skip
_because(
    "compares zeros relative to rounding noise: the expected 1.9e-7 is what numpy's float32 FFT leaves of an exact 0, "
    "the tolerance is 1e-7, and the kernel gives 3e-15",
    "dft_inverse", "dft_inverse_opset19",
)  # fmt: skip
_because(
    "expects a softmax rounded to float16 after every step; the kernel rounds once, two of 192 values differ by one "
    "unit in the last place, which is more than the tolerance",
    "attention_4d_causal_fp16", "attention_4d_causal_fp16_expanded",
)  # fmt: skip
_because(
    "the reference implementation takes the length of the result before it is rounded down; the kernel does as "
    "onnxruntime, with which results must be equal",
    "resize_downsample_scales_cubic_align_corners", "resize_downsample_scales_linear_align_corners",
)  # fmt: skip
_because(
    "the suite cannot compare a sequence that holds a scalar (TypeError in its assert_similar_outputs)",
    "loop16_seq_none",
)  # fmt: skip


def judged(result: Result) -> Result:
    """The result of a test with the exclusions in mind."""
    reason = EXCLUDED.get(result.name)
    if reason is None:
        return result
    if result.status == "pass":
        return replace(result, status="fail", reason=f"is excluded ({reason}), but passes: strike it off the list")
    return replace(result, status="excluded", reason=reason)
