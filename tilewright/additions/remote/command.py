"""`tilewright serve`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from tilewright.cli import arguments, terminal
from tilewright.common import store, temporary
from tilewright.common.listening import check_reach, host_and_port, is_loopback, read_token
from tilewright.errors import UsageError
from tilewright.remote.server import LONGEST_SECONDS, Server
from tilewright.remote.shared import SharedDevice
from tilewright.runtime.devices import open_device

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(
    "serve",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright serve --device board://uio:npu0                 for clients on this machine\n"
        "  tilewright serve --device board://serial:/dev/ttyUSB0 --listen 0.0.0.0:7741 --token-file token \\\n"
        "      --tls-cert cert.pem --tls-key key.pem\n"
        "  tilewright run model.onnx --device 'tcp://board:7741?token-file=token&ca=cert.pem'\n"
    ),
)
@click.option("--device", default="functional", show_default=True, help="What to share; see `backends`.")
@arguments.config_option
@click.option(
    "--listen", default="127.0.0.1:7741", show_default=True, metavar="HOST:PORT", help="Port 0 takes a free one."
)
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE",
              help="Clients have to know the text in this file; needed to listen beyond this machine.")  # fmt: skip
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key, PEM.")
@click.option("--keep", type=click.IntRange(1), default=1024, show_default=True, metavar="MIB",
              help="Programs and constants kept in this machine's memory.")  # fmt: skip
@click.option("--longest-run", type=click.IntRange(1, (1 << 32) - 1), default=(1 << 32) - 1, metavar="CYCLES",
              help="Runs end after so many, so that others get their turn; 2^32 - 1 by default.")  # fmt: skip
@click.option("--longest-seconds", type=arguments.FloatRange(0.1), default=LONGEST_SECONDS, show_default=True,
              metavar="SECONDS", help="The same by the clock, on the functional and the cycle simulator.")  # fmt: skip
def command(
    device: str,
    config: str | None,
    listen: str,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    keep: int,
    longest_run: int,
    longest_seconds: float,
) -> None:
    """Share a device over the network.

    Clients use it as tcp://HOST:PORT. They wait for each other in order; programs are sent once. Only instructions for
    the NPU are accepted, checked against the device's configuration before they reach it: no code runs on this machine.
    """
    token = read_token(token_file) if token_file is not None else None
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together")
    tls = (_read(tls_cert), _read(tls_key)) if tls_cert is not None and tls_key is not None else None
    host, _ = host_and_port(listen)
    check_reach(host, token)
    if token is not None and tls is None and not is_loopback(host):
        click.echo("warning: without --tls-cert the token can be read on its way", err=True)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO, stream=sys.stderr)
    with terminal.Working(f"opening {device}"):
        shared = SharedDevice(lambda: open_device(device, config), keep << 20)
    server = Server(shared, listen, token, tls, longest_run=longest_run, longest_seconds=longest_seconds)
    ended = threading.Event()
    for number in _ENDING:
        signal.signal(number, lambda *_: ended.set())
    click.echo(f"serving {shared.config.name} ({device}) at tcp://{host}:{server.port}")
    ended.wait()
    for number in _ENDING:
        signal.signal(number, _end)  # a run may be long: the second one ends it
    if shared.turns.taken:
        click.echo("waiting for the run under way; Ctrl-C again leaves it", err=True)
    server.stop()


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the process by the signal, but for its temporary folder."""
    temporary.remove_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _read(path: Path) -> bytes:
    try:
        return store.read(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
