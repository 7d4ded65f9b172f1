"""A server in a process of its own, and what tests ask of it without a client library."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY = re.compile(r"serving (?P<model>.+) at (?P<url>http://\S+:(?P<port>\d+))")
START_SECONDS = 120
WAIT_SECONDS = 60
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
JSON = {"content-type": "application/json"}
# The fake engine answers this with 255 tokens.
LONG = "b"
FAKE_SERVER = Path(__file__).with_name("fake_server.py")


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> dict[str, Any]:
        """The error, which has exactly the shape of OpenAI's."""
        told = self.json()
        assert told.keys() == {"error"}, told
        error: dict[str, Any] = told["error"]
        assert error.keys() == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str), error
        return error

    def anthropic_error(self) -> dict[str, Any]:
        """The error, which has exactly the shape of Anthropic's and the id of the request."""
        told = self.json()
        assert told.keys() == {"type", "error", "request_id"}, told
        assert told["type"] == "error", told
        assert told["request_id"] == self.headers["request-id"] == self.headers["x-request-id"]
        error: dict[str, Any] = told["error"]
        assert error.keys() == {"type", "message"}, error
        return error


@dataclass
class RunningServer:
    """A server that takes connections.

    Attributes:
        lines: what it has said on standard error.
    """

    process: "subprocess.Popen[str]"
    lines: list[str]
    url: str = ""
    model: str = ""
    port: int = 0
    reader: threading.Thread = field(default_factory=threading.Thread)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own."""
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def chat(self, **fields: object) -> Answer:
        """A chat completion with these fields."""
        return self.ask("POST", CHAT, self.body(**fields), JSON)

    def message(self, **fields: object) -> Answer:
        """A message of Anthropic's API with these fields."""
        return self.ask("POST", MESSAGES, self.body(**{"max_tokens": 300} | fields), JSON)

    def start_message(self, **fields: object) -> http.client.HTTPConnection:
        """A connection on which a message of Anthropic's API was asked for."""
        connection = self.connect()
        connection.request("POST", MESSAGES, self.body(**{"max_tokens": 300} | fields), JSON)
        return connection

    def start_chat(self, **fields: object) -> http.client.HTTPConnection:
        """A connection on which a chat completion was asked for."""
        connection = self.connect()
        connection.request("POST", CHAT, self.body(**fields), JSON)
        return connection

    def body(self, **fields: object) -> bytes:
        basis = {"model": self.model, "messages": [{"role": "user", "content": LONG}], "temperature": 0}
        return json.dumps(basis | fields).encode()

    def requests(self) -> tuple[int, int]:
        """How many requests run, and how many wait."""
        told = self.ask("GET", "/ready").json()["requests"]
        return told["num_running"], told["num_waiting"]

    def wait_for(self, *wanted: tuple[int, int], seconds: float = WAIT_SECONDS) -> None:
        """Wait until as many requests run and wait."""
        deadline = time.monotonic() + seconds
        while (now := self.requests()) not in wanted:
            assert time.monotonic() < deadline, f"{now} is none of {wanted}"
            time.sleep(0.02)

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        status = self.process.wait(WAIT_SECONDS)
        self.reader.join(WAIT_SECONDS)
        return status


@contextmanager
def running(program: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[RunningServer]:
    """Start a server, and end it if it still runs afterwards."""
    process = subprocess.Popen(
        program, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    server = RunningServer(process, [])
    ready = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            server.lines.append(line.rstrip("\n"))
            if (found := READY.fullmatch(server.lines[-1])) is not None:
                server.model, server.url, server.port = found["model"], found["url"], int(found["port"])
                ready.set()

    server.reader = threading.Thread(target=read, daemon=True)
    server.reader.start()
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready.wait(0.1):
            assert process.poll() is None, server.lines
            assert time.monotonic() < deadline, server.lines
        yield server
    finally:
        process.kill()
        process.wait()
        server.reader.join(WAIT_SECONDS)
        assert process.stderr is not None
        process.stderr.close()


@contextmanager
def running_fake(folder: Path, *options: str) -> Iterator[RunningServer]:
    """A server around a fake engine; files in the folder tell it how to behave, see ``fake_server``."""
    with running([sys.executable, str(FAKE_SERVER), str(folder), *options], dict(os.environ)) as server:
        yield server


def events(stream: bytes) -> list[Any]:
    """The data of server-sent events: JSON values, and ``[DONE]``."""
    assert stream.endswith(b"\n\n"), stream
    parts = stream.decode().removesuffix("\n\n").split("\n\n")
    assert all(part.startswith("data: ") and "\n" not in part for part in parts), parts
    texts = [part.removeprefix("data: ") for part in parts]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


def named_events(stream: bytes) -> list[Any]:
    """The data of server-sent events that have a name each: that of their type."""
    assert stream.endswith(b"\n\n"), stream
    told = []
    for part in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, data = part.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}", part
    return told
