"""Exports a PyTorch module, the trained digits network, quantises it and runs it on the simulated NPU.

Needs PyTorch: pip install -c .ci/torch.txt -e '.[test,torch]' (or make test-torch). Every one of the 360 held-back
images runs in torch, as float program, as int8 program, and the int8 model in onnxruntime.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "digits"))

import network
import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from sklearn.datasets import load_digits
from torch_network import Digits

import tilewright as tw
from tilewright.quantization import quantize_model
from tilewright.torch.pytorch import export

CALIBRATION = 200  # images of the training set


def main() -> int:
    """Exit code 0 if the float program agrees with torch on every image and the int8 one with onnxruntime's bytes."""
    images, labels = network.load_test_set()
    trained = onnx.load(network.FLOAT_MODEL)
    module = Digits.trained({x.name: numpy_helper.to_array(x) for x in trained.graph.initializer})
    with torch.no_grad():
        want = module(torch.tensor(images)).numpy()

    model = export(module, (torch.tensor(images[:1]),), input_names=["image"])
    quantised = quantize_model(model, training_images(images))
    float_program, int8_program = tw.compile(model), tw.compile(quantised)
    device = tw.Device("functional")
    found = np.concatenate([device.run(float_program, x[None])["output"] for x in images])
    scores = np.concatenate([device.run(int8_program, x[None])["output"] for x in images])

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(quantised.SerializeToString(), options)
    reference = np.concatenate([session.run(None, {"image": x[None]})[0] for x in images])

    count = len(images)
    same = int((found.argmax(1) == want.argmax(1)).sum())
    kept = int((scores.argmax(1) == want.argmax(1)).sum())
    different = int((scores.view(np.uint32) != reference.view(np.uint32)).sum())
    print(f"torch: {(want.argmax(1) == labels).mean():.2%} of {count} images correct")
    print(f"float program: {same} of {count} top-1 equal to torch, scores within {abs(found - want).max():.1e}")
    print(
        f"int8 program: {int8_program.npu_macs / int8_program.macs:.0%} of the MAC on the NPU, "
        f"{(scores.argmax(1) == labels).mean():.2%} correct, {kept} of {count} top-1 equal to torch, "
        f"{different} of {scores.size} scores differ from onnxruntime"
    )
    return 0 if same == count and different == 0 else 1


def training_images(held_back: np.ndarray) -> np.ndarray:
    """float32 [CALIBRATION, 1, 8, 8] in 0..1: images of the data set that are not among those held back."""
    known = {image.tobytes() for image in held_back}
    everything = load_digits().images.astype(np.float32)[:, None] / np.float32(16)
    return np.stack([image for image in everything if image.tobytes() not in known][:CALIBRATION])


if __name__ == "__main__":
    sys.exit(main())
