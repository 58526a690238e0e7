"""Chat completions over HTTP: answers, streams, several conversations, and what is refused."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.generate import ChatTemplate, Conversation, LanguageModel, Sampler
from tilewright.generate.generation import Ends
from tilewright.generate.listen import TextServer
from tilewright.generate.service import Service

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:"
DRAWN = {"temperature": 6.0, "seed": 4}


class Client:
    """Speaks with a server."""

    def __init__(self, server: TextServer) -> None:
        self.server = server

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, sent, {"Content-Type": "application/json"} | named)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.getheader("Content-Type") == "text/event-stream":
            return response.status, content.decode()
        return response.status, json.loads(content)

    def chat(self, *contents: str, path: str = "/v1/chat/completions", **options: Any) -> Any:
        """The answer to turns of user and assistant, who take turns."""
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": content} for n, content in enumerate(contents)]
        status, found = self.ask("POST", path, {"messages": messages, "max_tokens": 5} | DRAWN | options)
        assert status == 200, found
        return found


def text(found: dict[str, Any]) -> str:
    return str(found["choices"][0]["message"]["content"])


def serving(language: LanguageModel, limit: int = 3, **options: Any) -> Iterator[Client]:
    assert language.vocabulary is not None
    with tw.Device("functional", language.program.config) as device:
        service = Service(language, device, language.vocabulary, ChatTemplate(TEMPLATE), limit)
        server = TextServer(("127.0.0.1", 0), service, Ends(7), **options)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Client(server)
        server.shutdown()
        service.close()
        server.server_close()


@pytest.fixture(scope="module")
def client(language: LanguageModel) -> Iterator[Client]:
    yield from serving(language)


def alone(language: LanguageModel, prompt: str, count: int) -> str:
    """The text that the model makes of a prompt when nobody else asks."""
    words = language.vocabulary
    assert words is not None
    with tw.Device("functional", language.program.config) as device:
        sampler = Sampler(6.0, seed=4)
        steps = language.generate(device, words.encode(prompt), count, sampler=sampler)
        return "".join(words.text(step.token) for step in steps)


def test_an_answer(language: LanguageModel, client: Client) -> None:
    found = client.chat("hi")
    assert text(found) == alone(language, "u:hi\na:", 5)
    assert found["object"] == "chat.completion" and found["model"] == "small_llama"
    assert found["choices"][0]["finish_reason"] == "length" and found["seed"] == 4
    assert found["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    assert text(client.chat("hi", max_tokens=None, max_completion_tokens=3)) == text(found)[:3]
    stopped = client.chat("hi", stop=text(found)[2:4])
    assert text(stopped) == text(found)[: text(found).find(text(found)[2:4])]
    assert stopped["choices"][0]["finish_reason"] == "stop"
    greedy = client.chat("hi", temperature=0)
    assert "seed" not in greedy and text(greedy) == text(client.chat("hi", temperature=0, seed=9))


def test_a_prompt(language: LanguageModel, client: Client) -> None:
    status, found = client.ask("POST", "/v1/completions", {"prompt": "To be"} | DRAWN)
    assert status == 200 and found["object"] == "text_completion"
    assert found["choices"][0]["text"] == alone(language, "To be", 7)


def test_seeds_are_drawn(client: Client) -> None:
    seeds = {client.chat("hi", seed=None)["seed"] for _ in range(3)}
    assert len(seeds) == 3
    found = client.chat("hi", seed=None)
    assert text(client.chat("hi", seed=found["seed"])) == text(found)


def test_a_stream(client: Client) -> None:
    whole = client.chat("hi")
    stream = client.chat("hi", stream=True, stream_options={"include_usage": True})
    events = re.findall(r"data: (.*)\n\n", stream)
    assert events[-1] == "[DONE]" and "".join(f"data: {event}\n\n" for event in events) == stream
    pieces = [json.loads(event) for event in events[:-1]]
    assert {piece["object"] for piece in pieces} == {"chat.completion.chunk"} and len({p["id"] for p in pieces}) == 1
    assert pieces[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(p["choices"][0]["delta"].get("content", "") for p in pieces[:-1]) == text(whole)
    assert [p["choices"][0]["finish_reason"] for p in pieces[:-1]] == [None] * (len(pieces) - 2) + ["length"]
    assert pieces[-1]["choices"] == [] and pieces[-1]["usage"] == whole["usage"]
    plain = client.ask("POST", "/v1/completions", {"prompt": "To", "stream": True} | DRAWN)[1]
    assert plain.count("data: ") == 7 + 2


def test_several_clients_at_once(language: LanguageModel, client: Client) -> None:
    """More than there are conversations; each answer is what it is alone, and goes on with its own turns."""
    names = "abcdefgh"
    found: dict[str, tuple[str, str]] = {}

    def talk(name: str) -> None:
        first = text(client.chat(f"I am {name}", max_tokens=12))
        found[name] = first, text(client.chat(f"I am {name}", first, "go on", max_tokens=12))

    threads = [threading.Thread(target=talk, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        prompt = f"u:I am {name}\na:"
        first = alone(language, prompt, 12)
        assert found[name] == (first, alone(language, f"{prompt}{first}\nu:go on\na:"[-200:], 12)), name
    service = client.server.service
    assert len(service._idle) <= 3


def test_only_what_is_new_is_computed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    language = client.server.service.language
    assert language.vocabulary is not None
    read: list[int] = []
    run = LanguageModel.run

    def noted(self: LanguageModel, device: Any, entry: str, tokens: list[int], *rest: Any) -> Any:
        read.extend(tokens)
        return run(self, device, entry, tokens, *rest)

    monkeypatch.setattr(LanguageModel, "run", noted)
    monkeypatch.setattr(language, "prefill", 1)  # a run of a prompt would take tokens before the new ones along
    first = text(client.chat("new"))
    for second, new in (("qq", "qq\nu:x\na:"), (first, f"{first[-1]}\nu:x\na:")):  # begins alike, goes on
        read.clear()
        client.chat("new", second, "x", max_tokens=1)
        assert read == language.vocabulary.encode(new)


@pytest.mark.parametrize(
    "body, status, message",
    [
        (b"{", 400, "the request is no JSON"),
        (b"[" * 100_000, 400, "the request is no JSON"),
        ([], 400, "the request must be a JSON object"),
        ({}, 400, "messages must be a list of at least one message"),
        (
            {"messages": [{"role": "tool", "content": ""}]},
            400,
            "messages[0].role must be one of system, developer, user",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages[0].content must be text"),
        ({"temperature": "hot"}, 400, "temperature must be a number from 0 to 100, not 'hot'"),
        ({"temperature": float("nan")}, 400, "temperature must be a number from 0 to 100, not 'nan'"),
        ({"top_p": 0}, 400, "top_p must be above 0"),
        ({"max_tokens": 0}, 400, "max_tokens must be a whole number from 1"),
        ({"max_tokens": True}, 400, "max_tokens must be a whole number from 1"),
        ({"stop": [""]}, 400, "stop must be a text, or up to 16 texts, none of them empty"),
        ({"n": 2}, 400, "n is not supported: leave it out"),
        ({"tools": [{}]}, 400, "tools is not supported: leave it out"),
        ({"messages": [{"role": "user", "content": "é"}]}, 400, "the prompt has 'é' as character 3"),
        ({"messages": [{"role": "user", "content": "a" * 70}]}, 400, "small_llama knows 64 positions"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_requests_that_are_refused(client: Client, body: Any, status: int, message: str, stream: bool) -> None:
    if isinstance(body, dict) and body:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream} | body
    found = client.ask("POST", "/v1/chat/completions", body)
    assert found[0] == status and message in found[1]["error"]["message"] and "\n" not in found[1]["error"]["message"]
    assert found[1]["error"]["type"] == "invalid_request_error"


def test_content_in_parts(client: Client) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 5, "tools": None, "n": 1} | DRAWN
    assert text(client.ask("POST", "/v1/chat/completions", body)[1]) == text(client.chat("hi"))


def test_paths_and_heads(client: Client) -> None:
    assert client.ask("GET", "/health") == (200, {"status": "ok"})
    assert [model["id"] for model in client.ask("GET", "/v1/models")[1]["data"]] == ["small_llama"]
    assert client.ask("GET", "/v1/models/small_llama")[1]["object"] == "model"
    for status, found in (
        (404, client.ask("GET", "/v2")),
        (404, client.ask("POST", "/v1/embeddings", {})),
        (405, client.ask("GET", "/v1/chat/completions")),
        (501, client.ask("DELETE", "/v1/models")),
        (403, client.ask("GET", "/v1/models", Host="evil.example")),
        (415, client.ask("POST", "/v1/completions", b"{}", Content_Type="text/plain")),
        (411, client.ask("POST", "/v1/completions", None, Content_Length="x")),
        (413, client.ask("POST", "/v1/completions", None, Content_Length="9999999")),
    ):
        assert found[0] == status and found[1]["error"]["message"]
    with socket.create_connection(("127.0.0.1", client.server.server_port), timeout=10) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert b'"error"' in connection.recv(1000)


def test_a_token(language: LanguageModel) -> None:
    for client in serving(language, token="secret"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            status, found = client.ask("GET", "/v1/models", **headers)
            assert status == 401 and found["error"]["code"] == "invalid_api_key"
        assert client.ask("GET", "/v1/models", Authorization="Bearer secret")[0] == 200


def test_a_client_that_goes(language: LanguageModel, client: Client) -> None:
    """The answer ends, and the device is free for others."""
    body = json.dumps({"prompt": "a", "max_tokens": 60, "stream": True}).encode()
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", client.server.server_port), timeout=10) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            connection.recv(10)
    assert text(client.chat("hi")) == alone(language, "u:hi\na:", 5)


def test_a_device_that_fails(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conversation, "_read", lambda *_: 1 / 0)
    status, found = client.ask("POST", "/v1/completions", {"prompt": "a"})
    assert status == 500 and found["error"]["message"] == "the device failed: division by zero"
    monkeypatch.undo()
    assert client.ask("POST", "/v1/completions", {"prompt": "a"})[0] == 200


@pytest.mark.slow
def test_command(program_file: Path, tmp_path: Path) -> None:
    """A model without a chat template has completions only; SIGTERM ends the command."""
    command = [sys.executable, "-m", "tilewright", "generate", str(program_file), "--trust", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = re.fullmatch(
            r"small_llama at http://127\.0\.0\.1:(\d+)/v1, up to 8 conversations of 1,024 bytes; no chat template, so "
            r"/v1/completions only\n",
            line,
        )
        assert port is not None, line
        connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=60)
        for path, body, status in (
            ("/v1/completions", {"prompt": "To", "max_tokens": 2}, 200),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, 400),
        ):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            assert response.status == status, response.read()
            response.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
