"""The results as lines and as the table of docs/models.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.models.measure import Row
from tests.models.networks import NETWORKS
from tests.models.packages import pinned
from tilewright.cli.terminal import human

START, END = "<!-- results: make models -->", "<!-- end of results -->"
START_QUANTISED, END_QUANTISED = "<!-- quantised: make models -->", "<!-- end of quantised -->"


def line(row: Row, quantised_only: bool = False) -> str:
    """One network, for a terminal."""
    if quantised_only and not row.failure:
        return f"{row.network:20} {_quantised(row)}{_needs(row)}"
    after = f"; quantised: {_quantised(row)}{_needs(row)}" if row.quantised else ""
    if row.failure:
        return f"{row.network:20} {row.failure}{after}"
    ratio = row.seconds / row.reference_seconds if row.reference_seconds else 0.0
    return (
        f"{row.network:20} {row.differs}; {human(row.macs, 'MAC')}, {row.npu_fraction:.1%} on the NPU; compiled in "
        f"{row.compile_seconds:.1f} s, run {row.seconds * 1e3:.1f} ms, {ratio:.2f}x of the reference{after}"
    )


def _quantised(row: Row) -> str:
    """One cell of the table: the quantised form of a float network."""
    found = row.quantised
    if not found:
        return ""
    if "failure" in found:
        return str(found["failure"])
    return ", ".join([f"{found['sqnr']:.1f} dB", *_texts(row), f"{_share(row)} on the NPU", found["differs"]])


def _texts(row: Row) -> list[str]:
    found = row.quantised or {}
    if not found.get("texts"):
        return []
    unsure = f" ({found['unsure_texts']} more are unsure)" if found["unsure_texts"] else ""
    return [f"{found['same_texts']} of {found['texts']} texts{unsure}"]


def _share(row: Row) -> str:
    share = (row.quantised or {}).get("npu_fraction")
    return "unknown" if share is None else f"{share:.1%}"


def _needs(row: Row) -> str:
    """Time and memory of quantising."""
    found = row.quantised or {}
    if "seconds" not in found:
        return ""
    return f"; {found['seconds']:.0f} s, {found['cpu_seconds']:.0f} s of CPU, {_memory(found)}"


def _memory(found: Mapping[str, int]) -> str:
    """Megabytes at the peak, and over those of the float network's run; then those of the check, and of all."""
    alone = found["float_memory"]
    over = f", {found['memory'] / alone:.1f}x" if alone else ""
    check, both = (found.get(name, 0) / 1e6 for name in ("check_memory", "all_memory"))
    return f"{found['memory'] / 1e6:.0f} MB{over}" + (f"; {check:.0f} MB; {both:.0f} MB" if check else "")


def quantised_table(rows: Mapping[str, Row], before: Mapping[str, str]) -> str:
    """Markdown: one row a float network that was quantised, in the order of `NETWORKS`.

    Args:
        before: lines to keep of networks that were not, by network.
    """
    lines = [
        "| network | samples: calibration, held back | SQNR, dB; plain | texts as in float | MACs on the NPU | turns "
        "| onnxruntime and Tilewright | seconds | CPU seconds; plain | memory; check; together |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for network in NETWORKS:
        found = rows[network.name].quantised if network.name in rows else None
        if not found:
            lines += [before[network.name]] if network.name in before else []
            continue
        if "failure" in found:
            lines.append(f"| {network.name} | {found['failure']} | | | | | | | | |")
            continue
        samples = f"{found['calibration']}, {found['held_back']}"
        lines.append(
            f"| {network.name} | {samples} | {found['sqnr']:.1f}; {_of_plain(found, 'plain_sqnr', '.1f')} "
            f"| {''.join(_texts(rows[network.name]))} | {_share(rows[network.name])} | {found.get('turns', '')} "
            f"| {found['differs']} | {found['seconds']:.0f} "
            f"| {found['cpu_seconds']:.0f}; {_of_plain(found, 'plain_cpu_seconds', '.0f')} | {_memory(found)} |"
        )
    return "\n".join(lines)


def _of_plain(found: Mapping[str, Any], name: str, form: str) -> str:
    """A figure of the plain quantiser, "none" where it fails."""
    return "none" if found.get(name) is None else format(found[name], form)


def table(rows: Mapping[str, Row], before: Mapping[str, str]) -> str:
    """Markdown: one row a network, in the order of `NETWORKS`; arguments as for `quantised_table`."""
    versions = pinned()
    lines = [
        "| network | from | what | numbers | MACs | against the reference | on the NPU | time / reference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for network in NETWORKS:
        row = rows.get(network.name)
        if row is None:
            lines += [before[network.name]] if network.name in before else []
            continue
        source = f"{network.package} {versions[network.package]}"
        head = f"| {network.name} | {source} | {network.task} | {network.numbers} "
        if row.failure:
            lines.append(f"{head}| | {row.failure} | | |")
            continue
        ratio = row.seconds / row.reference_seconds if row.reference_seconds else 0.0
        lines.append(f"{head}| {human(row.macs)} | {row.differs} | {row.npu_fraction:.1%} | {ratio:.2f} |")
    good = sum("| equal " in line for line in lines)
    return "\n".join([*lines, "", f"{good} of {len(lines) - 2} run and are equal to the reference."])


def write(page: Path, rows: Mapping[str, Row], quantised_only: bool = False) -> None:
    """Puts the tables between the page's marks: the second one if anything was quantised, the first one if not only.
    Lines of networks that were not measured stay."""
    text = page.read_text(encoding="utf-8")
    tables = [] if quantised_only else [(START, END, table)]
    if any(row.quantised for row in rows.values()):
        tables.append((START_QUANTISED, END_QUANTISED, quantised_table))
    for start, end, found in tables:
        head, rest = text.split(start)
        old, tail = rest.split(end)
        before = {line.split(" ")[1]: line for line in old.splitlines() if line.startswith("| ")}
        text = f"{head}{start}\n{found(rows, before)}\n{end}{tail}"
    page.write_text(text, encoding="utf-8")
