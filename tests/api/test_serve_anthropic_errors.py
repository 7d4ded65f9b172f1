"""What a server says to Anthropic's clients that are wrong or leave, or when its engine fails; it has no model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from running_server import JSON, MESSAGES, RunningServer, named_events, running_fake

from cutaway.limits import MAX_BODY_BYTES

COUNT = f"{MESSAGES}/count_tokens"
VERSION = {"anthropic-version": "2023-06-01"}
LEAVING_SECONDS = 5  # far less than a slow answer takes


@pytest.fixture
def server(shared: RunningServer) -> Iterator[RunningServer]:
    """A server whose answer to a good request is the same before and after the test."""
    before = shared.message(max_tokens=8).json()["content"]
    yield shared
    assert shared.message(max_tokens=8).json()["content"] == before
    shared.wait_for((0, 0))


@pytest.fixture
def client(server: RunningServer, no_proxy: None) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "kind"),
    [
        ("GET", MESSAGES, {}, 405, "invalid_request_error"),
        ("GET", COUNT, {}, 405, "invalid_request_error"),
        ("POST", f"{MESSAGES}/", JSON, 404, "not_found_error"),
        ("POST", f"{MESSAGES}/batches", JSON, 404, "not_found_error"),
        ("GET", "/v1/nothing", VERSION, 404, "not_found_error"),
        ("GET", "/v1/models/other", VERSION, 404, "not_found_error"),
        ("GET", "/v1/models?after_id=other", VERSION, 400, "invalid_request_error"),
        ("POST", MESSAGES, {}, 415, "invalid_request_error"),
        ("POST", MESSAGES, {"content-type": "text/plain"}, 415, "invalid_request_error"),
    ],
)
def test_a_wrong_address_is_told_in_the_shape_of_anthropic(
    server: RunningServer, method: str, path: str, headers: dict[str, str], status: int, kind: str
) -> None:
    answer = server.ask(method, path, headers=headers)
    assert answer.status == status
    assert answer.anthropic_error()["type"] == kind


def test_other_clients_are_told_in_the_shape_of_openai(server: RunningServer) -> None:
    for path in ("/v1/messagesx", "/v1/models/other", "/v1/nothing"):
        assert server.ask("GET", path).error()["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'{"model": NaN}', b'{"model": "a", "model": "b"}', b"\xff", b"[" * 200_000]
)
def test_a_body_that_is_none_is_a_400(server: RunningServer, body: bytes) -> None:
    for path in (MESSAGES, COUNT):
        answer = server.ask("POST", path, body, JSON)
        assert answer.status == 400
        assert answer.anthropic_error()["type"] == "invalid_request_error"
        assert len(answer.body) < 1000


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "claude-x"}, 404, "the model 'claude-x' does not exist here"),
        ({"model": None}, 400, "model: it is missing"),
        ({"max_tokens": None}, 400, "max_tokens: it is missing"),
        ({"max_tokens": 0}, 400, "max_tokens: 0 is outside its limits"),
        ({"temperature": 1.5}, 400, "temperature: 1.5 is outside its limits, a number from 0 to 1"),
        ({"stop_sequences": "x"}, 400, 'stop_sequences: "x" is not a list of texts'),
        ({"n": 2}, 400, "n: this field is not known"),
        ({"tools": [{"name": "x"}]}, 400, "tools: a list of 1 is not supported"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, 400, "thinking: an object is not supported"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, '"image" is not supported, only text'),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "messages[0].content: character 0"),
        ({"messages": [{"role": "user", "content": ""}]}, 400, "messages: the prompt is empty"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "the last one is the assistant's"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, 400, "the prompt has 300 tokens"),
        ({"messages": [{"role": "user", "content": "x" * 300_000}]}, 400, "the prompt has 300,000 tokens"),
    ],
)
def test_a_wrong_request_is_refused_whole_or_streamed(
    server: RunningServer, fields: dict[str, object], status: int, words: str
) -> None:
    for stream in (False, True):
        answer = server.message(**fields, stream=stream)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert words in answer.anthropic_error()["message"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(server: RunningServer) -> None:
    connection = server.connect()
    connection.putrequest("POST", MESSAGES)
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", str(MAX_BODY_BYTES + 1))
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["error"]["type"] == "request_too_large"
    connection.close()


def test_counting_refuses_what_a_message_would_but_counts_what_does_not_fit(server: RunningServer) -> None:
    def count(**fields: object) -> Any:
        return server.ask("POST", COUNT, server.body(**fields), JSON)

    assert count().json() == {"input_tokens": 1}
    assert count(messages=[{"role": "user", "content": "x" * 300}]).json() == {"input_tokens": 300}
    for fields in ({"model": "other"}, {"messages": [{"role": "user", "content": ""}]}, {"max_token": 3}):
        told, expected = count(**fields), server.message(**fields)
        assert (told.status, told.anthropic_error()) == (expected.status, expected.anthropic_error())


def test_headers_and_queries_of_clients_are_accepted(server: RunningServer) -> None:
    expected = server.message(max_tokens=8).json()["content"]
    headers = JSON | VERSION | {"x-api-key": "k", "anthropic-beta": "some-2026-01-01", "authorization": "Bearer t"}
    answer = server.ask("POST", f"{MESSAGES}?beta=true", server.body(max_tokens=8), headers)
    assert (answer.status, answer.json()["content"]) == (200, expected)
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    given = server.ask("POST", MESSAGES, server.body(max_tokens=8), JSON | {"x-request-id": "mine-1"})
    assert given.headers["request-id"] == "mine-1"


def test_an_answer_that_fills_the_context_says_so_and_what_was_lowered(server: RunningServer) -> None:
    whole = server.message(max_tokens=1000).json()
    assert whole["stop_reason"] == "model_context_window_exceeded"
    assert any("max_tokens 1,000 was lowered to 255" in notice for notice in whole["cutaway"]["notices"])
    streamed = named_events(server.message(max_tokens=1000, stream=True).body)
    assert streamed[0]["message"]["cutaway"] == whole["cutaway"]
    assert streamed[-2]["delta"]["stop_reason"] == "model_context_window_exceeded"
    assert server.message(max_tokens=255).json()["stop_reason"] == "max_tokens"


def test_an_engine_that_fails_before_the_first_event_is_a_500(
    server: RunningServer, folder: Path, client: anthropic.Anthropic
) -> None:
    (folder / "break").touch()
    try:
        answers = [server.message(), server.message(stream=True)]
        with pytest.raises(anthropic.InternalServerError) as caught:
            client.messages.create(model="fake", max_tokens=8, messages=[{"role": "user", "content": "b"}])
    finally:
        (folder / "break").unlink()
    for answer in answers:
        assert answer.status == 500
        assert answer.anthropic_error()["type"] == "api_error"
    assert caught.value.request_id == caught.value.body["request_id"]  # type: ignore[index]


def test_an_engine_that_fails_inside_a_stream_ends_it_with_an_error(
    server: RunningServer, folder: Path, client: anthropic.Anthropic
) -> None:
    (folder / "slow").touch()
    connection = server.start_message(stream=True)
    response = connection.getresponse()
    first = response.readline()
    stream = client.messages.create(
        model="fake", max_tokens=300, messages=[{"role": "user", "content": "b"}], stream=True
    )
    assert next(iter(stream)).type == "message_start"
    (folder / "break").touch()
    try:
        told = named_events(first + response.read())
        with pytest.raises(anthropic.APIStatusError, match="broken on purpose"):
            list(stream)
    finally:
        (folder / "break").unlink()
        (folder / "slow").unlink()
    connection.close()
    kinds = [event["type"] for event in told]
    assert kinds[:3] == ["message_start", "content_block_start", "ping"]
    assert set(kinds[3:-1]) <= {"content_block_delta"}
    assert kinds[-1] == "error"
    assert told[-1]["error"]["type"] == "api_error"
    assert "broken on purpose" in told[-1]["error"]["message"]
    assert told[-1]["request_id"] == response.headers["request-id"]


def test_a_full_queue_is_a_529_that_says_when_to_come_again(
    server: RunningServer, folder: Path, client: anthropic.Anthropic
) -> None:
    (folder / "slow").touch()
    connections = []
    try:
        for num_sent in range(1, 9):  # four run and four wait
            connections.append(server.start_message(stream=num_sent % 2 == 0))
            server.wait_for((min(num_sent, 4), max(num_sent - 4, 0)))
        answer = server.message()
        with pytest.raises(anthropic.OverloadedError):
            client.messages.create(model="fake", max_tokens=8, messages=[{"role": "user", "content": "b"}])
        assert (answer.status, answer.anthropic_error()["type"]) == (529, "overloaded_error")
        assert answer.headers["retry-after"] == "1"
    finally:
        for connection in connections:
            connection.close()
        server.wait_for((0, 0), seconds=LEAVING_SECONDS)  # all of them have left
        (folder / "slow").unlink()


@pytest.mark.parametrize("num_events", [0, 4])
def test_a_client_that_leaves_ends_its_request(server: RunningServer, folder: Path, num_events: int) -> None:
    (folder / "slow").touch()
    try:
        connection = server.start_message(stream=True)
        server.wait_for((1, 0))
        if num_events:
            response = connection.getresponse()
            for _ in range(3 * num_events):
                response.readline()
            response.close()
        connection.close()
        server.wait_for((0, 0), seconds=LEAVING_SECONDS)
    finally:
        (folder / "slow").unlink()


def test_a_stopped_server_tells_the_clients_of_streams(tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    with running_fake(tmp_path) as server:
        connection = server.start_message(stream=True)
        response = connection.getresponse()
        first = response.readline()
        whole = server.start_message()
        server.wait_for((2, 0))
        server.press_ctrl_c()
        while len(server.lines) < 2:
            assert server.process.poll() is None
        server.press_ctrl_c()
        told = named_events(first + response.read())
        answer = whole.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]["type"]) == (503, "api_error")
        assert (told[-1]["type"], told[-1]["error"]["type"]) == ("error", "api_error")
        assert server.wait() == 130
        connection.close()
        whole.close()
