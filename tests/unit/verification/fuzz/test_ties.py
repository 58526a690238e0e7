"""A sample of `python -m verification.fuzz.ties`: operators whose results lie on ties give the reference's bytes."""

import itertools

import pytest

import tilewright as tw
from verification.fuzz.ties.__main__ import KINDS, batches
from verification.fuzz.ties.run import Batch, Result, run


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(KINDS)))
def test_sample(number: int) -> None:
    (batch,) = itertools.islice(batches(0, 16), number, number + 1)
    result = Result()
    run(batch, result)
    assert result.faults == []
    assert result.operators > 8


@pytest.mark.medium
def test_a_batch_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that differs is named, the others count."""
    batch = Batch("onnx", "int8", 1, (0, 1, 2))
    names, check = batch.names(), tw.check

    def wrong(model, feeds, **options):  # type: ignore[no-untyped-def]
        report = check(model, feeds, **options)
        if model.SerializeToString() in marked:
            report.rows[-1].status, report.rows[-1].mismatches = "mismatch", 1
        return report

    with_it = ((0, 1, 2), (1, 2), (1,))
    marked = [Batch("onnx", "int8", 1, cases).build()[0].SerializeToString() for cases in with_it]
    monkeypatch.setattr("verification.fuzz.ties.run.tw.check", wrong)
    result = Result()
    run(batch, result)
    (fault,) = result.faults
    assert fault.startswith("python -m verification.fuzz.ties --onnx --dtype int8 --seed 1 --cases 1  " + names[1])
    assert result.operators >= 2
