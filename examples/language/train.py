"""Train a small language model on the documentation of this repository, a token a character, and quantise it.

Writes char_llama_float.onnx, char_llama_int8.onnx, prompts.npz for `tilewright quantize`, and held_back.txt, the last
tenth of the text, which it does not train on. Needs PyTorch: pip install -c .ci/torch.txt -e '.[torch]'. Takes
some minutes on two cores.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import onnx
import torch
from torch.nn import functional as F

from tilewright.quantize import quantize
from tilewright.zoo.llama import CHARACTERS, Shape, Weights, decoder, prompts, rotary_tables

HERE = Path(__file__).resolve().parent
SHAPE = Shape(layers=4, width=64, heads=8, kv_heads=4, hidden=128, window=64, context=1024, vocabulary=CHARACTERS)
STRETCH = 128  # tokens of a training sample: more than the window, so that the model learns to do with what it sees


def corpus(folder: Path) -> np.ndarray:
    """The Markdown files of a folder as token numbers, paragraphs joined to lines; other characters are left out."""
    text = "\n".join(path.read_text() for path in sorted(folder.rglob("*.md")))
    number = {c: i for i, c in enumerate(CHARACTERS)}
    return np.array([number[c] for c in text if c in number], np.int64)


def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * scale


class Model(torch.nn.Module):
    """The decoder of `tilewright.zoo.llama` for whole sequences: each token sees the last `window` ones."""

    def __init__(self) -> None:
        super().__init__()
        first = Weights.random(SHAPE, 0)
        self.embedding = torch.nn.Parameter(torch.tensor(first.embedding) * 0.3)
        self.norm = torch.nn.Parameter(torch.ones(SHAPE.width))
        self.layers = torch.nn.ModuleList(
            torch.nn.ParameterDict(
                {n: torch.ones(SHAPE.width) if n.endswith("norm") else torch.tensor(w) for n, w in layer.items()}
            )
            for layer in first.layers
        )
        cosine, sine = (torch.tensor(table[:STRETCH]) for table in rotary_tables(SHAPE))
        self.register_buffer("cosine", cosine)
        self.register_buffer("sine", sine)
        rows, columns = torch.arange(STRETCH)[:, None], torch.arange(STRETCH)
        self.register_buffer("seen", (columns <= rows) & (columns > rows - SHAPE.window))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [batch, STRETCH] -> logits [batch, STRETCH, vocabulary]."""
        x = self.embedding[tokens]
        for layer in self.layers:
            y = norm(x, layer["attention_norm"])
            query = self.turned(self.heads(y @ layer["query"], SHAPE.heads))
            keys, values = (self.heads(y @ layer[n], SHAPE.kv_heads) for n in ("key", "value"))
            group = SHAPE.heads // SHAPE.kv_heads
            keys, values = (z.repeat_interleave(group, 1) for z in (self.turned(keys), values))
            scores = (query @ keys.transpose(2, 3)) / math.sqrt(SHAPE.depth)
            mixed = scores.masked_fill(~self.seen, -math.inf).softmax(-1) @ values
            x = x + mixed.transpose(1, 2).flatten(2) @ layer["output"]
            y = norm(x, layer["feed_norm"])
            x = x + (F.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
        return norm(x, self.norm) @ self.embedding.T

    def heads(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return x.unflatten(2, (count, SHAPE.depth)).transpose(1, 2)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-high, low], -1) * self.sine

    def weights(self) -> Weights:
        plain = lambda t: t.detach().numpy().astype(np.float32)
        return Weights(plain(self.embedding), plain(self.norm),
                       [{n: plain(w) for n, w in layer.items()} for layer in self.layers])  # fmt: skip


def train(tokens: np.ndarray, steps: int, batch: int) -> Model:
    """AdamW with a warm-up and a cosine; prints the loss, in bits per character, now and then."""
    model = Model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, steps, pct_start=0.1)
    text, total = torch.tensor(tokens), 0.0
    for step in range(1, steps + 1):
        at = torch.randint(len(text) - STRETCH - 1, (batch, 1)) + torch.arange(STRETCH + 1)
        chosen = text[at]
        loss = F.cross_entropy(model(chosen[:, :-1]).flatten(0, 1), chosen[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        total += loss.item()
        if step % 100 == 0:
            print(f"step {step} of {steps}: {total / 100 / math.log(2):.2f} bits per character", flush=True)
            total = 0.0
    return model.eval()


def samples(model: onnx.ModelProto, tokens: np.ndarray, count: int) -> list[dict[str, np.ndarray]]:
    """Calibration data: pieces of the text as long as the cache, and nothing before them."""
    starts = np.random.default_rng(0).integers(len(tokens) - SHAPE.window, size=count)
    return [prompt | {"input_ids": tokens[None, at : at + SHAPE.window]}
            for prompt, at in zip(prompts(model, count), starts, strict=True)]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, default=HERE.parents[1] / "docs", help="folder with Markdown files")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--output", type=Path, default=HERE, help="folder for the two files")
    options = parser.parse_args()
    if not options.output.is_dir():
        parser.error(f"--output {options.output}: no such folder")
    tokens = corpus(options.text)
    tokens, held_back = np.split(tokens, [len(tokens) * 9 // 10])
    if len(tokens) <= STRETCH + 1:
        parser.error(f"--text {options.text}: {len(tokens)} characters in Markdown files; {STRETCH + 2} are needed")
    (options.output / "held_back.txt").write_text("".join(CHARACTERS[token] for token in held_back))

    torch.manual_seed(0)
    print(f"{len(tokens)} characters, and {len(held_back)} held back")
    model = decoder("char_llama", SHAPE, train(tokens, options.steps, options.batch).weights())
    onnx.save(model, options.output / "char_llama_float.onnx")
    calibration = samples(model, tokens, 48)
    np.savez_compressed(
        options.output / "prompts.npz",
        **{name: np.stack([each[name] for each in calibration]) for name in calibration[0]},
    )
    result = quantize(model, calibration, check=False)
    onnx.save(result.model, options.output / "char_llama_int8.onnx")
    print(f"{len(result.serialized())} bytes")


if __name__ == "__main__":
    main()
