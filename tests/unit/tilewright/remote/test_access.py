"""Who may connect: tokens, certificates, addresses, versions."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.unit.tilewright.remote.serving import connect, runner, same, serving
from tilewright.errors import UsageError
from tilewright.remote import generate
from tilewright.remote.client import Address, RemoteDevice, RemoteError


@pytest.mark.medium
def test_tokens(program, inputs, expected) -> None:
    with serving(token="secret") as (server, _):
        target = f"127.0.0.1:{server.port}"
        for token in (None, "wrong"):
            with pytest.raises(RemoteError, match="token is missing or wrong"):
                RemoteDevice(Address(target, token))
        with runner(RemoteDevice(Address(target, "secret"))) as remote:
            same(remote.run(program, inputs), expected[0])


@pytest.mark.slow
def test_tls(program, inputs, expected) -> None:
    import trustme

    authority, other = trustme.CA(), trustme.CA()
    mine = authority.issue_cert("localhost")
    chain = b"".join(pem.bytes() for pem in mine.cert_chain_pems)
    with serving(tls=(chain, mine.private_key_pem.bytes())) as (server, _):
        target, ca = f"127.0.0.1:{server.port}", authority.cert_pem.bytes()
        with runner(RemoteDevice(Address(target, ca=ca, name="localhost"))) as remote:
            same(remote.run(program, inputs), expected[0])
        for bad in (
            Address(target),
            Address(target, ca=other.cert_pem.bytes(), name="localhost"),
            Address(target, ca=ca),
        ):
            with pytest.raises(RemoteError, match="no answer"):
                RemoteDevice(bad, seconds=1.0)


def test_addresses(tmp_path, monkeypatch) -> None:
    (tmp_path / "token").write_text("abc\n")
    monkeypatch.setenv("TILEWRIGHT_TOKEN", "other")
    assert Address.parse("board") == Address("board:7741", "other")
    assert Address.parse(f"board:80?token-file={tmp_path / 'token'}&name=x") == Address("board:80", "abc", None, "x")
    for text, message in (
        ("", "HOST:PORT"),
        ("a:b", "HOST:PORT"),
        ("a:0", "HOST:PORT"),
        ("a?x=1", "unknown option 'x'"),
        ("a?ca=/nowhere", "cannot read /nowhere"),
        (f"a?token-file={Path(sys.executable)}", "must hold a token: printable ASCII"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            Address.parse(text)
    with pytest.raises(RemoteError, match="is `tilewright serve` running there"):
        RemoteDevice(Address("127.0.0.1:9"), seconds=0.3)


def test_versions_must_agree(monkeypatch) -> None:
    with serving() as (server, _):
        monkeypatch.setattr("tilewright.remote.session.PROTOCOL", 7)
        with pytest.raises(RemoteError, match=r"with protocol 7, this is tilewright .* install the same version"):
            connect(server)


def test_generated_code_is_up_to_date() -> None:
    for name, text in generate.generate().items():
        assert (Path(generate.__file__).parent / name).read_text() == text
