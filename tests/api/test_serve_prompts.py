"""Completions, tokens and rendered prompts over HTTP: good, wrong, left and broken; the engine has no model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import JSON, LONG, Answer, RunningServer, events, running_fake

COMPLETIONS = "/v1/completions"
ROUTES = (COMPLETIONS, "/tokenize", "/detokenize", "/render")
LEAVING_SECONDS = 5
MIXED = ["b", "Is a 토마토 a fruit? 🍅", "<|turn|>hi<|end|>"]


@pytest.fixture
def server(shared: RunningServer) -> Iterator[RunningServer]:
    """A server whose answer to a good request is the same before and after the test."""
    before = complete(shared, prompt="b").json()["choices"]
    yield shared
    assert complete(shared, prompt="b").json()["choices"] == before
    shared.wait_for((0, 0))


def post(server: RunningServer, path: str, **fields: object) -> Answer:
    return server.ask("POST", path, json.dumps({"model": server.model} | fields).encode(), JSON)


def complete(server: RunningServer, **fields: object) -> Answer:
    return post(server, COMPLETIONS, **{"temperature": 0, "max_tokens": 8} | fields)


def start(server: RunningServer, **fields: object) -> Any:
    """A connection on which completions were asked for that take long."""
    connection = server.connect()
    body = {"model": server.model, "prompt": LONG, "temperature": 0, "max_tokens": 250} | fields
    connection.request("POST", COMPLETIONS, json.dumps(body).encode(), JSON)
    return connection


def joined(stream: bytes, num_choices: int) -> list[str]:
    """The texts that the chunks of a stream add up to."""
    *chunks, done = events(stream)
    assert done == "[DONE]"
    texts = [""] * num_choices
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    return texts


@pytest.mark.parametrize(("prompts", "n"), [(MIXED, 1), (MIXED[:2], 2)])  # no more than the queue holds
def test_a_batch_gives_what_each_prompt_gives_alone(server: RunningServer, prompts: list[object], n: int) -> None:
    alone = [complete(server, prompt=prompt, n=n, logprobs=1).json() for prompt in prompts]
    together = complete(server, prompt=prompts, n=n, logprobs=1).json()
    assert [choice["index"] for choice in together["choices"]] == list(range(n * len(prompts)))
    expected = [
        choice | {"index": n * at + choice["index"]} for at, each in enumerate(alone) for choice in each["choices"]
    ]
    assert together["choices"] == expected
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][count] == sum(each["usage"][count] for each in alone)


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_joined_is_the_whole_answer(server: RunningServer, echo: bool) -> None:
    asked: dict[str, Any] = {"prompt": ["b", "Is a 토마토 a fruit?"], "n": 2, "echo": echo, "max_tokens": 30}
    whole = complete(server, **asked).json()
    streamed = complete(server, **asked, stream=True, stream_options={"include_usage": True})
    assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
    texts = [choice["text"] for choice in whole["choices"]]
    assert joined(streamed.body, 4) == texts
    if echo:
        assert all(text.startswith(prompt) for text, prompt in zip(texts[::2], asked["prompt"], strict=True))
    told = events(streamed.body)[-2]
    assert told["choices"] == []
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert told["usage"][count] == whole["usage"][count]


@pytest.mark.parametrize("prompt", MIXED)
def test_tokens_say_what_a_text_says(server: RunningServer, prompt: str) -> None:
    tokens = post(server, "/tokenize", prompt=prompt).json()["tokens"]
    assert post(server, "/detokenize", tokens=tokens).json() == {"prompt": prompt}
    asked = complete(server, prompt=prompt, echo=True).json()
    assert complete(server, prompt=tokens, echo=True).json()["choices"] == asked["choices"]
    (rendered,) = post(server, "/render", prompt=tokens).json()["prompts"]
    assert (rendered["kind"], rendered["tokens"], rendered["prompt"]) == ("tokens", tokens, prompt)


def test_a_text_that_is_cut_into_tokens_can_be_longer_than_the_context(server: RunningServer) -> None:
    told = post(server, "/tokenize", prompt="x" * 1000).json()
    assert (told["count"], told["max_model_len"], len(told["tokens"])) == (1000, 256, 1000)
    assert "token_strs" not in told


def test_a_stop_string_of_the_prompt_ends_nothing(server: RunningServer) -> None:
    plain, stopped = (complete(server, prompt="b!!", echo=True, stop=stop).json()["choices"] for stop in (None, "!!"))
    assert plain == stopped


WRONG: list[tuple[str, dict[str, object], int, str, str]] = [
    (COMPLETIONS, {"model": "gpt-4o"}, 404, "model_not_found", "model"),
    (COMPLETIONS, {"prompt": None}, 400, "invalid_value", "prompt"),
    (COMPLETIONS, {"prompt": ""}, 400, "invalid_value", "prompt"),
    (COMPLETIONS, {"prompt": ["b", ""]}, 400, "invalid_value", "prompt[1]"),
    (COMPLETIONS, {"prompt": [98, 260]}, 400, "invalid_value", "prompt"),
    (COMPLETIONS, {"prompt": [[98], [260]], "echo": True}, 400, "invalid_value", "prompt[1]"),
    (COMPLETIONS, {"prompt": [[98], [10**30]]}, 400, "invalid_value", "prompt[1]"),
    (COMPLETIONS, {"prompt": "x" * 256}, 400, "context_length_exceeded", "prompt"),
    (COMPLETIONS, {"prompt": ["b", "x" * 300]}, 400, "context_length_exceeded", "prompt[1]"),
    (COMPLETIONS, {"prompt": [[98], [98] * 256]}, 400, "context_length_exceeded", "prompt[1]"),
    (COMPLETIONS, {"prompt": ["\ud800"]}, 400, "invalid_value", "prompt[0]"),
    (COMPLETIONS, {"temperature": 3}, 400, "invalid_value", "temperature"),
    (COMPLETIONS, {"logprobs": 6}, 400, "invalid_value", "logprobs"),
    (COMPLETIONS, {"echo": True, "logprobs": 1}, 400, "invalid_value", "echo"),
    ("/tokenize", {"prompt": None}, 400, "invalid_value", "prompt"),
    ("/tokenize", {"model": "gpt-4o"}, 404, "model_not_found", "model"),
    ("/tokenize", {"prompt": ""}, 400, "invalid_value", "prompt"),
    ("/detokenize", {"tokens": [98, 260]}, 400, "invalid_value", "tokens"),
    ("/detokenize", {"tokens": []}, 400, "invalid_value", "tokens"),
    ("/render", {"prompt": ["b", "x" * 300]}, 400, "context_length_exceeded", "prompt[1]"),
    ("/render", {"temperature": 3}, 400, "invalid_value", "temperature"),
]


@pytest.mark.parametrize(("path", "fields", "status", "code", "param"), WRONG)
def test_a_wrong_request_is_refused_with_the_field_that_is_to_blame(
    server: RunningServer, path: str, fields: dict[str, object], status: int, code: str, param: str
) -> None:
    basis = {} if path == "/detokenize" else {"prompt": "b"}
    for stream in ({}, {"stream": True}) if path == COMPLETIONS else ({},):
        answer = post(server, path, **basis | fields | stream)
        error = answer.error()
        assert (answer.status, error["code"], error["param"]) == (status, code, param), error
        assert len(answer.body) < 1000


@pytest.mark.parametrize("path", ROUTES)
def test_what_is_no_json_and_what_is_no_post_is_told_everywhere(server: RunningServer, path: str) -> None:
    assert (server.ask("GET", path).status, server.ask("GET", path).error()["code"]) == (405, "method_not_allowed")
    assert server.ask("POST", path, b"{", JSON).error()["param"] == "body"
    assert server.ask("POST", path, b"{}").error()["code"] == "unsupported_content_type"


def test_a_clamp_is_told_with_the_prompt_that_it_is_about(server: RunningServer) -> None:
    (alone,) = complete(server, prompt="b", max_tokens=1000).json()["cutaway"]["notices"]
    assert alone.startswith("max_tokens 1,000 was lowered to 255")
    asked = {"prompt": ["b", "bb"], "max_tokens": 255}
    notices = complete(server, **asked).json()["cutaway"]["notices"]
    assert [notice[:31] for notice in notices] == ["prompt[1]: max_tokens 255 was l"]
    first, *rest = events(complete(server, **asked, stream=True).body)
    assert first["cutaway"]["notices"] == notices
    assert not any("cutaway" in chunk for chunk in rest[:-1])


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_all_of_its_prompts(server: RunningServer, folder: Path, stream: bool) -> None:
    (folder / "slow").touch()
    try:
        connection = start(server, prompt=[LONG, LONG], n=2, stream=stream)
        server.wait_for((4, 0))
        if stream:
            assert connection.getresponse().readline().startswith(b"data: ")
        connection.close()
        server.wait_for((0, 0), seconds=LEAVING_SECONDS)
    finally:
        (folder / "slow").unlink()


@pytest.mark.parametrize("stream", [False, True])
def test_a_batch_that_the_queue_has_no_room_for_is_refused_as_a_whole(
    server: RunningServer, folder: Path, stream: bool
) -> None:
    (folder / "slow").touch()
    try:
        connection = start(server, n=4)
        server.wait_for((4, 0))
        answer = complete(server, prompt=["b"] * 5, stream=stream)
        assert (answer.status, answer.error()["code"], answer.headers["retry-after"]) == (503, "overloaded", "1")
        connection.close()
        server.wait_for((0, 0), seconds=LEAVING_SECONDS)
    finally:
        (folder / "slow").unlink()


def test_an_engine_that_fails_is_told_by_status_or_at_the_end_of_the_stream(
    server: RunningServer, folder: Path
) -> None:
    (folder / "slow").touch()
    connection = start(server, prompt=["b", "bb"], stream=True)
    response = connection.getresponse()
    first = response.readline()
    (folder / "break").touch()
    try:
        told = events(first + response.read())
        whole = complete(server, prompt=["b", "bb"])
    finally:
        (folder / "break").unlink()
        (folder / "slow").unlink()
    connection.close()
    assert "broken on purpose" in told[-1]["error"]["message"]
    assert not any("error" in each for each in told[:-1])
    assert (whole.status, whole.error()["code"]) == (500, "generation")


def test_a_bug_is_told_to_the_log_and_not_to_the_client(tmp_path: Path) -> None:
    with running_fake(tmp_path) as server:
        (tmp_path / "bug").touch()
        whole = complete(server, prompt="b", logprobs=1)
        streamed = complete(server, prompt="b", logprobs=1, stream=True)
        strings = post(server, "/tokenize", prompt="b", return_token_strs=True)
        server.press_ctrl_c()
        assert server.wait() == 0
    for error in (whole.error(), streamed.error(), strings.error()):
        assert error["code"] == "internal_error"
        assert "secret" not in error["message"]
        assert f"request {error['message'].split()[-1]} met a bug" in server.lines
    assert (whole.status, streamed.status, strings.status) == (500, 500, 500)
