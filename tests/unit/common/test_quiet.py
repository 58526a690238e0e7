"""Libraries that talk are silenced, and heard again afterwards, also after an exception."""

import logging
import sys
import warnings

import pytest

from tilewright.common.quiet import quiet


def test_silent_inside_and_heard_after(capsys, caplog):
    with quiet(printing=True):
        print("progress")
        print("advice", file=sys.stderr)
        warnings.warn("advice", stacklevel=1)
        logging.error("advice")
    assert capsys.readouterr() == ("", "")
    assert not caplog.records
    logging.error("heard")
    assert [r.message for r in caplog.records] == ["heard"]


def test_level(caplog):
    with quiet(logging.WARNING):
        logging.warning("advice")
        logging.error("fault")
    assert [r.message for r in caplog.records] == ["fault"]


def test_heard_after_an_exception(caplog):
    with pytest.raises(ValueError), quiet():
        raise ValueError
    logging.error("heard")
    assert [r.message for r in caplog.records] == ["heard"]
