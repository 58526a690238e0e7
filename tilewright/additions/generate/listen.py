"""`tilewright generate --listen`: chat completions over HTTP."""

from __future__ import annotations

import hmac
import json
import logging
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import numpy as np

from tilewright.common.listening import check_reach, host_and_port, is_loopback, read_token
from tilewright.common.version import tilewright_version
from tilewright.errors import InputError, UsageError
from tilewright.generate.chat_template import ChatTemplate
from tilewright.generate.conversation import Piece
from tilewright.generate.generation import Ends
from tilewright.generate.language_model import LanguageModel
from tilewright.generate.requests import Answer, Request, RequestError
from tilewright.generate.service import Job, Service
from tilewright.generate.text_stream import Words
from tilewright.runtime.devices import Runner

_MOST_BYTES = 1 << 20
"""Bytes of a request at most."""
_CONNECTIONS = 128
_SECONDS = 30.0
"""Time that a client may take for its request, or to read a piece of the answer."""
_LOOK = 0.25
"""Seconds between two looks whether a client is still there."""
_ANSWERS = {"/v1/chat/completions": True, "/v1/completions": False}
_PATHS = "GET takes /v1/models and /health, POST /v1/chat/completions and /v1/completions"
log = logging.getLogger("tilewright.generate")


class TextServer(ThreadingHTTPServer):
    """Listens until `shutdown`.

    Args:
        address: host and port; port 0 takes a free one.
        service: that answers.
        ends: what counts where requests say nothing.
        seeded: the seed of `ends` is for all requests.
        token: what clients have to say, None for nothing.

    Raises:
        UsageError: the address cannot be listened at.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], service: Service, ends: Ends, *, seeded: bool = False, token: str | None = None
    ) -> None:
        self.service, self.ends, self.seeded, self.token = service, ends, seeded, token
        self.local = is_loopback(address[0])
        self._places = threading.BoundedSemaphore(_CONNECTIONS)
        host = address[0].strip("[]")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, address[1]), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot listen at {address[0]}:{address[1]}: {reason}") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for each connection, as long as there are not too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        body = json.dumps(RequestError("too many connections", 503, code="overloaded").to_dict()).encode()
        head = f"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        try:
            request.settimeout(1)
            request.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
        except OSError:
            pass
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go are no faults."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.error("%s: internal fault: %s: %s", client_address[0], type(error).__name__, error)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: TextServer
    protocol_version = "HTTP/1.1"
    server_version = f"Tilewright/{tilewright_version()}"
    sys_version = ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(self._post)

    def _answered(self, work: Callable[[str], None]) -> None:
        """Does the work for a path; what is refused is said in JSON."""
        try:
            path = urlsplit(self.path).path.rstrip("/") or "/"
            self._check_client()
            work(path)
        except RequestError as error:
            self.close_connection = True  # the body may be unread
            self._send(error.to_dict(), error.status)

    def _check_client(self) -> None:
        """Raises `RequestError` for a client without the token, or a page in a browser that came by another name."""
        host = self.headers.get("Host", "localhost")
        if self.server.local and not is_loopback(host if host.endswith("]") else host.rpartition(":")[0] or host):
            raise RequestError(f"this server is known as localhost, not as {host[:80]!r}", 403, code="wrong_host")
        if self.server.token is not None:
            given = self.headers.get("Authorization", "").encode("latin-1", "replace")
            if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
                raise RequestError("the token is missing or wrong: send Authorization: Bearer TOKEN", 401,
                                   code="invalid_api_key")  # fmt: skip

    def _get(self, path: str) -> None:
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "tilewright"}
        if path == "/v1/models":
            self._send({"object": "list", "data": [model]})
        elif path == f"/v1/models/{self._model}":
            self._send(model)
        elif path == "/health":
            self._send({"status": "ok"})
        else:
            there = f"{path[:80]} takes POST" if path in _ANSWERS else f"there is no {path[:80]}"
            raise RequestError(f"{there}; {_PATHS}", 405 if path in _ANSWERS else 404)

    def _post(self, path: str) -> None:
        if path not in _ANSWERS:
            raise RequestError(f"there is no {path[:80]} to post to; {_PATHS}", 404)
        if self.headers.get_content_type() != "application/json":  # what pages of others may send without asking
            raise RequestError("the request must have Content-Type: application/json", 415)
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise RequestError("the request must have a Content-Length", 411)
        if len(length) > 9 or int(length) > _MOST_BYTES:
            raise RequestError(f"the request must have at most {_MOST_BYTES:,} bytes, not {length[:20]}", 413)
        body = self.rfile.read(int(length))
        request = Request.parse(body, _ANSWERS[path], self.server.ends, self.server.seeded)
        job = self.server.service.submit(request)
        began = time.monotonic()
        made = 0
        try:
            made = self._stream(job) if request.stream else self._whole(job)
        finally:
            job.left = True
            log.info("%s: %d + %d tokens, %.1f s", self.client_address[0], job.prompt, made, time.monotonic() - began)

    @property
    def _model(self) -> str:
        return self.server.service.language.program.name

    def _next(self, job: Job) -> Piece:
        """The next piece. Raises `RequestError`; `ConnectionError` when the client has gone."""
        while True:
            try:
                found = job.pieces.get(timeout=_LOOK)
            except queue.Empty:
                if self._gone():
                    raise ConnectionAbortedError from None
                continue
            if isinstance(found, InputError):
                raise RequestError(str(found))
            if isinstance(found, Exception):
                raise found
            return found

    def _gone(self) -> bool:
        """Whether the client closed the connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _whole(self, job: Job) -> int:
        text, made = "", 0
        while True:
            piece = self._next(job)
            text, made = text + piece.text, made + 1
            if piece.finish:
                self._send(Answer(job.request, self._model).whole(text, piece.finish, job.prompt, made))
                return made
            if self._gone():
                raise ConnectionAbortedError

    def _stream(self, job: Job) -> int:
        """Sends pieces as events. What is refused before the first one is an answer of its own."""
        answer, piece, made = Answer(job.request, self._model), self._next(job), 0
        self.send_response(200)
        for name, value in (("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"),
                            ("Transfer-Encoding", "chunked")):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        if job.request.messages is not None:
            self._event(answer.piece(None))
        while True:
            made += 1
            if piece.text:
                self._event(answer.piece(piece.text))
            if piece.finish:
                self._event(answer.piece("", piece.finish))
                break
            try:
                piece = self._next(job)
            except RequestError as error:  # the head is gone already
                self._event(error.to_dict())
                self.close_connection = True
                break
        if job.request.usage:
            self._event(answer.count(job.prompt, made))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        return made

    def _event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        data = f"data: {text}\n\n".encode("utf-8", "replace")
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, value: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Sends what `http.server` refuses itself, in JSON, too."""
        self.close_connection = True
        self._send(RequestError(message or "the request cannot be read", int(code)).to_dict(), int(code))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: `_post` logs answers."""


