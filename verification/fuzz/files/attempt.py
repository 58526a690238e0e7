"""One case: a mutated file goes where files of its kind go, and ends as documented or is a failure."""

from __future__ import annotations

import contextlib
import io
import signal
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType

from tilewright.cli.group import one_line
from tilewright.common.errors import TilewrightError
from verification.fuzz.files.kinds import KINDS

#: A case that takes longer is a failure. Long, because the machine may be busy.
SECONDS = 60
WORKS, REFUSED, FAILED = "works", "refused", "failed"


class _Late(BaseException):
    pass


def attempt(kind: str, seed: int, folder: Path) -> tuple[str, str]:
    """Tries a mutated file. Returns WORKS, REFUSED or the fault, and the message or the place."""
    rng = Random(f"{kind}/{seed}")
    made = KINDS[kind]
    data = made.mutated(rng)
    try:
        with _alarm(), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made.read(data, rng, folder)
    except (TilewrightError, OSError) as error:
        text = one_line(str(error))
        if not text or "Traceback" in text:
            return "empty message", repr(error)
        text.encode()
        return REFUSED, text
    except _Late:
        return f"slower than {SECONDS} s", ""
    except Exception as error:
        return f"{type(error).__name__} at {_place(error)}", str(error)[:200]
    return WORKS, ""


def _place(error: BaseException) -> str:
    """Returns the last line of a traceback in our sources, and the last line of all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and "/lib/python" not in f.filename]
    text = lambda f: f"{'/'.join(Path(f.filename).parts[-3:])}:{f.lineno}"
    return " < ".join(dict.fromkeys((text(frames[-1]), text(own[-1]))))


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
