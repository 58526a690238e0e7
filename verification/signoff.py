"""`docs/verification/signoff.md`: what was measured of how well the NPU is tested, block by block, and what is open.

    python -m verification.signoff                  the page from what lies in build/signoff
    make signoff                             measures first

Each block is a file that a command has written. A block without one stays as the page has it, measured when it says
and perhaps on older sources; one that the page does not have is named as not measured.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.common.paths import ROOT
from tilewright.fpga.boards import BOARDS
from tilewright.isa.config import preset
from verification.code import digest_of_code
from verification.equivalence.prove import KINDS as KINDS_OF_ENDS
from verification.formal.boards.proofs import PROOFS as PROOFS_OF_BOARDS
from verification.formal.proof import Proof, digest_of_benches
from verification.formal.proofs import PROOFS
from verification.fuzz.files.attempt import FAILED, REFUSED, WORKS
from verification.fuzz.files.run import READERS
from verification.fuzz.programs import SIGNED_OFF
from verification.measured import COMMAND, DAY, SOURCES
from verification.netlists.runs import digest_of_design
from verification.programs.equality import CONFIGS
from verification.rtl_text import digest_of_machines, digest_of_rtl
from verification.source_faults import CPP, PYTHON
from verification.trials.all import table as table_of_trials

FOLDER, PAGE = ROOT / "build" / "signoff", ROOT / "docs" / "verification" / "signoff.md"


@dataclass(frozen=True)
class Block:
    """A part of the page.

    Attributes:
        name: of its file.
        title: its heading.
        module: what writes the file.
        lines: what the page says of the figures: a table, and what is open.
        design: what was measured, in words, and its digest today.
    """

    name: str
    title: str
    module: str
    lines: Callable[[Any], list[str]]
    design: tuple[str, Callable[[], str]]


def share(found: int, wanted: int) -> str:
    """Returns a share as "12 of 16 (75.0 %)"."""
    return f"{found:,} of {wanted:,} ({100 * found / wanted if wanted else 100:.1f} %)"


def _coverage(figures: dict[str, Any]) -> list[str]:
    lines = [
        f"On `{figures['config']}`. {figures['constant']:,} toggles of bits that never change in the netlist are left "
        "out.",
        "",
    ]
    lines += ["| what | covered | waived |", "|---|---|---|"]
    for kind in ("lines", "toggles", "functional"):
        c = figures[kind]
        wanted = c["points"] - c["waived"]
        lines.append(f"| {kind} | {share(wanted - c['missing'], wanted)} | {c['waived']:,} |")
    lines += ["", "| part | lines | toggles |", "|---|---|---|"]
    for unit, c in figures["toggles by unit"].items():
        cells = [figures["lines by unit"].get(unit, {"points": 0, "waived": 0, "missing": 0}), c]
        shown = [share(x["points"] - x["waived"] - x["missing"], x["points"] - x["waived"]) for x in cells]
        lines.append(f"| `{unit}` | {' | '.join(shown)} |")
    lines += ["", "By these trials:", "", *table_of_trials(figures["trials"])]
    lines += ["", "`verification/coverage/waivers.toml` has a reason for everything that is waived."]
    missing = {kind: figures[kind]["missing"] for kind in ("lines", "toggles", "functional")}
    if any(missing.values()):
        lines[-1] += " Open: " + ", ".join(f"{count:,} of {kind}" for kind, count in missing.items() if count) + "."
    return lines


def _mutants(figures: dict[str, Any]) -> list[str]:
    same, waived, known = (len(figures[key]) for key in ("equivalent", "waived", "reviewed"))
    found = share(figures["found"], figures["faults"] - same)
    lines = [
        f"{found} faults found on `{figures['config']}`, among the first {figures['faults']:,} of a sample of "
        f"{figures['sample']:,} (seed {figures['seed']}); {same} more are proved to change nothing that can be seen, "
        f"{waived} of those not found are in bits that no trial can reach, and {known} were looked into by hand: "
        f"{share(figures['found'] + waived + known, figures['faults'] - same)} are found or explained. "
        "99 % of 2,000 are wanted."
    ]
    lines += ["", "| source | found |", "|---|---|"]
    lines += [f"| `{name}` | {share(m['found'], m['faults'])} |" for name, m in figures["modules"].items()]
    lines += ["", "Open, not found and not explained (lines of the day of the run):", ""]
    lines += ["| fault | place | lines |", "|---|---|---|"]
    lines += map(_fault, figures["survivors"])
    if figures["waived"]:
        lines += ["", "Not found, in bits that no trial changes, with the reason of the waiver:", ""]
        lines += ["| fault | place | reason |", "|---|---|---|"]
        lines += [f"| {f['number']} {f['mode']} | `{f['place']}` | {f['reason']} |" for f in figures["waived"]]
    if figures["reviewed"]:
        lines += ["", "Not found, looked into by hand (`verification/mutants/reviewed.toml`):", ""]
        lines += ["| fault | place | why no trial finds it |", "|---|---|---|"]
        lines += [f"| {f['number']} {f['mode']} | `{f['place']}` | {f['reason']} |" for f in figures["reviewed"]]
    if figures["equivalent"]:
        lines += ["", "Proved: with or without them, the machine does the same for ever.", ""]
        lines += ["| fault | place | lines |", "|---|---|---|", *map(_fault, figures["equivalent"])]
    return lines


def _source_faults(figures: dict[str, Any]) -> list[str]:
    lines = ["| sources | found | found or explained | CPU seconds |", "|---|---|---|---|"]
    parts = {name: part for name, part in figures.items() if "/" in name}
    for name, part in parts.items():
        known = part["found"] + len(part["reviewed"])
        cells = (share(part["found"], part["faults"]), share(known, part["faults"]), f"{part['seconds']:,}")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    lines += ["", "Open, not found and not explained:", "", "| place | fault | looks |", "|---|---|---|"]
    left = [each for part in parts.values() for each in part["survivors"]]
    lines += [f"| `{each['where']}` | `{each['what']}` | {each['looks']} |" for each in left]
    if explained := [each for part in parts.values() for each in part["reviewed"]]:
        lines += ["", "Not found, looked into by hand (`verification/source_faults/reviewed.toml`):", ""]
        lines += ["| place | fault | why nothing finds it |", "|---|---|---|"]
        lines += [f"| `{each['where']}` | `{each['what']}` | {each['reason']} |" for each in explained]
    return lines


def _fault(fault: dict[str, Any]) -> str:
    return f"| {fault['number']} {fault['mode']} | `{fault['place']}` | {', '.join(fault['lines'])} |"


def _netlist(figures: dict[str, Any]) -> list[str]:
    few = _few_programs(figures)
    return [*_netlist_runs(figures), f"Open: {few}."] if few else _netlist_runs(figures)[:-1]


def _few_programs(figures: dict[str, Any]) -> str:
    few = figures.get("programs", 0) < _PROGRAMS
    return f"random programs (of {_PROGRAMS} that are wanted)" if few else ""


def _netlist_runs(figures: dict[str, Any]) -> list[str]:
    words = {True: "equal", False: "DIFFERENT"}
    titles = ("network", "cycles", "bytes", "RTL", "random registers")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for run in figures["networks"]:
        cells = [
            f"`{run['network']}`, `{figures['config']}` on `{figures['board']}`",
            f"{run['cycles']:,}",
            words[run["bytes_equal"]],
            words[run["rtl_equal"]],
            f"{run['random_equal']} of {run['seeds']} equal ({run['random_registers']:,} registers)",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    lines += [
        "Bytes: outputs, with the functional simulator. RTL: all that the driver reads, with the Verilated SoC.",
        "",
    ]
    if count := figures.get("programs"):
        lines += [
            f"{count:,} random programs one after the other: {figures['programs_wrong']} leave other bytes than the "
            f"functional simulator; all that the driver reads, counters too, is {words[figures['programs_rtl_equal']]} "
            "to the RTL's.",
            "",
        ]
        if figures["faults"]:
            lines += [
                f"Values of the first {figures['faulted']} name {figures['bits_named']:,} of {figures['bits']:,} bits "
                f"of LUTs. Of {figures['faults']} such bits inverted, {figures['faults_found']} change what the driver "
                "reads.",
                "",
            ]
    if count := sum(sum(run.get("sdram_commands", {}).values()) for run in figures["networks"]):
        faults = [fault for part in (*figures["networks"], figures) if (fault := part.get("sdram_fault"))]
        lines += [
            f"The model of the SDRAM has checked {count:,} commands of the networks at the pins, in ns: "
            f"{'BROKEN: ' + '; '.join(faults) if faults else 'no rule of its data sheet was broken'}.",
            "",
        ]
    return lines


def _equivalence(figures: dict[str, Any]) -> list[str]:
    lines = [
        f"Of `{figures['config']}` on `{figures['board']}`, as it is placed. From equal states the RTL and the netlist "
        f"come to equal states, whatever the inputs; {figures['left_out']:,} registers of the RTL are not in the "
        "netlist, for nothing reads them.",
        "",
        f"| part | {' | '.join(KINDS_OF_ENDS)} |",
        "|---" * (1 + len(KINDS_OF_ENDS)) + "|",
    ]
    for part, counts in figures["parts"].items():
        shown = [(counts.get(f"{kind} proved", 0), counts.get(f"{kind} failed", 0)) for kind in KINDS_OF_ENDS]
        cells = (share(proved, proved + failed) if proved + failed else "" for proved, failed in shown)
        lines.append(f"| `{part}` | {' | '.join(cells)} |")
    if figures["failed"]:
        lines += ["", f"Open: {len(figures['failed'])} are not proved, the first: {figures['failed'][0]}."]
    return lines


def _routed(figures: dict[str, Any]) -> list[str]:
    lines, few = _netlist_runs(figures), _few_programs(figures)
    changed, differences, lost = (f"{figures[name]:,}" for name in ("changed", "differences", "lost"))
    return [
        *lines,
        "Simulated is the configuration that the bitstream is made of. Compared: connections and settings of all "
        f"{figures['cells']:,} cells of the routed netlist with the configuration, {differences} are different; "
        f"with the netlist before, {changed} are changed; the configuration with what ecpunpack reads from the "
        f"bitstream, {lost} are lost.",
        "",
        f"Open: {few + ', ' if few else ''}delays (nextpnr's estimate alone), levels of pins.",
    ]


def _bitstream(figures: dict[str, Any]) -> list[str]:
    if "failed" in figures:
        return [f"Open: it is not built. {figures['failed']}"]
    used, timing = figures["used"], figures["timing"]
    titles = ("LUT", "FF", "DSP", "block RAM", "MHz", "highest", "memory, MHz", "highest", "CPU minutes", "SHA-256")
    own = figures["memory_mhz"]
    memory = (f"{own:g}", f"{timing['memory_fmax_mhz']:.1f}") if own else ("", "")
    cells = (
        *(f"{used[name]:,g}" for name in ("lut", "ff", "dsp", "bram")),
        *(f"{figures['clock_mhz']:g}", f"{timing['fmax_mhz']:.1f}", *memory),
        *(f"{figures['cpu_seconds'] / 60:.0f}", f"`{figures['sha256'][:16]}`"),
    )
    return [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", f"| {' | '.join(cells)} |"]


def _proofs(figures: dict[str, Any]) -> list[str]:
    lines = ["| proof | bound | properties | proved | faults found |", "|---|---|---|---|---|"]
    for row in figures["proofs"]:
        faults = row["faults_found"] if figures["faults"] else "not run"
        proved = {True: "yes", False: "NO"}[row["proved"]]
        lines.append(f"| `{row['proof']}` | {row['bound']} | {len(row['properties'])} | {proved} | {faults} |")
    left = figures["all"] - len(figures["proofs"])
    return [*lines, "", f"Open: {left} proofs not run for this page."] if left else lines


def _npu_proofs(figures: dict[str, Any]) -> list[str]:
    return [*_proofs(figures), "", "Not proved: that a run ends, but for its parts."]


def _fuzz(figures: dict[str, Any], programs: int, machines: int = 0) -> list[str]:
    """Random programs, of which so many are wanted, on random machines (`machines` of them) or on known ones."""
    where = "RTL and both simulators" if figures["rtl"] else "the two simulators"
    kind = "random " * bool(machines)
    what = f"{figures['programs']:,} programs on {len(figures['machines'])} {kind}machines"
    lines = [f"{what}, {where}, seed {figures['seed']:,}: {figures['differ']} differ."]
    if figures["programs"] >= programs and len(figures["machines"]) >= machines:
        return lines
    return [*lines, "", f"Open: {programs:,} programs{f' on {machines} machines' * bool(machines)} are wanted."]


def _files(figures: dict[str, Any]) -> list[str]:
    titles = ("kind", "files", "work", "refused with one line", "failed", "day", "sources")
    lines, few = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"], []
    for kind, found in figures["kinds"].items():
        counts = [found.get(what, 0) for what in (WORKS, REFUSED, FAILED)]
        shown = (f"{count:,}" for count in (sum(counts), *counts))
        lines.append(f"| `{kind}` | {' | '.join(shown)} | {found[DAY]} | `{found[SOURCES]}` |")
        few += [kind] * (sum(counts) < _FILES)
    if few:
        lines += ["", f"Open: {_FILES:,} are wanted of {', '.join(f'`{kind}`' for kind in few)}."]
    return lines


#: Random programs that are wanted on a netlist.
_PROGRAMS = 200
#: Whose netlists are measured: of an ECP5, and of a Gowin FPGA.
_BOARD, _GOWIN_BOARD = "ulx3s_85f", "tang_nano_20k"
#: Files of a kind that are wanted.
_FILES = 100_000


def _code(of: str, paths: Sequence[Path]) -> tuple[str, Callable[[], str]]:
    return f"code of {of}", lambda: digest_of_code(paths)


def _benches(of: str, proofs: Sequence[Proof]) -> tuple[str, Callable[[], str]]:
    return f"elaborated benches of {of}", lambda: digest_of_benches(proofs)


def _machines(names: str) -> tuple[str, Callable[[], str]]:
    some = names.split(",")
    return f"RTL of {', '.join(f'`{name}`' for name in some)}", lambda: digest_of_machines(CONFIGS[n] for n in some)


def _rtl(config: str) -> tuple[str, Callable[[], str]]:
    return f"RTL of `{config}`", lambda: digest_of_rtl(preset(config))


def _on_board(config: str, board: str = _BOARD) -> tuple[str, Callable[[], str]]:
    return f"RTL of `{config}` on `{board}`", lambda: digest_of_design(board, config)


BLOCKS = (
    Block("coverage", "Coverage", "verification.coverage", _coverage, _rtl("tiny")),
    Block("mutants", "Faults", "verification.mutants", _mutants, _rtl("tiny")),
    Block(
        "python_faults",
        "Faults in the compiler",
        "verification.source_faults",
        _source_faults,
        _code("the compiler", PYTHON),
    ),
    Block(
        "cpp_faults",
        "Faults in the simulators",
        "verification.source_faults",
        _source_faults,
        _code("the simulators", CPP),
    ),
    Block("formal", "Proofs", "verification.formal", _npu_proofs, _benches("the NPU", PROOFS)),
    Block(
        "formal_boards",
        "Proofs about boards",
        "verification.formal.boards",
        _proofs,
        _benches("boards", PROOFS_OF_BOARDS),
    ),
    Block("netlist", "Netlist", "verification.netlists", _netlist, _on_board("tiny")),
    Block("equivalence", "Netlist and RTL, proved equal", "verification.equivalence", _equivalence, _on_board("tiny")),
    Block("netlist_sdram", "Netlist with SDRAM", "verification.netlists", _netlist, _on_board("small")),
    Block(
        "equivalence_sdram",
        "Netlist with SDRAM and RTL, proved equal",
        "verification.equivalence",
        _equivalence,
        _on_board("small"),
    ),
    Block("netlist_routed", "Netlist after routing", "verification.netlists", _routed, _on_board("tiny")),
    Block(
        "netlist_gowin",
        "Netlist of a Gowin FPGA",
        "verification.netlists",
        _netlist,
        _on_board("nano", _GOWIN_BOARD),
    ),
    Block(
        "netlist_routed_sdram",
        "Netlist with SDRAM after routing",
        "verification.netlists",
        _routed,
        _on_board("small"),
    ),
    *(
        Block(
            f"bitstream_{board.name}_{config}",
            f"Bitstream of `{config}` on `{board.name}`",
            "verification.bitstreams",
            _bitstream,
            _on_board(config, board.name),
        )
        for board in BOARDS.values()
        for config in board.points
    ),
    Block(
        "fuzz",
        "Random machines",
        "verification.fuzz.programs",
        partial(_fuzz, programs=100_000, machines=300),
        _code("the simulators", CPP),
    ),
    Block(
        "fuzz_rtl",
        "Random programs on RTL",
        "verification.fuzz.programs",
        partial(_fuzz, programs=3_000),
        _machines(SIGNED_OFF),
    ),
    Block("files", "Damaged files", "verification.fuzz.files", _files, _code("what reads files", READERS)),
)


_HEAD = (
    "# Signed off\n\nHow well the NPU is tested, measured. `make signoff` measures anew and writes this page; "
    "[testing.md](testing.md) says what the words mean.\n\nWritten at commit `{commit}`. A figure is of the design "
    'there, unless "changed since then" stands beside its digest. Digests are of the elaborated netlist, or of code '
    "without comments and layout: they do not change where files, modules or signals are moved or renamed.\n"
)
_CHANGED = ", changed since then"


def digest_of(block: Block) -> str:
    """Returns the digest of what a block is about, as it is now."""
    return block.design[1]()


def page(folder: Path, old: str = "", commit: str = "", digest: Callable[[Block], str] = digest_of) -> str:
    """Returns the page from the files of a folder, and from what it was at the commit before.

    Args:
        digest: the digest of what a block is about.

    Raises:
        ValueError: a file that is none of these.
    """
    sections = dict(section.split("\n", 1) for section in f"\n{old}".split("\n## ")[1:])
    lines = [_HEAD.format(commit=commit)]
    for block in BLOCKS:
        file, body = folder / f"{block.name}.json", sections.get(block.title, "\nOpen: not measured.").strip("\n")
        if file.is_file():
            try:
                figures = json.loads(file.read_text(encoding="utf-8"))
                day = f"Measured on {figures[DAY]}, {block.design[0]} `{figures[SOURCES]}`:"
                body = "\n".join([*block.lines(figures), "", day, "", "```", f".venv/bin/{figures[COMMAND]}", "```"])
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise ValueError(f"{file} is not what python -m {block.module} writes: {error!r}") from None
        lines += [f"## {block.title}", "", _with_age(body, block, digest), ""]
    return "\n".join(lines)


def _with_age(body: str, block: Block, digest: Callable[[Block], str]) -> str:
    """Returns a block's text, which says whether the design has changed since it was measured."""

    def aged(match: re.Match[str]) -> str:
        return f"{match[1]}{'' if match[2] == digest(block) else _CHANGED}:\n"

    return re.sub(rf"^(Measured on .*`(\w+)`)(?:{_CHANGED})?:\n", aged, body, flags=re.MULTILINE)


def _commit() -> str:
    """Returns the commit that is checked out, with `-dirty` where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m verification.signoff", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="with the files of the blocks")
    parser.add_argument("--page", type=Path, default=PAGE, help="to write")
    options = parser.parse_args(arguments)
    try:
        old = options.page.read_text(encoding="utf-8") if options.page.is_file() else ""
        text = page(options.folder, old, _commit())
    except ValueError as error:
        print(f"verification.signoff: error: {error}", file=sys.stderr)
        return 2
    options.page.write_text(text, encoding="utf-8")
    print(f"{options.page} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
