"""What a server says to requests that are wrong, and when its engine fails; the engine has no model."""

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import CHAT, JSON, RunningServer, events, running_fake

from cutaway import __version__
from cutaway.limits import MAX_BODY_BYTES, MAX_BODY_VALUES


@pytest.fixture
def server(shared: RunningServer) -> Iterator[RunningServer]:
    """A server whose answer to a good request is the same before and after the test."""
    before = shared.chat(max_tokens=8).json()["choices"]
    yield shared
    assert shared.chat(max_tokens=8).json()["choices"] == before
    shared.wait_for((0, 0))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "unknown_url"),
        ("GET", "/v1/nothing", 404, "unknown_url"),
        ("POST", "/v1/chat/completions/", 404, "unknown_url"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
        ("GET", "/v1/models/hf:a/b%00%ff", 404, "model_not_found"),
    ],
)
def test_a_wrong_address_is_told_in_the_shape_of_openai(
    server: RunningServer, method: str, path: str, status: int, code: str
) -> None:
    answer = server.ask(method, path)
    assert answer.status == status
    assert answer.error()["code"] == code


def test_the_state_can_be_asked_for(server: RunningServer) -> None:
    assert server.ask("GET", "/health").json() == {"status": "alive"}
    assert server.ask("GET", "/ready").json()["status"] == "ready"
    assert server.ask("GET", "/version").json() == {"version": __version__}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"model": NaN}',
        b'{"model": "fake", "model": "fake"}',
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"messages":' * 20_000,
        b"9" * 10_000,
        b"[" + b"{}," * MAX_BODY_VALUES + b"{}]",
        b'{"' + b"x" * 1_000_000 + b'": 1}',
    ],
    ids=lambda body: body[:12].decode("latin-1"),
)
def test_a_body_that_is_none_is_a_400(server: RunningServer, body: bytes) -> None:
    answer = server.ask("POST", CHAT, body, JSON)
    assert answer.status == 400
    assert answer.error()["type"] == "invalid_request_error"
    assert len(answer.body) < 1000


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"model": "gpt-4o"}, 404, "model_not_found", "model"),
        ({"model": None}, 400, "invalid_value", "model"),
        ({"temperature": 3}, 400, "invalid_value", "temperature"),
        ({"temperature": 10**400}, 400, "invalid_value", "temperature"),
        ({"top_p": "high"}, 400, "invalid_value", "top_p"),
        ({"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
        ({"n": 10**30}, 400, "invalid_value", "n"),
        ({"n": 1000}, 400, "invalid_value", "n"),
        ({"seed": 2**63}, 400, "invalid_value", "seed"),
        ({"logit_bias": {"260": 1}}, 400, "invalid_value", "logit_bias"),
        ({"logit_bias": {"7": 101}}, 400, "invalid_value", "logit_bias"),
        ({"stop_token_ids": [260]}, 400, "invalid_value", "stop_token_ids"),
        ({"min_tokens": 200, "max_tokens": 100}, 400, "invalid_value", "min_tokens"),
        ({"min_tokens": 10_000, "max_tokens": 20_000}, 400, "invalid_value", "min_tokens"),
        ({"xtc_threshold": 0.6}, 400, "invalid_value", "xtc_threshold"),
        ({"stop": "\ud800"}, 400, "invalid_value", "stop"),
        ({"max_token": 5}, 400, "invalid_value", "max_token"),
        ({"tools": [{"type": "function"}]}, 400, "invalid_value", "tools"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "invalid_value", "messages[0].content"),
        ({"messages": [{"role": "user", "content": ""}]}, 400, "invalid_value", "messages"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, 400, "context_length_exceeded", "messages"),
        ({"messages": [{"role": "user", "content": "x" * 300_000}]}, 400, "context_length_exceeded", "messages"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_request_is_refused_with_the_field_that_is_to_blame(
    server: RunningServer, fields: dict[str, object], status: int, code: str, param: str, stream: bool
) -> None:
    answer = server.chat(**fields, stream=stream)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    error = answer.error()
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)


def test_only_json_as_it_is_can_be_sent(server: RunningServer) -> None:
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        assert server.ask("POST", CHAT, server.body(), headers).error()["code"] == "unsupported_content_type"
    assert server.ask("POST", CHAT, server.body(), {"content-type": "Application/JSON; charset=utf-8"}).status == 200
    packed = server.ask("POST", CHAT, gzip.compress(server.body()), JSON | {"content-encoding": "gzip"})
    assert (packed.status, packed.error()["code"]) == (415, "unsupported_content_encoding")


def test_a_body_over_the_limit_is_refused_before_it_is_read(server: RunningServer) -> None:
    connection = server.connect()
    connection.putrequest("POST", CHAT)
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", str(MAX_BODY_BYTES + 1))
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["error"]["code"] == "body_too_long"
    connection.close()


def test_a_body_that_grows_over_the_limit_is_refused(server: RunningServer) -> None:
    connection = server.connect()
    connection.putrequest("POST", CHAT)
    connection.putheader("content-type", "application/json")
    connection.putheader("transfer-encoding", "chunked")
    connection.endheaders()
    part = b" " * (1 << 20)
    try:
        for _ in range(MAX_BODY_BYTES // len(part) + 2):
            connection.send(b"%x\r\n" % len(part) + part + b"\r\n")
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has heard enough
    try:
        response = connection.getresponse()
    except (http.client.HTTPException, OSError):
        return
    assert response.status == 413
    connection.close()


def test_a_long_body_inside_the_limits_is_answered(server: RunningServer) -> None:
    spaces = b" " * (MAX_BODY_BYTES - len(server.body(max_tokens=1)))
    answer = server.ask("POST", CHAT, server.body(max_tokens=1) + spaces, JSON)
    assert answer.status == 200


def test_what_is_no_http_is_refused(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert b" 400 " in connection.recv(1000)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-le")  # and leaves


def test_a_client_that_leaves_inside_its_body_disturbs_nobody(server: RunningServer) -> None:
    connection = server.connect()
    connection.putrequest("POST", CHAT)
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", "1000")
    connection.endheaders(b'{"model": "fa')
    connection.close()


@pytest.mark.parametrize("given", ["abc-123", "A" * 128])
def test_a_request_id_comes_back(server: RunningServer, given: str) -> None:
    for path in ("/health", "/nothing"):
        assert server.ask("GET", path, headers={"x-request-id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "A" * 129, "two words", "a;b", "토마토".encode().decode("latin-1")])
def test_a_request_id_that_is_none_is_replaced(server: RunningServer, given: str) -> None:
    told = server.ask("GET", "/health", headers={"x-request-id": given}).headers["x-request-id"]
    assert told.startswith("req_")
    assert told != given


def test_an_engine_that_fails_before_the_first_byte_is_a_500(server: RunningServer, folder: Path) -> None:
    (folder / "break").touch()
    try:
        answers = [server.chat(), server.chat(stream=True), server.chat(n=3)]
    finally:
        (folder / "break").unlink()
    for answer in answers:
        assert answer.status == 500
        assert (answer.error()["type"], answer.error()["code"]) == ("server_error", "generation")


def test_an_engine_that_fails_after_the_first_byte_ends_the_stream_with_an_error(
    server: RunningServer, folder: Path
) -> None:
    (folder / "slow").touch()
    connection = server.start_chat(stream=True)
    response = connection.getresponse()
    assert response.status == 200
    first = response.readline()
    (folder / "break").touch()
    try:
        told = events(first + response.read())
    finally:
        (folder / "break").unlink()
        (folder / "slow").unlink()
    connection.close()
    assert told[0]["choices"][0]["delta"]["role"] == "assistant"
    assert told[-1]["error"]["type"] == "server_error"
    assert "broken on purpose" in told[-1]["error"]["message"]
    assert not any("error" in each for each in told[:-1])


def test_a_full_queue_refuses_and_says_when_to_come_again(server: RunningServer, folder: Path) -> None:
    (folder / "slow").touch()
    connections = []
    try:
        for num_sent in range(1, 9):  # four run and four wait
            connections.append(server.start_chat())
            server.wait_for((min(num_sent, 4), max(num_sent - 4, 0)))
        answer = server.chat()
        assert (answer.status, answer.error()["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
    finally:
        for connection in connections:
            connection.close()
        (folder / "slow").unlink()


def test_a_clamp_is_told(server: RunningServer) -> None:
    notices = server.chat(max_tokens=1000).json()["cutaway"]["notices"]
    assert any("max_tokens 1,000 was lowered to" in notice for notice in notices)
    streamed = events(server.chat(max_tokens=1000, stream=True).body)
    assert streamed[0]["cutaway"]["notices"] == notices
    assert not any("cutaway" in each for each in streamed[1:-1])


def test_a_bug_is_told_to_the_log_and_not_to_the_client(tmp_path: Path) -> None:
    bug, slow = tmp_path / "bug", tmp_path / "slow"
    bug.touch()
    with running_fake(tmp_path) as server:
        early = [server.chat(logprobs=True), server.chat(logprobs=True, stream=True)]
        bug.unlink()
        slow.touch()
        connection = server.start_chat(logprobs=True, stream=True)
        response = connection.getresponse()
        first = response.readline()
        bug.touch()
        late = events(first + response.read())
        connection.close()
        bug.unlink()
        slow.unlink()
        assert server.chat(logprobs=True).status == 200
        server.press_ctrl_c()
        assert server.wait() == 0
    assert [answer.status for answer in early] == [500, 500]
    for error in (early[0].error(), early[1].error(), late[-1]["error"]):
        assert error["code"] == "internal_error"
        assert "secret" not in error["message"]
        request_id = error["message"].split()[-1]
        assert f"request {request_id} met a bug" in server.lines
    assert early[0].headers["x-request-id"] == early[0].error()["message"].split()[-1]
    assert server.lines.count("KeyError: 'a secret'") == 3
