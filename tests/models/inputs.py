"""Inputs of the kind that the networks were made for, the same in every run: sample `number` of each kind."""

from __future__ import annotations

import functools
import os
import re
import string
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from tests.common.paths import ROOT

_WORDS = (
    "network", "tile", "buffer", "signal", "energy", "window", "letter", "garden", "morning", "river", "paper",
    "invoice", "total", "amount", "number", "street", "station", "report", "figure", "table", "method", "result",
    "summer", "winter", "music", "voice", "answer", "question", "market",
)  # fmt: skip


def random(number: int, kind: str) -> np.random.Generator:
    """The generator of one sample of one kind."""
    return np.random.default_rng([number, *kind.encode()])


def photographs_folder() -> Path | None:
    """Folder of photographs: `imagenet` in $TILEWRIGHT_MODELS, or in `../shared/models` beside the checkout."""
    named = os.environ.get("TILEWRIGHT_MODELS")
    found = (Path(named) if named else ROOT.parent / "shared" / "models") / "imagenet"
    return found if any(found.glob("*.bmp")) else None


@functools.cache
def _photographs() -> list[Image.Image]:
    found = photographs_folder()
    return [Image.open(path).convert("RGB") for path in sorted(found.glob("*.bmp"))] if found else []


def photograph(number: int, height: int, width: int) -> np.ndarray:
    """A cutting of a photograph, mirrored for odd numbers, as uint8[height, width, 3]; a drawn scene without any."""
    generator, pictures = random(number, "photograph"), _photographs()
    if not pictures:
        return scene(number, height, width)
    picture = pictures[number % len(pictures)]
    share = 1.0 if number < len(pictures) else generator.uniform(0.6, 1.0)
    wide, high = (int(size * share) for size in picture.size)
    left, top = (int(generator.uniform(0, full - cut)) for full, cut in zip(picture.size, (wide, high)))
    cut = picture.crop((left, top, left + wide, top + high)).resize((width, height), Image.Resampling.BILINEAR)
    values = np.asarray(cut)
    return np.ascontiguousarray(values[:, ::-1] if number // max(len(pictures), 1) % 2 else values)


def scene(number: int, height: int, width: int) -> np.ndarray:
    """Shapes over a gradient with noise, as uint8[height, width, 3]."""
    generator = random(number, "scene")
    ends = generator.uniform(0, 255, (2, 3))
    slope = np.linspace(0, 1, height)[:, None, None]
    ground = (ends[0] * (1 - slope) + ends[1] * slope) * np.ones((1, width, 1))
    picture = Image.fromarray(np.clip(ground, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    for _ in range(12):
        x, y = generator.uniform(0, width), generator.uniform(0, height)
        size = generator.uniform(0.05, 0.3) * min(height, width)
        colour = tuple(int(c) for c in generator.integers(0, 256, 3))
        shape = draw.ellipse if generator.random() < 0.5 else draw.rectangle
        shape((x - size, y - size, x + size, y + size), fill=colour)
    values = np.asarray(picture.filter(ImageFilter.GaussianBlur(1))) + generator.normal(0, 4, (height, width, 3))
    return np.clip(values, 0, 255).astype(np.uint8)


def text_line(number: int, height: int, width: int, text: str | None = None) -> np.ndarray:
    """A line of dark text on a light ground, as uint8[height, width, 3]."""
    generator = random(number, "line")
    text = text or " ".join(generator.choice(_WORDS, 2)) + f" {generator.integers(1000)}"
    ground = tuple(int(c) for c in generator.integers(200, 256, 3))
    picture = Image.new("RGB", (width, height), ground)
    draw, size = ImageDraw.Draw(picture), int(height * generator.uniform(0.5, 0.75))
    while size > 6 and draw.textlength(text, ImageFont.load_default(size)) > width - 8:
        size -= 1
    colour = tuple(int(c) for c in generator.integers(0, 90, 3))
    draw.text((4, height / 2), text, colour, ImageFont.load_default(size), anchor="lm")
    values = np.asarray(picture) + generator.normal(0, 3, (height, width, 3))
    return np.clip(values, 0, 255).astype(np.uint8)


def captcha_text(number: int) -> str:
    """The letters of `captcha`."""
    return "".join(random(number, "letters").choice(list(string.ascii_uppercase + string.digits), 4))


def captcha(number: int, height: int, width: int) -> np.ndarray:
    """Four letters, each turned a little, below two lines, as uint8[height, width]."""
    generator = random(number, "captcha")
    picture = Image.new("L", (width, height), 235)
    font = ImageFont.load_default(int(height * 0.75))
    for place, letter in enumerate(captcha_text(number)):
        tile = Image.new("L", (height, height), 0)
        ImageDraw.Draw(tile).text((height / 2, height / 2), letter, 255, font, anchor="mm")
        tile = tile.rotate(generator.uniform(-15, 15), Image.Resampling.BILINEAR)
        picture.paste(40, (int((place + 0.5) * width / 4 - height / 2), 0), tile)
    draw = ImageDraw.Draw(picture)
    for _ in range(2):
        ends = generator.uniform(0, 1, 4) * (width, height, width, height)
        draw.line(tuple(ends), fill=150, width=1)
    values = np.asarray(picture) + generator.normal(0, 4, (height, width))
    return np.clip(values, 0, 255).astype(np.uint8)


def page(number: int, height: int, width: int) -> np.ndarray:
    """A page with a title, paragraphs, a table and a picture, as uint8[height, width, 3]."""
    generator = random(number, "page")
    picture = Image.new("RGB", (width, height), (250, 250, 248))
    draw, left, y = ImageDraw.Draw(picture), width // 12, height // 20
    title, body = ImageFont.load_default(height // 24), ImageFont.load_default(max(10, height // 56))
    draw.text((left, y), " ".join(generator.choice(_WORDS, 3)).title(), (10, 10, 10), title)
    y += height // 12
    for block in generator.permutation(["text", "table", "text", "picture", "text"]):
        high = int(height * generator.uniform(0.11, 0.17))
        if y + high > height * 0.97:
            break
        if block == "text":
            for line in range(high // (height // 40)):
                words = " ".join(generator.choice(_WORDS, width // 70))
                draw.text((left, y + line * (height // 40)), words, (30, 30, 30), body)
        elif block == "table":
            for row in range(5):
                draw.line((left, y + row * high // 5, width - left, y + row * high // 5), fill=(60, 60, 60))
                for column in range(4):
                    at = left + 4 + column * (width - 2 * left) // 4, y + row * high // 5 + 2
                    draw.text(at, str(generator.integers(10000)), (30, 30, 30), body)
        else:
            inner = scene(number + 1000, high, width - 2 * left)
            picture.paste(Image.fromarray(inner), (left, y))
        y += high + height // 40
    return np.asarray(picture)


def voice(number: int, samples: int, rate: int) -> np.ndarray:
    """Sound as of speech: harmonics of a gliding pitch under two resonances, in syllables with pauses, over noise.

    Returns:
        float32[samples] within -1..1.
    """
    generator, t = random(number, "voice"), np.arange(samples) / rate
    syllable = 0.18 * rate
    count = int(np.ceil(samples / syllable)) + 1
    points = np.arange(count) * syllable
    pitch = np.interp(np.arange(samples), points, generator.uniform(90, 240, count))
    loudness = np.interp(np.arange(samples), points, generator.choice([0.0, 0.3, 0.6, 1.0], count))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    resonances = [
        np.interp(np.arange(samples), points, generator.uniform(*r, count)) for r in ((300, 800), (900, 2500))
    ]
    sound = np.zeros(samples)
    for harmonic in range(1, 25):
        weight = sum(np.exp(-(((harmonic * pitch - r) / 200) ** 2)) for r in resonances) + 0.05
        sound += weight / harmonic**0.5 * np.sin(harmonic * phase) * (harmonic * pitch < rate / 2)
    sound = sound * loudness * (0.7 + 0.3 * np.sin(2 * np.pi * 4 * t)) + generator.normal(0, 0.02, samples)
    return (0.5 * sound / max(np.abs(sound).max(), 1e-6)).astype(np.float32)


def spectrogram(number: int, frames: int, bands: int, rate: int = 16000, step: int = 160) -> np.ndarray:
    """Logarithm of the energy of `voice` in bands of equal width, as float32[frames, bands], about -8 to 4."""
    width = 2 * step
    sound = voice(number, frames * step + width, rate)
    cuts = np.lib.stride_tricks.sliding_window_view(sound, width)[::step][:frames] * np.hanning(width)
    power = np.abs(np.fft.rfft(cuts, 2 * (bands - 1) if 2 * (bands - 1) > width else width)) ** 2
    edges = np.linspace(0, power.shape[1], bands + 1).astype(int)
    return np.log(np.add.reduceat(power, edges[:-1], axis=1) + 1e-4).astype(np.float32)


def file_bytes(number: int, count: int) -> np.ndarray:
    """First and last bytes of a file of this repository, padded with 256, as int32[count]."""
    files = sorted([*ROOT.glob("isa/*.py"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/images/*")])
    content = files[random(number, "file").integers(len(files))].read_bytes().strip()
    half = count // 2
    start, end = content[:half], content[-half:]
    padded = [*start, *[256] * (half - len(start)), *[256] * (half - len(end)), *end]
    return np.array(padded, np.int32)


def tokens(number: int, count: int, vocabulary: tuple[str, ...]) -> np.ndarray:
    """Sentences of the documentation as BERT's numbers of word pieces, between its marks 101 and 102, as int64[count].

    Args:
        vocabulary: the pieces; those inside a word begin with ##.
    """
    known, sentences, found = _numbered(vocabulary), _sentences(), [101]
    generator = random(number, "tokens")
    while len(found) < count:
        for word in sentences[generator.integers(len(sentences))]:
            start = 0
            while start < len(word):
                pieces = ("##" * (start > 0) + word[start:end] for end in range(len(word), start, -1))
                piece = next((x for x in pieces if x in known), None)
                found.append(100 if piece is None else known[piece])
                start = len(word) if piece is None else start + len(piece.removeprefix("##"))
    return np.array([*found[: count - 1], 102], np.int64)


@functools.cache
def _numbered(vocabulary: tuple[str, ...]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(vocabulary)}


@functools.cache
def _sentences() -> list[list[str]]:
    """Words and signs of the longer sentences of the documentation."""
    texts = (path.read_text(encoding="utf-8").lower() for path in sorted(ROOT.glob("docs/*.md")))
    split = (re.findall(r"[a-z]+|[0-9]+|[.,;:()]", line) for text in texts for line in re.split(r"\n|\. ", text))
    return [words for words in split if 8 <= len(words) <= 40]


def brainwaves(number: int, samples: int, rate: int) -> np.ndarray:
    """Sound as of an electroencephalogram: noise with less energy at high frequencies, and bursts of 11 to 15 Hz.

    Returns:
        float32[samples] of mean 0 and deviation 1.
    """
    generator, t = random(number, "brainwaves"), np.arange(samples) / rate
    spectrum = np.fft.rfft(generator.standard_normal(samples)) / np.maximum(np.fft.rfftfreq(samples, 1 / rate), 0.5)
    wave = np.fft.irfft(spectrum, samples)
    wave /= wave.std()
    for _ in range(max(1, samples // (6 * rate))):
        burst = np.exp(-(((t - generator.uniform(0, t[-1])) / generator.uniform(0.2, 0.5)) ** 2))
        wave += generator.uniform(0.5, 1.5) * burst * np.sin(2 * np.pi * generator.uniform(11, 15) * t)
    return ((wave - wave.mean()) / wave.std()).astype(np.float32)


def bands(signal: np.ndarray, count: int, rate: int, highest: float) -> np.ndarray:
    """Magnitudes of a signal in bands of equal width up to a frequency, each of mean 0 and deviation 1, as
    float32[count, samples]."""
    spectrum, at = np.fft.fft(signal), np.fft.fftfreq(signal.size, 1 / rate)
    edges = np.linspace(0.5, highest, count + 1)
    inside = (at[None] >= edges[:-1, None]) & (at[None] < edges[1:, None])
    found = np.abs(np.fft.ifft(2 * spectrum * inside, axis=1))
    return ((found - found.mean(axis=1, keepdims=True)) / found.std(axis=1, keepdims=True)).astype(np.float32)
