"""Digests of code: another file name, comment or layout is no other code; another word is."""

from pathlib import Path

import pytest

from verification.code import digest_of_code

PYTHON = '''"""A module."""

from somewhere import two

LIMIT = 3  # of them


def one(a, b):
    """Returns a sum."""
    import math
    return two(a, "b") + math.floor(b)
'''
CPP = """// A file.
#include "a.h"

int one(int a) { /* why */ return a + 1; }
const char* url = "http://x";
"""
SAME = {
    "a.py": (PYTHON, PYTHON.replace("somewhere", "elsewhere").replace("a sum", "it").replace("  # of them", "\n\n")),
    "a.cpp": (CPP, CPP.replace("a.h", "b.h").replace(" /* why */ ", "\n  // because\n").replace("A file", "Another")),
}
OTHER = {"a.py": ("LIMIT = 3", "LIMIT = 4"), "a.cpp": ("//x", "//y")}


@pytest.mark.parametrize("name", SAME)
def test_only_code_counts(tmp_path: Path, name: str) -> None:
    before, after = (tmp_path / name, tmp_path / f"renamed_{name}")
    for path, text in zip((before, after), SAME[name], strict=True):
        path.write_text(text)
    assert digest_of_code([before]) == digest_of_code([after])
    after.write_text(SAME[name][0].replace(*OTHER[name]))
    assert digest_of_code([before]) != digest_of_code([after])


def test_functions_may_go_to_another_file(tmp_path: Path) -> None:
    parts = "def f():\n    return 1\n", "def g():\n    return f()\n"
    files = [tmp_path / name for name in ("all.py", "f.py", "g.py")]
    for path, text in zip(files, ("\n".join(parts), *parts), strict=True):
        path.write_text(text)
    assert digest_of_code(files[:1]) == digest_of_code(files[:0:-1])
    assert digest_of_code(files[:1]) != digest_of_code(files[1:2])
