"""OpenAI's requests, replies and errors as plain values: every field, every refusal."""

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.api.failure import HttpError, Unfinished
from cutaway.api.json_body import parse_body
from cutaway.api.json_text import json_bytes
from cutaway.api.openai import CHAT_FIELDS, HARMLESS, SAYING_NOTHING, ChatCall, chat_call
from cutaway.api.openai_error import error_reply
from cutaway.api.openai_reply import Head, StreamedAnswer, WholeAnswer
from cutaway.api.sse import event
from cutaway.errors import (
    ContextExceeded,
    EngineStopped,
    GenerationError,
    InvalidValue,
    OutOfMemory,
    TemplateError,
    UnknownModel,
)
from cutaway.glass.receipt import Spelling
from cutaway.limits import (
    LIMITS,
    MAX_BODY_VALUES,
    MAX_BREAKER_CHARS,
    MAX_BREAKERS,
    MAX_LOGIT_BIASES,
    MAX_MESSAGES,
    MAX_PROMPT_CHARS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    MAX_TOKENS,
    check_number,
)
from cutaway.types import Candidate, Conversation, Delta, Draw, Finish, FinishReason, Message, Role, TokenChoice, Usage

USER = {"role": "user", "content": "Is a tomato a fruit?"}
LONE = "\ud83c"
DRAW = Draw(None, 0.0, 1.0, 1.0)
HEAD = Head("chatcmpl-1", 1_700_000_000, "m", "fp_1")


def call(**fields: object) -> ChatCall:
    """A request with one message and these fields."""
    return chat_call({"model": "m", "messages": [USER]} | fields, "m", "r1", 42)


def refused(**fields: object) -> InvalidValue:
    """How a request with these fields is refused; the refusal is a 400 that a client can read."""
    with pytest.raises(InvalidValue) as caught:
        call(**fields)
    reply = error_reply(caught.value, "r1")
    assert (reply.status, reply.type, reply.param) == (400, "invalid_request_error", caught.value.name)
    assert len(json_bytes(reply.body())) < 1000
    return caught.value


def test_what_is_left_out_has_the_values_of_openai() -> None:
    request = call().request
    assert request.prompt == Conversation((Message(Role.USER, "Is a tomato a fruit?"),))
    assert (request.request_id, request.n, request.max_tokens, request.stop) == ("r1", 1, None, ())
    assert request.sampling.temperature == request.sampling.top_p == 1
    assert request.sampling.seed == 42
    assert request.num_logprobs is None
    assert not call().stream
    assert not call().include_usage


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.5),
        ("temperature", 1),
        ("top_p", 0.9),
        ("top_k", 40),
        ("min_p", 0.1),
        ("presence_penalty", -1.5),
        ("frequency_penalty", 2),
        ("repetition_penalty", 1.1),
        ("seed", -7),
        ("typical_p", 0.9),
        ("top_n_sigma", -1),
        ("xtc_probability", 0.5),
        ("xtc_threshold", 0.2),
        ("dry_multiplier", 0.8),
        ("dry_base", 1.5),
        ("dry_allowed_length", 3),
        ("dry_penalty_last_n", 64),
    ],
)
def test_each_setting_of_the_sampler_arrives(name: str, value: float) -> None:
    assert getattr(call(**{name: value}).request.sampling, name) == value


def test_the_other_fields_arrive() -> None:
    assert call(stop="end").request.stop == ("end",)
    assert call(stop=["a", "b"]).request.stop == ("a", "b")
    assert call(max_tokens=5).request.max_tokens == 5
    assert call(max_completion_tokens=6).request.max_tokens == 6
    assert call(max_tokens=7, max_completion_tokens=7).request.max_tokens == 7
    assert call(n=3).request.n == 3
    assert call(logprobs=True).request.num_logprobs == 0
    assert call(logprobs=True, top_logprobs=4).num_top == 4
    assert call(logprobs=False).num_top is None
    assert call(stream=True).stream
    assert not call(stream=True).include_usage
    assert call(stream=True, stream_options={"include_usage": True, "include_obfuscation": False}).include_usage