def listen(
    address: str,
    token_file: Path | None,
    language: LanguageModel,
    device: Callable[[], Runner],
    words: Words,
    template: ChatTemplate | None,
    ends: Ends,
    seeded: bool,
    limit: int,
) -> int:
    """Serves until SIGINT or SIGTERM.

    Args:
        address: HOST:PORT.
        token_file: with what clients have to know, None for nothing.
        device: opens it.
        template: of chats, None where the model has none.
        limit: conversations kept at most.

    Raises:
        UsageError: the address cannot be listened at, or can be reached by others without a token.
    """
    host, port = host_and_port(address)
    token = read_token(token_file) if token_file is not None else None
    check_reach(host, token)
    if not is_loopback(host):
        click.echo("warning: HTTP is not encrypted: token and texts can be read on their way", err=True)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO, stream=sys.stderr)
    with device() as runner:
        service = Service(language, runner, words, template, limit)
        server = TextServer((host, port), service, ends, seeded=seeded, token=token)
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: ended.set())
        threading.Thread(target=server.serve_forever, name="listener", daemon=True).start()
        size = sum(int(np.prod(s.begin.shape)) * np.dtype(s.begin.dtype).itemsize for s in language.program.states)
        kept = f"up to {limit} conversations of {size:,} bytes"
        if template is None:
            kept += "; no chat template, so /v1/completions only"
        click.echo(f"{language.program.name} at http://{host}:{server.server_port}/v1, {kept}")
        ended.wait()
        server.shutdown()
        service.close()
        server.server_close()
    return 0
