"""Design-space sweeps: which configurations there are, what each costs and how fast each runs each network.

`sweep` does all of it, and calling the package calls `sweep`; `sweep_boards` does it for several boards. `load_space`
reads a space, `run` sweeps it into a database that a killed sweep resumes from, `Database` reads it, and `load` gives
its points as a table.
"""

from tilewright.api.callable_module import make_callable
from tilewright.sweep.database import Database
from tilewright.sweep.expressions import SpaceError
from tilewright.sweep.networks import DEFAULT_NETWORKS, Network, network_name, resolve
from tilewright.sweep.outcome import Outcome
from tilewright.sweep.space import Point, Space, boards_of, load_space
from tilewright.sweep.table import Table, load
from tilewright.sweep.whole import read, read_boards, run, sweep, sweep_boards

__all__ = [
    "DEFAULT_NETWORKS",
    "Database",
    "Network",
    "Outcome",
    "Point",
    "Space",
    "SpaceError",
    "Table",
    "boards_of",
    "load",
    "load_space",
    "network_name",
    "read",
    "read_boards",
    "resolve",
    "run",
    "sweep",
    "sweep_boards",
]

make_callable(__name__)