def test_roles_and_parts_of_messages() -> None:
    messages = [
        {"role": "system", "content": "a"},
        {"role": "developer", "content": "b"},
        {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
        {"role": "assistant", "content": "", "refusal": None, "annotations": [], "tool_calls": None, "name": None},
    ]
    assert call(messages=messages).request.prompt == Conversation(
        (
            Message(Role.SYSTEM, "a"),
            Message(Role.SYSTEM, "b"),
            Message(Role.USER, "c\nd"),
            Message(Role.ASSISTANT, ""),
        )
    )


@pytest.mark.parametrize("name", sorted(CHAT_FIELDS.keys() - {"model", "messages"}))
def test_null_is_the_same_as_leaving_out(name: str) -> None:
    assert call(**{name: None}) == call()


@pytest.mark.parametrize("name", sorted(SAYING_NOTHING))
def test_known_fields_that_say_nothing_are_accepted_and_others_refused(name: str) -> None:
    assert call(**{name: None}) == call()
    for value in SAYING_NOTHING[name]:
        assert call(**{name: value}) == call()
    assert refused(**{name: {"x": 1}}).name == name


def test_harmless_fields_change_nothing_but_must_be_of_their_kind() -> None:
    values = {"metadata": {"a": "b"}, "store": True, "parallel_tool_calls": False}
    assert call(**{name: values.get(name, "x") for name in HARMLESS}) == call()
    for name in HARMLESS:
        assert refused(**{name: 7}).name == name


@pytest.mark.parametrize("name", [name for name in CHAT_FIELDS if name not in HARMLESS])
@pytest.mark.parametrize("value", [[7], {"a": 1}, "text", True, 10**400, 1e300, -1e300, LONE, [LONE], [[]], ""])
def test_what_is_of_the_wrong_kind_or_size_is_refused_with_the_name_of_the_field(name: str, value: object) -> None:
    fits = {
        ("model", "text"),
        ("model", ""),
        ("stop", "text"),
        ("logprobs", True),
        ("stream", True),
        ("ignore_eos", True),
    }
    if (not isinstance(value, list | dict) and (name, value) in fits) or (name, value) == ("stop_token_ids", [7]):
        return
    assert refused(**{name: value}).name.startswith(name)


@pytest.mark.parametrize(
    "name", [name for name in LIMITS if name in CHAT_FIELDS and name not in ("logprobs", "logit_bias")]
)
def test_numbers_stay_inside_the_one_table_of_limits(name: str) -> None:
    limit = LIMITS[name]
    others = {"max_tokens": MAX_TOKENS} if name == "min_tokens" else {}
    for value in (limit.minimum - 1, limit.maximum + 1 if limit.integer else limit.maximum * 2):
        error = refused(**{name: value})
        assert str(limit) in error.message
    call(**{name: limit.maximum}, **others)
    if limit.integer:
        refused(**{name: 1.5})
    else:
        refused(**{name: math.nan})
        refused(**{name: math.inf})


def test_biases_arrive_by_rising_id() -> None:
    asked = call(logit_bias={"50256": -100, "7": 1.5}).request.sampling
    assert asked.logit_bias == ((7, 1.5), (50256, -100))
    assert call(logit_bias={}).request.sampling.logit_bias == ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"7": 100.5}, "token 7: 100.5 is outside its limits, a number from -100 to 100"),
        ({"7": -101}, "token 7: -101 is outside its limits"),
        ({"7": "1"}, 'token 7: "1" is not a number'),
        ({"7": None}, "token 7: null is not a number"),
        ({"7": True}, "token 7: true is not a number"),
        ({"-1": 1}, '"-1" is no token id, a whole number from 0 to'),
        ({"07": 1}, '"07" is no token id'),
        ({"1e3": 1}, '"1e3" is no token id'),
        ({"٣": 1}, "is no token id"),
        ({"": 1}, '"" is no token id'),
        ({"9" * 5000: 1}, "is no token id"),
        ({str(MAX_TOKENS + 1): 1}, "2147483648 is outside its limits"),
        ({str(token_id): 0 for token_id in range(MAX_LOGIT_BIASES + 1)}, "1,025 tokens are more than the limit of"),
        ([7], "a list of 1 is not an object"),
    ],
)
def test_a_bias_that_is_none_is_refused_with_its_token(value: object, words: str) -> None:
    error = refused(logit_bias=value)
    assert error.name == "logit_bias"
    assert words in error.message


