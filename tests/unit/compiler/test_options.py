"""`CompileOptions`: what is refused, in words that say what is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.common.errors import TilewrightError, UsageError
from tilewright.compiler.cpu.target import HOSTS, Target
from tilewright.compiler.npu.rewrites import REWRITES
from tilewright.compiler.options import MAX_EFFORT, MAX_THREADS, STAGES, CompileOptions, printable
from tilewright.compiler.passes import FRONTEND


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"keep": "some"}, "keep must be"),
        ({"effort": -1}, r"effort must be 0\.\.3, not -1"),
        ({"effort": MAX_EFFORT + 1}, "effort must be"),
        ({"threads": 0}, r"threads must be 1\.\.64, not 0"),
        ({"threads": MAX_THREADS + 1}, "threads must be"),
        ({"memory": "sdram"}, r"memory must be a tilewright\.isa\.timing\.MemoryTiming, not 'sdram'"),
        ({"threads": 2, "host": "aarch64-linux"}, "with a host there is one"),
        ({"print_after": ("eliminate", "fold")}, "unknown pass 'fold'; the passes are annotate, .*emit"),
        ({"print_after": ("lower_mean",)}, "unknown pass 'lower_mean' .did you mean lower_means"),
    ],
)
def test_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CompileOptions(**wrong)


def test_unknown_host() -> None:
    with pytest.raises(TilewrightError, match=r"host must be one of x86_64-linux, .* not 'sparc'"):
        CompileOptions(host="sparc")


def test_accepted() -> None:
    assert CompileOptions().target() == Target.host() and not CompileOptions().keep_all
    assert CompileOptions(host="riscv64-linux").target() == HOSTS["riscv64-linux"]
    names = (*(p.name for p in (*FRONTEND, *REWRITES)), *STAGES)
    assert tuple(printable()) == names and len({*names}) == len(names)
    assert all(CompileOptions(print_after=names).prints(name) for name in names)
    assert CompileOptions(print_after=("all",)).prints("emit")
    assert not CompileOptions(print_after=("emit",)).prints("schedule")
