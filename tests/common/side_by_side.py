"""Work done by several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def side_by_side(work: Callable[[int], None], count: int = 4) -> None:
    """Calls `work` with 0 to count - 1, each in a thread of its own, and waits for all."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
