"""Clients that mean no good, or are very slow; the engine has no model."""

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import CutawayCommand
from fake_server import FEW_BYTES, OTHER_NAME
from running_server import CHAT, JSON, RunningServer, running_fake

from cutaway.limits import MAX_HEAD_BYTES

SITE = "https://evil.example"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An impatient server, which is as good in the end as it was in the beginning."""
    with running_fake(tmp_path_factory.mktemp("told"), "impatient") as server:
        before = server.chat(max_tokens=8).json()["choices"]
        yield server
        assert server.chat(max_tokens=8).json()["choices"] == before
        assert len(server.lines) == 1


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An impatient server whose engine is slow."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow").touch()
    with running_fake(folder, "impatient") as server:
        yield server


def say(server: RunningServer, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """Send parts with pauses, and listen until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        told = bytearray()
        hearing = threading.Thread(target=lambda: told.extend(_hear(connection)))
        hearing.start()
        try:
            for each in parts:
                connection.sendall(each)
                time.sleep(pause_s)
        except OSError:
            pass  # it has heard enough
        hearing.join(30)
        assert not hearing.is_alive(), "the server goes on listening"
        return bytes(told)


def _hear(connection: socket.socket) -> bytes:
    heard = b""
    try:
        while data := connection.recv(65536):
            heard += data
    except ConnectionResetError:
        pass
    return heard


def refusal(told: bytes) -> tuple[int, str]:
    """Status and code of a refusal, which is JSON in the shape of all errors."""
    head, _, body = told.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    error = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return int(head.split()[1]), error["code"]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST", OTHER_NAME])
def test_the_names_of_this_machine_are_answered(server: RunningServer, name: str) -> None:
    for host in (name, f"{name}:{server.port}", f"{name}:1"):
        assert server.ask("GET", "/health", headers={"host": host}).status == 200


@pytest.mark.parametrize("name", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "localhost@evil", "x:"])
def test_a_name_of_somebody_else_is_refused_on_every_path(server: RunningServer, name: str) -> None:
    for method, path in (("GET", "/health"), ("GET", "/metrics"), ("GET", "/nothing"), ("OPTIONS", CHAT)):
        answer = server.ask(method, path, headers={"host": name})
        assert (answer.status, answer.error()["code"]) == (421, "unknown_host")
        assert "--allowed-host" in answer.error()["message"]
        assert answer.headers["x-request-id"].startswith("req_")
    answer = server.ask("POST", CHAT, server.body(), JSON | {"host": name})
    assert answer.status == 421


def test_a_name_twice_and_no_name_are_no_way_around(server: RunningServer) -> None:
    assert b" 200 " in say(server, b"GET /health HTTP/1.0\r\n\r\n")
    assert refusal(say(server, b"GET /health HTTP/1.1\r\n\r\n")) == (400, "invalid_http")
    twice = b"GET /health HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n"
    assert refusal(say(server, twice)) == (400, "invalid_http")
    absolute = b"GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert b" 404 " in say(server, absolute)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None]
)
def test_a_page_of_another_site_cannot_ask_without_asking_the_browser(server: RunningServer, kind: str | None) -> None:
    """These are all kinds of a body that a browser sends to another site without a preflight."""
    headers = {"origin": SITE} | ({} if kind is None else {"content-type": kind})
    paths = server.ask("GET", "/openapi.json").json()["paths"]
    changing = [
        (path, method) for path, methods in paths.items() for method in methods if method not in ("get", "head")
    ]
    assert (CHAT, "post") in changing
    for path, method in changing:
        answer = server.ask(method.upper(), path, server.body(), headers)
        assert answer.status == 415, path
        assert "is not application/json" in answer.json()["error"]["message"], path


@pytest.mark.parametrize("origin", [SITE, "null", "http://localhost:3000"])
def test_the_browser_gets_no_leave_to_ask_or_to_tell(server: RunningServer, origin: str) -> None:
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    answers = [server.ask("OPTIONS", CHAT, headers={"origin": origin} | wanted)]
    assert answers[0].status == 405
    answers += [server.ask("GET", path, headers={"origin": origin}) for path in ("/v1/models", "/metrics", "/no")]
    answers.append(server.ask("POST", CHAT, server.body(max_tokens=1), JSON | {"origin": origin}))
    assert not [name for answer in answers for name in answer.headers if name.startswith("access-control")]


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def test_a_length_that_is_told_in_two_ways_is_refused_and_nothing_else_is_read(server: RunningServer) -> None:
    smuggled = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    both = b"content-length: %d\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" % (len(smuggled) + 5)
    for head in (HEAD, HEAD.replace(CHAT.encode(), b"/no")):
        told = say(server, head + both + smuggled)
        assert told.count(b"HTTP/1.1 ") == 1
        assert refusal(told) == (400, "ambiguous_length")


