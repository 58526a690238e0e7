"""Train the digits network, quantise it, and write digits_float.onnx, digits_int8.onnx and digits_test.npz.

Needs PyTorch and scikit-learn: pip install -c .ci/torch.txt -e '.[torch,test]'. Takes about half a minute on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import network
import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import functional as F
from torch_network import Digits

from tilewright import zoo


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Each image moved by up to one pixel either way: the only augmentation."""
    padded = F.pad(images, (1, 1, 1, 1))
    dy, dx = (int(v) for v in torch.randint(0, 3, (2,)))
    return padded[:, :, dy : dy + 8, dx : dx + 8]


def train(images: torch.Tensor, labels: torch.Tensor, epochs: int) -> Digits:
    """Train with AdamW and a one-cycle learning rate; prints the loss now and then."""
    model = Digits()
    batch = 64
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.02)
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=6e-3, total_steps=steps)
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(images))[: len(images) // batch * batch].reshape(-1, batch)
        for chosen in order:
            loss = F.cross_entropy(model(shifted(images[chosen])), labels[chosen], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {total / len(order):.3f}")
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=network.HERE, help="folder for the three files")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    digits = load_digits()
    raw = digits.images.astype(np.uint8)[:, None]  # 0..16
    train_raw, test_raw, train_labels, test_labels = train_test_split(
        raw, digits.target, test_size=360, random_state=0, stratify=digits.target
    )
    images = train_raw.astype(np.float32) / np.float32(16)
    trained = train(torch.from_numpy(images), torch.from_numpy(train_labels), options.epochs)

    model = network.build(trained.folded())
    int8 = zoo.quantize(model, "qdq", "int8", per_channel=True, calibration=images)
    options.output.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(options.output / network.FLOAT_MODEL.name))
    onnx.save(int8, str(options.output / network.INT8_MODEL.name))
    np.savez_compressed(options.output / network.TEST_SET.name, images=test_raw, labels=test_labels.astype(np.uint8))
    print(f"{zoo.count_parameters(model)} parameters, {zoo.count_macs(model)} MACs, written to {options.output}")


if __name__ == "__main__":
    main()
