"""Probes: signals inside a component that proofs and benches may read.

A component declares its probes by `declare_probes` while it is elaborated, and describes them in its docstring under
"Probes:". A probe adds neither a port nor hardware, and nothing in the design reads one: what a proof needs changes no
RTL.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def declare_probes(component: Any, **inside: Any) -> None:
    """Declares probes of `component`: signals, memories or parts inside it, by name. They replace those of the same
    names where a component is elaborated again.
    """
    vars(vars(component).setdefault("_probes", SimpleNamespace())).update(inside)


def probes(component: Any) -> Any:
    """Returns the probes of a component, as attributes.

    Raises:
        ValueError: the component is not elaborated yet, or has none.
    """
    found = vars(component).get("_probes")
    if found is None:
        raise ValueError(f"{type(component).__name__} shows no probes: it declares none, or is not elaborated yet")
    return found
