"""Anthropic's requests, replies and errors as plain values: every field, every refusal."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.api.anthropic import (
    HARMLESS,
    HARMLESS_IN_BLOCKS,
    MESSAGE_FIELDS,
    SAYING_NOTHING,
    MessageCall,
    counted_messages,
    message_call,
)
from cutaway.api.anthropic_error import error_reply
from cutaway.api.anthropic_reply import StreamedMessage, WholeMessage, model_object, model_page
from cutaway.api.failure import HttpError, Unfinished
from cutaway.api.json_text import json_bytes
from cutaway.api.sse import PING, typed_event
from cutaway.errors import (
    ContextExceeded,
    EngineStopped,
    GenerationError,
    InvalidValue,
    OutOfMemory,
    TemplateError,
    UnknownModel,
)
from cutaway.limits import MAX_MESSAGES, MAX_PROMPT_CHARS, MAX_STOP_STRINGS
from cutaway.types import Conversation, Delta, Finish, FinishReason, Message, Role, Usage

USER = {"role": "user", "content": "Is a tomato a fruit?"}
ANSWER = {"role": "assistant", "content": "Yes."}
LONE = "\ud83c"
BODY: dict[str, object] = {"model": "m", "max_tokens": 8, "messages": [USER]}


def call(**fields: object) -> MessageCall:
    """A request with one message and these fields."""
    return message_call(BODY | fields, "m", "msg_1", 42)


def refused(**fields: object) -> InvalidValue:
    """How a request with these fields is refused; the refusal is a 400 that a client can read."""
    with pytest.raises(InvalidValue) as caught:
        call(**fields)
    reply = error_reply(caught.value, "req_1")
    assert (reply.status, reply.type) == (400, "invalid_request_error")
    assert caught.value.name in reply.message
    assert len(json_bytes(reply.body())) < 1000
    return caught.value


def turns(*messages: object, **fields: object) -> tuple[Message, ...]:
    """The conversation of these messages."""
    return call(messages=list(messages), **fields).request.prompt.messages


def test_what_is_left_out_has_the_values_of_anthropic() -> None:
    asked = call()
    assert asked.request.prompt == Conversation((Message(Role.USER, "Is a tomato a fruit?"),))
    assert (asked.request.request_id, asked.request.n, asked.request.stop) == ("msg_1", 1, ())
    assert asked.request.sampling.temperature == asked.request.sampling.top_p == 1
    assert (asked.request.sampling.top_k, asked.request.sampling.seed) == (0, 42)
    assert asked.request.num_logprobs is None
    assert (asked.model, asked.stream) == ("m", False)


def test_each_field_arrives() -> None:
    assert call(temperature=0.5).request.sampling.temperature == 0.5
    assert call(top_p=0.9).request.sampling.top_p == 0.9
    assert call(top_k=40).request.sampling.top_k == 40
    assert call(max_tokens=7).request.max_tokens == call(max_tokens=7).max_tokens == 7
    assert call(stop_sequences=["a", "b"]).request.stop == ("a", "b")
    assert call(stop_sequences=[]).request.stop == ()
    assert call(stream=True).stream


def test_system_prompts_and_blocks() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    assert turns(USER | {"content": blocks}) == (Message(Role.USER, "a\nb"),)
    for system, expected in (("a\nb", "a\nb"), (blocks, "a\nb"), ([{"type": "text", "text": "c"}], "c")):
        assert turns(USER, system=system) == (Message(Role.SYSTEM, expected), Message(Role.USER, USER["content"]))
    for nothing in ("", [], None, [{"type": "text", "text": ""}]):
        assert turns(USER, system=nothing) == turns(USER)


def test_turns_of_the_same_role_are_merged() -> None:
    def says(role: str, text: str) -> dict[str, str]:
        return {"role": role, "content": text}

    told = turns(
        says("user", "a"), says("user", "b"), says("assistant", "c"), says("assistant", "d"), says("user", "e")
    )
    assert told == (Message(Role.USER, "a\nb"), Message(Role.ASSISTANT, "c\nd"), Message(Role.USER, "e"))
    told = turns(says("system", "b"), says("user", "c"), says("system", "d"), says("user", "e"), system="a")
    roles = [Role.SYSTEM, Role.USER, Role.SYSTEM, Role.USER]
    assert told == tuple(Message(role, text) for role, text in zip(roles, ("a\nb", "c", "d", "e"), strict=True))


def test_an_answer_is_taken_back_as_it_came() -> None:
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Yes.", "citations": None}]}
    assert turns(USER, answer, USER) == turns(USER, ANSWER, USER)
    answer = {"role": "assistant", "content": [{"type": "text", "text": "", "citations": []}]}
    assert turns(USER, answer, USER)[1] == Message(Role.ASSISTANT, "")


def test_the_beginning_of_an_answer_is_refused() -> None:
    for messages in ([USER, ANSWER], [ANSWER], [USER, ANSWER, ANSWER | {"content": ""}]):
        assert "cannot be continued" in refused(messages=messages).message
        with pytest.raises(InvalidValue, match="cannot be continued"):
            counted_messages(BODY | {"messages": messages}, "m")


@pytest.mark.parametrize("name", sorted(MESSAGE_FIELDS.keys() - {"model", "messages", "max_tokens"}))
def test_null_is_the_same_as_leaving_out(name: str) -> None:
    assert call(**{name: None}) == call()


@pytest.mark.parametrize("name", ["model", "messages", "max_tokens"])
def test_what_must_be_there(name: str) -> None:
    assert refused(**{name: None}).message == f"{name}: it is missing"


@pytest.mark.parametrize("name", sorted(SAYING_NOTHING))
def test_known_fields_that_say_nothing_are_accepted_and_others_refused(name: str) -> None:
    assert call(**{name: None}) == call()
    for value in SAYING_NOTHING[name]:
        assert call(**{name: value}) == call()
    assert refused(**{name: {"type": "enabled"}}).name == name


def test_harmless_fields_change_nothing_but_must_be_of_their_kind() -> None:
    values: dict[str, object] = {"metadata": {"user_id": "a"}, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert call(**{name: values.get(name, "x") for name in HARMLESS}) == call()
    for name in HARMLESS:
        assert refused(**{name: 7}).name == name
    for name in HARMLESS_IN_BLOCKS:
        block = {"type": "text", "text": "a", name: "x"}
        assert refused(messages=[USER | {"content": [block]}]).name == f"messages[0].content[0].{name}"
        assert refused(system=[block]).name == f"system[0].{name}"


@pytest.mark.parametrize("name", [name for name in MESSAGE_FIELDS if name not in HARMLESS])
@pytest.mark.parametrize("value", [[7], {"a": 1}, "text", True, 10**400, 1e300, -1e300, LONE, [LONE], [[]], ""])
def test_what_is_of_the_wrong_kind_or_size_is_refused_with_the_name_of_the_field(name: str, value: object) -> None:
    fits = {("model", "text"), ("model", ""), ("system", "text"), ("system", ""), ("stream", True)}
    if not isinstance(value, list | dict) and (name, value) in fits:
        return
    assert refused(**{name: value}).name.startswith(name)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("temperature", 1.5, "temperature: 1.5 is outside its limits, a number from 0 to 1"),
        ("temperature", -0.1, "a number from 0 to 1"),
        ("max_tokens", 0, "max_tokens: 0 is outside its limits, a whole number from 1 to"),
        ("top_p", 0, "a number above 0 and up to 1"),
        ("top_k", -1, "a whole number from 0"),
        ("stop_sequences", "end", 'stop_sequences: "end" is not a list of texts'),
        ("stop_sequences", [""], "stop_sequences: a stop string of 0 characters is outside its limits"),
        ("stop_sequences", ["x"] * (MAX_STOP_STRINGS + 1), "stop_sequences: 17 stop strings are more than the limit"),
    ],
)
def test_values_stay_inside_their_limits(name: str, value: object, words: str) -> None:
    error = refused(**{name: value})
    assert words in error.message
    assert "leave it out" not in error.hint


def test_an_unknown_field_is_refused_with_the_nearest_known_name() -> None:
    assert refused(max_token=5).hint == "did you mean max_tokens?"
    assert refused(stop=["x"]).name == "stop"
    assert refused(stop_sequence=["x"]).hint == "did you mean stop_sequences?"
    assert refused(messages=[USER | {"contents": "x"}]).hint == "did you mean content?"
    assert refused(system=[{"type": "text", "text": "a", "cache_controll": {}}]).hint == "did you mean cache_control?"
    assert refused(zzzzzz=5).hint == "leave it out"
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
        ([{"role": "developer", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": LONE}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x", "citations": [{}]}]}],
            "messages[0].content[0].citations",
        ),
        ([USER] * (MAX_MESSAGES + 1), "messages"),
        ([{"role": "user", "content": "x" * (MAX_PROMPT_CHARS + 1)}], "messages"),
    ],
)
def test_messages_that_are_none_are_refused_with_their_place(messages: object, name: str) -> None:
    assert refused(messages=messages).name == name


@pytest.mark.parametrize(
    "kind", ["image", "document", "tool_use", "tool_result", "thinking", "search_result", "x" * 999]
)
def test_blocks_of_another_kind_are_refused_with_their_name(kind: str) -> None:
    error = refused(messages=[USER, USER | {"content": [{"type": "text", "text": "a"}, {"type": kind, "source": {}}]}])
    assert error.name == "messages[1].content[1].type"
    assert f'"{kind[:60]}' in error.message
    assert "only text" in error.message
    assert refused(system=[{"type": kind}]).name == "system[0].type"


def test_another_model_is_unknown() -> None:
    for read in (lambda body: message_call(body, "m", "msg_1", 0), lambda body: counted_messages(body, "m")):
        with pytest.raises(UnknownModel) as caught:
            read(BODY | {"model": "claude-" + "x" * 10_000})
        reply = error_reply(caught.value, "req_1")
        assert (reply.status, reply.type) == (404, "not_found_error")
        assert len(reply.message) < 300


def test_what_is_counted_is_the_conversation_of_the_message() -> None:
    fields = {"system": "be brief", "messages": [USER, USER, ANSWER, USER], "temperature": 0.5, "stream": True}
    expected = call(**fields).request.prompt
    body = BODY | fields
    del body["max_tokens"]
    assert counted_messages(body, "m") == expected
    assert counted_messages(BODY | fields, "m") == expected
    for wrong in ({"max_token": 5}, {"tools": [{}]}, {"messages": []}):
        with pytest.raises(InvalidValue):
            counted_messages(BODY | wrong, "m")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*MESSAGE_FIELDS, *SAYING_NOTHING, "other"]), JSON, max_size=4))
def test_whatever_a_field_holds_a_request_is_understood_or_refused(fields: dict[str, object]) -> None:
    with contextlib.suppress(InvalidValue, UnknownModel):
        assert call(**fields).request.request_id == "msg_1"


@pytest.mark.parametrize("body", [None, [], "x", 7, True])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(InvalidValue, match=r"body: .* is not an object"):
        message_call(body, "m", "msg_1", 0)


def deltas(reason: FinishReason, num_tokens: int, stop: str | None = None, rest: str = ".") -> list[Delta]:
    """An answer; the last delta has the text that was held back."""
    finish = Finish(reason, "because", Usage(10, num_tokens, 4), stop)
    return [Delta("", usage=Usage(10, 1, 4)), Delta(" yes"), Delta(""), Delta(rest, finish=finish)]


def whole(asked: MessageCall, told: list[Delta], *notices: str) -> Any:
    """The object of an answer."""
    reply = WholeMessage(asked)
    for delta in told:
        reply.take(delta)
    return json.loads(json_bytes(reply.complete(notices)))


def streamed(asked: MessageCall, told: list[Delta], *notices: str) -> list[Any]:
    """The values of the events of an answer."""
    reply = StreamedMessage(asked)
    values = reply.begin(told[0], notices)
    for delta in told:
        values += reply.take(delta)
    return [json.loads(json_bytes(value)) for value in [*values, *reply.end()]]


ENDS = [
    (FinishReason.STOP, 3, None, "end_turn"),
    (FinishReason.STOP, 8, None, "end_turn"),
    (FinishReason.STOP, 3, "END", "stop_sequence"),
    (FinishReason.LENGTH, 8, None, "max_tokens"),
    (FinishReason.LENGTH, 7, None, "model_context_window_exceeded"),
]
USAGE = {"input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4}


@pytest.mark.parametrize(("reason", "num_tokens", "stop", "stop_reason"), ENDS)
def test_a_whole_answer_has_the_shape_of_anthropic(
    reason: FinishReason, num_tokens: int, stop: str | None, stop_reason: str
) -> None:
    assert whole(call(), deltas(reason, num_tokens, stop)) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": " yes."}],
        "stop_reason": stop_reason,
        "stop_sequence": stop,
        "usage": USAGE | {"output_tokens": num_tokens},
    }


@pytest.mark.parametrize(("reason", "num_tokens", "stop", "stop_reason"), ENDS)
def test_a_stream_has_the_events_of_anthropic_and_one_stop_reason(
    reason: FinishReason, num_tokens: int, stop: str | None, stop_reason: str
) -> None:
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    start |= {"stop_reason": None, "stop_sequence": None, "usage": USAGE | {"output_tokens": 1}}
    assert streamed(call(stream=True), deltas(reason, num_tokens, stop)) == [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " yes"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "."}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": stop},
            "usage": USAGE | {"output_tokens": num_tokens},
        },
        {"type": "message_stop"},
    ]


def test_an_answer_without_text_is_a_block_without_text() -> None:
    told = [Delta("", usage=Usage(10, 1)), Delta("", finish=Finish(FinishReason.STOP, "because", Usage(10, 1)))]
    assert whole(call(), told)["content"] == [{"type": "text", "text": ""}]
    kinds = [value["type"] for value in streamed(call(), told)]
    assert kinds == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_what_was_changed_about_a_request_is_told_once() -> None:
    told = deltas(FinishReason.STOP, 3)
    assert whole(call(), told, "a note")["cutaway"] == {"notices": ["a note"]}
    first, *others = streamed(call(), told, "a note")
    assert first["message"]["cutaway"] == {"notices": ["a note"]}
    assert "cutaway" not in str(others)


def test_an_event_has_the_name_of_its_type() -> None:
    assert PING == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert typed_event({"type": "x", "text": "a\u2028b\n"}).decode().splitlines()[0] == "event: x"
    assert len(typed_event({"type": "x", "text": "a\u2028b\n"}).decode().splitlines()) == 3


def test_models_have_the_shape_of_anthropic() -> None:
    model = model_object("m", 1_700_000_000, 2048)
    assert (model["type"], model["id"], model["display_name"], model["max_input_tokens"]) == ("model", "m", "m", 2048)
    assert model["created_at"] == "2023-11-14T22:13:20Z"
    assert model_page(model, None, None) == {"data": [model], "has_more": False, "first_id": "m", "last_id": "m"}
    for before_id, after_id in (("m", None), (None, "m")):
        page = model_page(model, before_id, after_id)
        assert page == {"data": [], "has_more": False, "first_id": None, "last_id": None}
        with pytest.raises(InvalidValue, match="there is no model 'other'"):
            model_page(model, before_id and "other", after_id and "other")


def unfinished(reason: FinishReason) -> Unfinished:
    return Unfinished(Finish(reason, "because", Usage(10, 0)))


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidValue("n", "x"), 400, "invalid_request_error"),
        (UnknownModel("x"), 404, "not_found_error"),
        (ContextExceeded(9, 8), 400, "invalid_request_error"),
        (TemplateError("x"), 400, "invalid_request_error"),
        (HttpError(404, "unknown_url", "x"), 404, "not_found_error"),
        (HttpError(405, "method_not_allowed", "x"), 405, "invalid_request_error"),
        (HttpError(413, "body_too_long", "x"), 413, "request_too_large"),
        (HttpError(415, "unsupported_content_type", "x"), 415, "invalid_request_error"),
        (HttpError(503, "x", "x"), 503, "api_error"),
        (EngineStopped("x"), 503, "api_error"),
        (unfinished(FinishReason.REJECTED), 529, "overloaded_error"),
        (unfinished(FinishReason.ABORTED), 503, "api_error"),
        (unfinished(FinishReason.FAILED), 500, "api_error"),
        (GenerationError("x"), 500, "api_error"),
        (OutOfMemory("x", 2, 1), 500, "api_error"),
        (RuntimeError("a secret"), 500, "api_error"),
    ],
)
def test_each_error_has_its_status_and_shape(error: Exception, status: int, kind: str) -> None:
    reply = error_reply(error, "req_7")
    told = reply.body()
    assert reply.status == status
    assert told == {"type": "error", "error": {"type": kind, "message": reply.message}, "request_id": "req_7"}
    assert reply.message
    assert "secret" not in reply.message


def test_a_hint_is_told_and_a_busy_server_says_when_to_come_again() -> None:
    assert error_reply(InvalidValue("n", "no", hint="take fewer"), "r").message == "n: no (hint: take fewer)"
    assert error_reply(unfinished(FinishReason.REJECTED), "r").headers == {"retry-after": "1"}