def test_breakers_arrive_or_are_refused() -> None:
    assert call().request.sampling.dry_sequence_breakers == ("\n", ":", '"', "*")
    assert call(dry_sequence_breakers=["a", "."]).request.sampling.dry_sequence_breakers == ("a", ".")
    assert call(dry_sequence_breakers=[]).request.sampling.dry_sequence_breakers == ()
    for value in ([""], ["x" * (MAX_BREAKER_CHARS + 1)], [7], [None], ["x"] * (MAX_BREAKERS + 1), "x", [LONE]):
        assert refused(dry_sequence_breakers=value).name == "dry_sequence_breakers"


@pytest.mark.parametrize("value", [[None], [-1], [1.5], ["7"], [True], [10**400], [0] * (MAX_STOP_TOKEN_IDS + 1), 7])
def test_ids_that_end_an_answer_must_be_ids(value: object) -> None:
    assert refused(stop_token_ids=value).name == "stop_token_ids"


def test_how_an_answer_ends_arrives() -> None:
    request = call(stop_token_ids=[9, 7], min_tokens=3, max_tokens=3, ignore_eos=True).request
    assert (request.stop_token_ids, request.min_tokens, request.ignore_eos) == ((9, 7), 3, True)
    request = call().request
    assert (request.stop_token_ids, request.min_tokens, request.ignore_eos) == ((), 0, False)


def test_an_answer_cannot_be_longer_at_least_than_at_most() -> None:
    assert refused(min_tokens=4, max_tokens=3).message == "min_tokens: 4 are more than the limit of max_tokens, 3"
    assert refused(min_tokens=4, max_completion_tokens=3).name == "min_tokens"


def test_an_unknown_field_is_refused_with_the_nearest_known_name() -> None:
    error = refused(max_token=5)
    assert error.name == "max_token"
    assert error.hint == "did you mean max_tokens?"
    assert refused(maxTokens=5).hint == "did you mean max_tokens?"
    assert refused(zzzzzz=5).hint == "leave it out"
    assert refused(messages=[USER | {"contents": "x"}]).name == "messages[0].contents"
    assert refused(stream=True, stream_options={"includ_usage": True}).hint == "did you mean include_usage?"
    assert len(refused(**{"x" * 100_000: 1}).message) < 200
    refused(**{LONE: 1})


@pytest.mark.parametrize(
    ("messages", "name"),
    [
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], "messages[0]"),
        ([USER, {"role": "user"}], "messages[1].content"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "assistant", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": LONE}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": "x", "name": "Minsu"}], "messages[0].name"),
        ([{"role": "assistant", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls"),
        ([USER] * (MAX_MESSAGES + 1), "messages"),
        ([{"role": "user", "content": "x" * (MAX_PROMPT_CHARS + 1)}], "messages"),
    ],
)
def test_messages_that_are_none_are_refused_with_their_place(messages: object, name: str) -> None:
    assert refused(messages=messages).name == name


def test_fields_that_contradict_each_other_are_refused() -> None:
    assert refused(max_tokens=1, max_completion_tokens=2).name == "max_completion_tokens"
    assert refused(top_logprobs=2).name == "top_logprobs"
    assert refused(logprobs=False, top_logprobs=2).name == "top_logprobs"
    assert refused(stream_options={"include_usage": True}).name == "stream_options"
    assert refused(stop=["x"] * (MAX_STOP_STRINGS + 1)).name == "stop"


@pytest.mark.parametrize("name", ["model", "messages"])
def test_model_and_messages_must_be_there(name: str) -> None:
    assert refused(**{name: None}).name == name


@pytest.mark.parametrize("body", [None, [], "x", 7, True])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(InvalidValue, match=r"body: .* is not an object"):
        chat_call(body, "m", "r", 0)


def test_another_model_is_unknown() -> None:
    with pytest.raises(UnknownModel) as caught:
        call(model="gpt-" + "x" * 10_000)
    reply = error_reply(caught.value, "r")
    assert (reply.status, reply.code, reply.param) == (404, "model_not_found", "model")
    assert len(reply.message) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*CHAT_FIELDS, *SAYING_NOTHING, "other"]), JSON, max_size=4))
