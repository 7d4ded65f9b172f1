"""What clients can learn of their own requests; the engine has no model."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from running_server import CHAT, JSON, RunningServer, events, running_fake


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_fake(tmp_path_factory.mktemp("told")) as server:
        yield server


def check(timings: dict[str, Any], num_tokens: list[int]) -> None:
    """They have the times of so many tokens, which are in order."""
    for index, (choice, count) in enumerate(zip(timings["choices"], num_tokens, strict=True)):
        tokens = choice["token_ms"]
        assert (choice["index"], len(tokens)) == (index, count)
        assert tokens == sorted(tokens)
        assert all(choice[name] >= 0 for name in ("queue_ms", "prefill_ms", "decode_ms"))
        assert choice["decode_ms"] == pytest.approx(tokens[-1] - tokens[0], abs=0.002)
        assert choice["queue_ms"] + choice["prefill_ms"] <= tokens[0] + 0.002


WANTED = {"cutaway": {"timings": True}}


def test_an_answer_tells_where_its_time_went(server: RunningServer) -> None:
    body = server.body(max_tokens=7, **WANTED)
    answer = server.ask("POST", CHAT, body, JSON | {"x-request-id": "mine"})
    timings = answer.json()["cutaway"]["timings"]
    assert timings["request_id"] == answer.headers["x-request-id"] == "mine"
    check(timings, [7])
    check(server.chat(max_tokens=5, n=3, **WANTED).json()["cutaway"]["timings"], [5] * 3)
    assert server.chat(max_tokens=5).json()["cutaway"].keys() == {"notices"}


def test_a_stream_tells_it_in_the_end(server: RunningServer) -> None:
    *chunks, last, done = events(server.chat(max_tokens=6, n=2, stream=True, **WANTED).body)
    assert done == "[DONE]"
    check(last["cutaway"]["timings"], [6] * 2)
    assert not any("timings" in chunk.get("cutaway", {}) for chunk in chunks)


def test_the_header_asks_for_the_same(server: RunningServer) -> None:
    wanted = JSON | {"x-cutaway-timings": "1"}
    check(server.ask("POST", CHAT, server.body(max_tokens=3), wanted).json()["cutaway"]["timings"], [3])
    answer = server.ask("POST", CHAT, server.body(max_tokens=3), JSON | {"x-cutaway-timings": "please"})
    assert (answer.status, answer.error()["param"]) == (400, "x-cutaway-timings")


def test_an_answer_is_the_same_with_and_without(server: RunningServer) -> None:
    fields = {"max_tokens": 30, "temperature": 1, "seed": 3, "logprobs": True}
    plain, timed = server.chat(**fields).json(), server.chat(**fields, **WANTED).json()
    assert timed["choices"] == plain["choices"]


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


def test_every_response_names_the_trace_of_its_caller_and_a_span_of_its_own(server: RunningServer) -> None:
    answers = [server.ask(method, path, headers=PARENT) for method, path in (("GET", "/health"), ("POST", "/no"))]
    answers.append(server.ask("GET", "/health", headers=PARENT | {"host": "evil.example"}))
    answers.append(server.ask("POST", CHAT, server.body(max_tokens=2, stream=True), JSON | PARENT))
    assert [answer.status for answer in answers] == [200, 404, 421, 200]
    told = [answer.headers["traceresponse"].split("-") for answer in answers]
    assert [(version, trace_id, flags) for version, trace_id, _, flags in told] == [("00", TRACE, "00")] * 4
    assert len({span_id for _, _, span_id, _ in told} - {"00f067aa0ba902b7"}) == 4


def test_a_caller_without_a_valid_trace_is_answered_as_ever(server: RunningServer) -> None:
    for headers in ({}, {"traceparent": "00-nonsense"}, {"traceparent": PARENT["traceparent"].upper()}):
        answer = server.ask("GET", "/health", headers=headers)
        assert (answer.status, "traceresponse" in answer.headers) == (200, False)


# What is not asked as a chat completion is.
BODIES = {
    path: json.dumps({"model": "fake"} | fields).encode()
    for path, fields in {
        "/v1/completions": {"prompt": "b", "max_tokens": 1},
        "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "b"}]},
        "/tokenize": {"prompt": "b"},
        "/detokenize": {"tokens": [98]},
    }.items()
}


def test_the_openapi_document_has_the_routes_that_there_are(server: RunningServer) -> None:
    answer = server.ask("GET", "/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    paths = answer.json()["paths"]
    assert {"/v1/chat/completions", "/v1/models/{model_id}", "/metrics", "/openapi.json"} <= paths.keys()
    for path, operations in paths.items():
        for method, operation in operations.items():
            body = BODIES.get(path, server.body(max_tokens=1)) if "requestBody" in operation else None
            told = server.ask(method.upper(), path.replace("{model_id}", server.model), body, JSON)
            assert told.status == 200, (method, path)
            assert operation["summary"].endswith(".")


def test_the_page_for_people_loads_and_runs_nothing(server: RunningServer) -> None:
    answer = server.ask("GET", "/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert CHAT in answer.body.decode()
