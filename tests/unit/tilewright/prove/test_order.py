"""Orders that hold in every interleaving of the engines."""

import numpy as np
import pytest

from tilewright.isa.encoding import Op, op
from tilewright.prove.checker.graph import Finding
from tilewright.prove.checker.order import Order

Access = tuple[Op, tuple[str, str, int] | None]


def follow(*accesses: Access) -> None:
    """Follows instructions, each with an access ("r" or "w", memory, row)."""
    order = Order([operation for operation, _ in accesses], {"ACT": 8, "ACC": 8})
    for number, (operation, access) in enumerate(accesses):
        order.start(operation, number)
        if access is not None:
            kind, memory, row = access
            (order.read if kind == "r" else order.write)(memory, np.array([row]))
        order.finish(operation)


def test_a_signal_orders_what_came_before() -> None:
    follow(
        (op("LOAD"), ("w", "ACT", 1)),
        (op("LOAD", signal0=1), ("w", "ACT", 2)),
        (op("GEMM", wait0=1), ("r", "ACT", 1)),
        (op("GEMM"), ("r", "ACT", 2)),
    )


def test_a_missing_signal_or_wait_is_found() -> None:
    with pytest.raises(Finding, match=r"instruction 1 reads ACT 2 while LOAD may not be done with it"):
        follow((op("LOAD", signal0=1), ("w", "ACT", 2)), (op("GEMM"), ("r", "ACT", 2)))
    with pytest.raises(Finding, match="waits for semaphore 1, which no instruction before it gives"):
        follow((op("LOAD"), ("w", "ACT", 2)), (op("GEMM", wait0=1), ("r", "ACT", 2)))


def test_a_reader_is_waited_for() -> None:
    reads = [(op("LOAD", signal0=1), ("w", "ACT", 1)), (op("GEMM", wait0=1, signal0=2), ("r", "ACT", 1))]
    follow(*reads, (op("LOAD", wait0=2), ("w", "ACT", 1)))
    with pytest.raises(Finding, match="writes ACT 1 while GEMM may not be done"):
        follow(*reads, (op("LOAD"), ("w", "ACT", 1)))


def test_an_order_goes_over_other_engines() -> None:
    follow(
        (op("LOAD", signal0=1), ("w", "ACT", 1)),
        (op("GEMM", wait0=1, signal0=2), None),
        (op("VECTOR", wait0=2), ("r", "ACT", 1)),
    )


def test_a_count_of_two_sources_orders_neither() -> None:
    with pytest.raises(Finding, match="reads ACT 1 while LOAD may not be done"):
        follow(
            (op("LOAD", signal0=1), ("w", "ACT", 1)),
            (op("VECTOR", signal0=1), ("w", "ACT", 2)),
            (op("GEMM", wait0=1), ("r", "ACT", 1)),
        )
    follow(
        (op("LOAD", signal0=1), ("w", "ACT", 1)),
        (op("VECTOR", signal0=1), ("w", "ACT", 2)),
        (op("GEMM", wait0=1), None),
        (op("GEMM", wait0=1), ("r", "ACT", 1)),
    )


def test_vector_does_not_see_its_own_results_without_a_semaphore() -> None:
    with pytest.raises(Finding, match="reads ACT 1 while VECTOR may not be done"):
        follow((op("VECTOR"), ("w", "ACT", 1)), (op("VECTOR"), ("r", "ACT", 1)))
    follow((op("VECTOR", signal0=3), ("w", "ACT", 1)), (op("VECTOR", wait0=3), ("r", "ACT", 1)))


def test_too_many_signals_are_found() -> None:
    follow(*[(op("LOAD", signal0=1), None)] * 255)
    with pytest.raises(Finding, match="beyond 255"):
        follow(*[(op("LOAD", signal0=1), None)] * 256)
