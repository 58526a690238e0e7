"""The summary of skipped tests at the end of a run."""

import pytest

from tests.common import needs


def test_summary_has_a_line_for_each_command() -> None:
    reasons = [
        needs.reason(needs.EMULATORS, "armv7-linux is not run: no qemu-user"),
        needs.reason(needs.EMULATORS, "riscv64-linux is not run: no qemu-user"),
        "Skipped: " + needs.reason(needs.BROWSER),
        needs.reason(needs.TORCH, "PyTorch is (really) not installed"),
        "Skipped: only on Tuesdays",
    ]
    assert needs.summary(reasons) == [
        f"not tested: {needs.EMULATORS.untested} (2 skipped); {needs.BROWSER.untested} (1 skipped). "
        "To test it: make test-tools",
        f"not tested: {needs.TORCH.untested} (1 skipped). To test it: make test-torch",
        "not tested: only on Tuesdays (1 skipped)",
    ]
    assert needs.summary([]) == []


def test_a_missing_program_skips() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"not tested: .*\(no-such-program is missing\) \[make"):
        needs.program(needs.C_COMPILER, "no-such-program")
