"""Options of the execution provider, as a session gives them: texts."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tilewright.common.text import suggest
from tilewright.errors import UsageError


@dataclass(frozen=True)
class Options:
    """The options of a session.

    Attributes:
        device: any name for `Device`: functional, cycle, rtl, tcp://HOST:PORT, board://ADDRESS.
        config: preset or file of the NPU; "" for that of the device, where it has one of its own, else `base`.
        claim: "npu" takes parts of the model that have work for the NPU, "all" everything that can be compiled.
        effort: of the search for schedules, 0..3.
        threads: that share the work of every CPU kernel, 1..64.
        runs: of one program at a time, where the device is a simulator; more runs wait.
        kernels: file with kernels that take the place of layers; "" for none.
    """

    device: str = "functional"
    config: str = ""
    claim: str = "npu"
    effort: int = 1
    threads: int = 1
    runs: int = 4
    kernels: str = ""

    @staticmethod
    def parse(text: str) -> Options:
        """Parses lines of a name, a tabulator and a value. Raises `UsageError`."""
        known = {field.name: field.type for field in fields(Options)}
        found: dict[str, str | int] = {}
        for line in text.splitlines():
            name, _, value = line.partition("\t")
            if name not in known:
                raise UsageError(
                    f"unknown option {name!r} of the provider{suggest(name, known)}; there are: {', '.join(known)}"
                )
            found[name] = _integer(name, value) if known[name] == "int" else value
        options = Options(**found)  # type: ignore[arg-type]
        if options.claim not in ("npu", "all"):
            raise UsageError(f"option claim is {options.claim!r}; accepted: npu, all")
        if options.runs < 1:
            raise UsageError(f"option runs is {options.runs}; accepted: 1 or more")
        return options


def _integer(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"option {name} is {value!r}; accepted: integers") from None
