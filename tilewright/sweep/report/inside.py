"""The points of a sweep from the inside: as the sweep kept them, and compiled anew where it did not."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.api.compilation import compile_program
from tilewright.measure.explain import explain
from tilewright.measure.roofline import figure as roofline_figure
from tilewright.sweep.database import Database
from tilewright.sweep.inside import Inside, read, record
from tilewright.sweep.report.data import SweepData
from tilewright.sweep.report.plots import Plot, timeline_plot

#: By number of the point and name of the network.
Insides = dict[tuple[int, str], Inside]


def look_inside(
    database: Database, data: SweepData, wanted: Iterable[int], progress: Callable[[str, float], None]
) -> tuple[Insides, list[str]]:
    """Reads what the sweep kept of its points. A result of an older version has nothing kept: at the `wanted` points
    such networks are compiled and run, and kept.

    Returns:
        The points, and the networks whose models are not in the folder any more, though one of the `wanted` needs it.

    Raises:
        UsageError: the database is damaged.
    """
    kept = database.insides(data.row["id"])
    found: Insides = {}
    for p in data.points:
        for name, digest in data.networks.items():
            result = data.results.get((p["point"], digest))
            if result is not None and result["key"] in kept:
                config = data.machine(p["number"]).config.with_(name=f"point {p['number']}")
                try:
                    inside = read(kept[result["key"]], name, config)
                except ValueError as error:
                    raise database.damaged(f"inside of result {result['key']!r}: {error}") from None
                if inside is not None:
                    found[p["number"], name] = inside
    missing = []
    for name, digest in data.networks.items():
        left = [number for number in wanted if (number, name) not in found]
        content = database.network_content(digest) if left else None
        if left and content is None:
            missing.append(name)
        elif content is not None:
            for number in left:
                progress(f"compiling {name} for point {number}", 0.3)
                result = data.results.get((data.point(number)["point"], digest))
                found[number, name], made = _compiled(data, name, content, number)
                if result is not None:
                    database.keep_inside(result["key"], made)
    return found, missing


def _compiled(data: SweepData, name: str, content: bytes, number: int) -> tuple[Inside, bytes]:
    """Compiles and runs a network on a point."""
    point = data.machine(number)
    config = point.config.with_(name=f"point {number}")
    program = compile_program(content, config, memory=point.timing, effort=data.row["effort"], tuning="off")
    made = record(explain(program, point.timing))
    found = read(made, name, config)
    assert found is not None
    return found, made


def plots_of(found: Inside) -> list[Plot]:
    """Roofline and timeline of a network on a point."""
    label = "".join(c if c.isalnum() else "_" for c in found.name)
    about = "A point per layer, its area the layer's share of the cycles."
    roofline = roofline_figure(found)
    roofline.set_layout_engine("none")  # laid out: each file drawn would do it again
    return [Plot(f"roofline_{label}", "Roofline", about, roofline), timeline_plot(found, label)]