def test_a_slow_body_is_refused_in_time(server: RunningServer) -> None:
    dripping = [b"{"] + [b" "] * 8
    told = say(server, HEAD + b"content-length: 1000\r\n\r\n", *dripping, pause_s=0.15)
    assert refusal(told) == (408, "body_timeout")
    assert b"connection: close" in told.lower()
    chunks = [b"1\r\n \r\n"] * 8
    told = say(server, HEAD + b"transfer-encoding: chunked\r\n\r\n", *chunks, pause_s=0.15)
    assert refusal(told) == (408, "body_timeout")


def test_a_slow_head_is_refused_in_time(server: RunningServer) -> None:
    told = say(server, b"GET /health HTTP/1.1\r\nhost: localhost\r\n", *[b"x-a: b\r\n"] * 8, pause_s=0.15)
    assert refusal(told) == (408, "head_timeout")
    assert say(server) == b"", "who says nothing is told nothing"


def test_a_slow_second_head_is_refused_in_time(server: RunningServer) -> None:
    first = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    told = say(server, first, first[:20], *[b"x"] * 8, pause_s=0.15)
    answer, refused = told.split(b"HTTP/1.1 ", 2)[1:]
    assert answer.startswith(b"200 ")
    assert refusal(b"HTTP/1.1 " + refused) == (408, "head_timeout")


def test_a_body_that_nobody_wants_cannot_go_on_for_ever(server: RunningServer) -> None:
    told = say(
        server, b"POST /no HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n", *[b"x"] * 10, pause_s=0.15
    )
    assert refusal(told) == (404, "unknown_url")


def test_an_answer_may_take_longer_than_a_head_or_a_body(slow: RunningServer) -> None:
    connection = slow.connect()
    for _ in range(2):
        connection.request("POST", CHAT, slow.body(max_tokens=8), JSON)
        response = connection.getresponse()
        assert response.status == 200
        assert json.loads(response.read())["usage"]["completion_tokens"] == 8
    connection.close()


def test_a_head_that_is_too_long_is_refused(server: RunningServer) -> None:
    told = say(server, b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"b" * (MAX_HEAD_BYTES + 1))
    assert refusal(told) == (431, "head_too_long")


def test_more_bodies_than_there_is_memory_for_are_refused_until_some_are_answered(slow: RunningServer) -> None:
    half = slow.body(max_tokens=10) + b" " * (FEW_BYTES // 2)
    waiting = slow.connect()
    waiting.request("POST", CHAT, half, JSON)
    slow.wait_for((1, 0))
    answer = slow.ask("POST", CHAT, half, JSON)
    assert (answer.status, answer.error()["code"]) == (503, "overloaded")
    assert answer.error()["type"] == "server_error"
    assert answer.headers["retry-after"] == "1"
    assert slow.chat(max_tokens=1).status == 200
    assert waiting.getresponse().status == 200
    slow.wait_for((0, 0))
    assert slow.ask("POST", CHAT, half, JSON).status == 200
    waiting.close()


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_the_state_can_be_asked_for_without_a_body(server: RunningServer, path: str) -> None:
    answer, whole = server.ask("HEAD", path), server.ask("GET", path)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == str(len(whole.body))


def test_a_name_that_is_none_is_told_before_a_model_is_loaded(cutaway_command: CutawayCommand) -> None:
    done = cutaway_command("serve", "-m", "no-such-model", "--port", "0", "--allowed-host", "http://pc")
    assert done.rc == 2
    assert "allowed-host: 'http://pc' is no name of a host" in done.stderr


def test_a_second_header_about_the_body_is_not_passed_over(server: RunningServer) -> None:
    for doubled, code in (
        (["content-type: application/json", "content-type: text/plain"], "unsupported_content_type"),
        (
            ["content-type: application/json", "content-encoding: identity", "content-encoding: gzip"],
            "unsupported_content_encoding",
        ),
    ):
        body = server.body(max_tokens=1)
        head = [
            f"POST {CHAT} HTTP/1.1",
            "host: localhost",
            "connection: close",
            f"content-length: {len(body)}",
            *doubled,
        ]
        assert refusal(say(server, "\r\n".join(head).encode() + b"\r\n\r\n" + body)) == (415, code)


@pytest.mark.parametrize("headers", [{"x-long": "x" * 20_000}, {f"x-{index}": "y" * 40 for index in range(500)}])
def test_long_headers_are_refused_however_they_come(server: RunningServer, headers: dict[str, str]) -> None:
    answer = server.ask("GET", "/health", headers=headers)
    assert (answer.status, answer.error()["code"]) == (431, "head_too_long")


def test_timings_are_not_promised_where_there_are_none(server: RunningServer) -> None:
    for path in ("/v1/completions", "/v1/messages"):
        for value in ("1", "please"):
            answer = server.ask("POST", path, b"{}", JSON | {"x-cutaway-timings": value})
            assert answer.status == 400, path
            assert "x-cutaway-timings" in answer.json()["error"]["message"], path
