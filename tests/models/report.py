"""The results as lines and as the table of docs/models.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.models.measure import Row
from tests.models.networks import NETWORKS
from tests.models.packages import pinned
from tilewright.cli.terminal import human

START, END = "<!-- results: make models -->", "<!-- end of results -->"


def line(row: Row) -> str:
    """One network, for a terminal."""
    after = f"; quantised: {_quantised(row)}" if row.quantised else ""
    if row.failure:
        return f"{row.network:20} {row.failure}{after}"
    ratio = row.seconds / row.reference_seconds if row.reference_seconds else 0.0
    return (
        f"{row.network:20} {row.differs}; {human(row.macs, 'MAC')}, {row.npu_fraction:.1%} on the NPU; compiled in "
        f"{row.compile_seconds:.1f} s, run {row.seconds * 1e3:.1f} ms, {ratio:.2f}x of the reference{after}"
    )


def _quantised(row: Row) -> str:
    """What became of a float network that was quantised."""
    found = row.quantised
    if not found:
        return ""
    if "failure" in found:
        return str(found["failure"])
    return f"{found['sqnr']:.1f} dB, {found['npu_fraction']:.1%} on the NPU, {found['differs']}"


def table(rows: Mapping[str, Row]) -> str:
    """Markdown: one row a network, in the order of `NETWORKS`."""
    versions = pinned()
    lines = [
        "| network | from | what | numbers | MACs | against the reference | on the NPU | time / reference "
        "| quantised |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for network in NETWORKS:
        row = rows.get(network.name)
        if row is None:
            continue
        source = f"{network.package} {versions[network.package]}"
        head = f"| {network.name} | {source} | {network.task} | {network.numbers} "
        if row.failure:
            lines.append(f"{head}| | {row.failure} | | | {_quantised(row)} |")
            continue
        ratio = row.seconds / row.reference_seconds if row.reference_seconds else 0.0
        lines.append(
            f"{head}| {human(row.macs)} | {row.differs} | {row.npu_fraction:.1%} | {ratio:.2f} | {_quantised(row)} |"
        )
    good = sum(rows[n.name].ok for n in NETWORKS if n.name in rows)
    return "\n".join([*lines, "", f"{good} of {len(lines) - 2} run and are equal to the reference."])


def write(page: Path, rows: Mapping[str, Row]) -> None:
    """Puts the table between the page's marks."""
    head, rest = page.read_text(encoding="utf-8").split(START)
    _, tail = rest.split(END)
    page.write_text(f"{head}{START}\n{table(rows)}\n{END}{tail}", encoding="utf-8")