def test_whatever_a_field_holds_a_request_is_understood_or_refused(fields: dict[str, object]) -> None:
    with contextlib.suppress(InvalidValue, UnknownModel):
        assert call(**fields).request.request_id == "r1"


def test_a_number_beyond_floating_point_is_outside_its_limits() -> None:
    for name in LIMITS:
        with pytest.raises(InvalidValue):
            check_number(name, 10**400)
        with pytest.raises(InvalidValue):
            check_number(name, math.nan)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": 1} x', "not JSON"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1, "a": 2}', "'a' is there twice"),
        (b'\xff{"a": 1}', "byte 0 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "byte 0 is not UTF-8"),
        ("\ufeff{}".encode(), "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b"1" * 5000, "too many digits"),
        (b"[" + b"1," * MAX_BODY_VALUES + b"1]", "more than the limit of 200,000 values"),
        (b'["a"' + b',""' * MAX_BODY_VALUES + b"]", "more than the limit of 200,000 values"),
    ],
)
def test_a_body_that_is_no_json_or_too_much_of_it_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(InvalidValue, match=words) as caught:
        parse_body(body)
    assert caught.value.name == "body"


def test_marks_inside_texts_do_not_count_as_values() -> None:
    text = ',:[{\\"' * MAX_BODY_VALUES + "\\"
    assert parse_body(json.dumps({"a": text, "b": [text]}).encode()) == {"a": text, "b": [text]}


@given(JSON.filter(lambda value: "nan" not in repr(value).lower() and "inf" not in repr(value).lower()))
def test_what_is_written_is_read_again_and_stands_on_one_line(value: object) -> None:
    written = json_bytes(value)
    assert len(written.decode().splitlines()) == 1
    assert parse_body(written) == value


def test_an_event_is_one_line_for_every_reader() -> None:
    sent = event({"text": "a\u2028b\x85c\r\nd 토마토" + LONE})
    assert sent.decode().splitlines() == [sent.decode().removesuffix("\n\n"), ""]
    assert "토마토" in sent.decode()
    assert json.loads(sent.removeprefix(b"data: "))["text"] == "a\u2028b\x85c\r\nd 토마토" + LONE


def spell(token_id: int) -> Spelling:
    """Three vocabulary entries: a word, half of a character, a control token."""
    contents = [Spelling("Ġyes", b" yes", False), Spelling("ê", b"\xea", False), Spelling("<e>", b"<e>", True)]
    return contents[token_id]


def choice(token_id: int, logprob: float = -0.5) -> TokenChoice:
    """A token that was chosen, and two that could have been."""
    return TokenChoice(token_id, logprob, 1, (Candidate(0, -0.5), Candidate(2, -math.inf)), DRAW)


def finish(reason: FinishReason, num_tokens: int, num_cached: int = 0) -> Finish:
    """An end."""
    return Finish(reason, "because", Usage(10, num_tokens, num_cached))


DELTAS = [
    Delta("", (choice(1),)),
    Delta(" yes", (choice(0),)),
    Delta(" no", (choice(0),), index=1),
    Delta("!", (choice(2),), finish=finish(FinishReason.LENGTH, 1, 10), index=1),
    Delta(".", (choice(2),), finish=finish(FinishReason.STOP, 3, 4)),
]


def test_a_whole_answer_has_the_shape_of_openai() -> None:
    answer = WholeAnswer(call(n=2, logprobs=True, top_logprobs=1), spell, HEAD)
    for delta in DELTAS:
        answer.take(delta)
    told: Any = json.loads(json_bytes(answer.complete([])))
    assert told["object"] == "chat.completion"
    assert (told["id"], told["created"], told["model"]) == ("chatcmpl-1", 1_700_000_000, "m")
    assert [each["index"] for each in told["choices"]] == [0, 1]
    assert [each["message"]["content"] for each in told["choices"]] == [" yes.", " no!"]
    assert [each["finish_reason"] for each in told["choices"]] == ["stop", "length"]
    assert told["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    tokens = told["choices"][0]["logprobs"]["content"]
    assert [token["bytes"] for token in tokens] == [[0xEA], list(b" yes"), None]
    assert [token["token"] for token in tokens] == ["\ufffd", " yes", "<e>"]
    assert tokens[0]["top_logprobs"] == [{"token": " yes", "bytes": list(b" yes"), "logprob": -0.5}]
    assert "cutaway" not in told


def test_an_impossible_token_has_the_logprob_that_openai_says() -> None:
    answer = WholeAnswer(call(logprobs=True, top_logprobs=2), spell, HEAD)
    answer.take(Delta("", (choice(0, -math.inf),), finish=finish(FinishReason.STOP, 1)))
    (token,) = answer.complete([])["choices"][0]["logprobs"]["content"]
    assert token["logprob"] == token["top_logprobs"][1]["logprob"] == -9999


def test_a_stream_begins_with_roles_and_gives_each_finish_once() -> None:
    asked = call(n=2, stream=True, stream_options={"include_usage": True})
    answer = StreamedAnswer(asked, spell, HEAD)
    chunks = answer.begin(DELTAS[0], ["a note"])
    assert [chunk["choices"][0]["delta"]["role"] for chunk in chunks] == ["assistant", "assistant"]
    assert chunks[0]["cutaway"] == {"notices": ["a note"]}
    assert "cutaway" not in chunks[1]
    rest = [chunk for delta in DELTAS for chunk in answer.take(delta)]
    last = answer.end()
    assert all(chunk["object"] == "chat.completion.chunk" and chunk["id"] == "chatcmpl-1" for chunk in rest)
    shown = [(chunk["choices"][0]["index"], chunk["choices"][0]["delta"].get("content")) for chunk in rest]
    assert shown == [(0, " yes"), (1, " no"), (1, "!"), (1, None), (0, "."), (0, None)]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in rest]
    assert reasons == [None, None, None, "length", None, "stop"]
    assert {chunk["usage"] for chunk in chunks + rest} == {None}
    assert [(chunk["choices"], chunk["usage"]["completion_tokens"]) for chunk in last] == [([], 4)]


def test_a_stream_without_options_has_no_usage_and_log_probabilities_for_every_token() -> None:
    answer = StreamedAnswer(call(n=2, stream=True, logprobs=True), spell, HEAD)
    chunks = [chunk for delta in DELTAS for chunk in answer.take(delta)]
    assert answer.end() == []
    assert not any("usage" in chunk for chunk in chunks)
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert sum(len(logprobs["content"]) for logprobs in told if logprobs is not None) == 5


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "param"),
    [
        (InvalidValue("n", "x"), 400, "invalid_request_error", "invalid_value", "n"),
        (UnknownModel("x"), 404, "invalid_request_error", "model_not_found", "model"),
        (ContextExceeded(9, 8), 400, "invalid_request_error", "context_length_exceeded", "messages"),
        (TemplateError("x"), 400, "invalid_request_error", "template", "messages"),
        (HttpError(413, "body_too_long", "x"), 413, "invalid_request_error", "body_too_long", None),
        (HttpError(503, "x", "x"), 503, "server_error", "x", None),
        (EngineStopped("x"), 503, "server_error", "engine_stopped", None),
        (Unfinished(finish(FinishReason.REJECTED, 0)), 503, "server_error", "overloaded", None),
        (Unfinished(finish(FinishReason.ABORTED, 0)), 503, "server_error", "aborted", None),
        (Unfinished(finish(FinishReason.FAILED, 0)), 500, "server_error", "generation", None),
        (GenerationError("x"), 500, "server_error", "generation", None),
        (OutOfMemory("x", 2, 1), 500, "server_error", "out_of_memory", None),
        (RuntimeError("a secret"), 500, "server_error", "internal_error", None),
    ],
)
def test_each_error_has_its_status_and_shape(
    error: Exception, status: int, kind: str, code: str, param: str | None
) -> None:
    reply = error_reply(error, "req_7")
    assert reply.status == status
    told = reply.body()["error"]
    assert (told["type"], told["code"], told["param"]) == (kind, code, param)
    assert told["message"]
    assert "secret" not in told["message"]


def test_a_hint_is_told_and_a_busy_server_says_when_to_come_again() -> None:
    assert (
        error_reply(InvalidValue("n", "too many", hint="take fewer"), "r").message == "n: too many (hint: take fewer)"
    )
    assert "retry-after" in error_reply(Unfinished(finish(FinishReason.REJECTED, 0)), "r").headers
