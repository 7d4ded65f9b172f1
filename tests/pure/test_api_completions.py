"""Completions, tokens and rendered prompts as plain values: every field, every refusal, every shape."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.api.batch import submit_all
from cutaway.api.completion_call import COMPLETION_FIELDS, NOT_SUPPORTED, CompletionCall, completion_call
from cutaway.api.completion_reply import ChoiceLogprobs, StreamedCompletion, WholeCompletion
from cutaway.api.json_text import json_bytes
from cutaway.api.openai_error import error_reply
from cutaway.api.openai_reply import Head
from cutaway.api.openai_sampling import SAMPLING_FIELDS
from cutaway.api.render import render_requests, rendered_prompt
from cutaway.api.tokenize import detokenize_call, tokenize_call, tokenize_reply
from cutaway.errors import InvalidValue, UnknownModel
from cutaway.glass.receipt import PromptFacts, Spelling
from cutaway.limits import LIMITS, MAX_ANSWERS, MAX_PROMPT_TOKENS, MAX_PROMPTS, MAX_SEED
from cutaway.types import (
    LISTED_SETTINGS,
    Candidate,
    Conversation,
    Delta,
    Draw,
    Finish,
    FinishReason,
    GenerationRequest,
    Message,
    Role,
    TextPrompt,
    TokenChoice,
    TokenPrompt,
    Usage,
)

LONE = "\ud83c"
HEAD = Head("cmpl-1", 1_700_000_000, "m", "fp_1")
DRAW = Draw(None, 0.0, 1.0, 1.0)


def call(**fields: object) -> CompletionCall:
    """A request with one prompt and these fields."""
    return completion_call({"model": "m", "prompt": "Once"} | fields, "m", "r1", 42)


def refused(read: Any, *args: object, **fields: object) -> InvalidValue:
    """How something is refused; the refusal is a 400 that a client can read."""
    with pytest.raises(InvalidValue) as caught:
        read(*args, **fields)
    reply = error_reply(caught.value, "r1")
    assert (reply.status, reply.type, reply.param) == (400, "invalid_request_error", caught.value.name)
    assert len(json_bytes(reply.body())) < 1000
    return caught.value


def prompts(value: object) -> list[TextPrompt | TokenPrompt]:
    """What a prompt is understood as."""
    found = [request.prompt for request in call(prompt=value).requests]
    assert all(isinstance(prompt, TextPrompt | TokenPrompt) for prompt in found)
    return found  # type: ignore[return-value]


# Requests -------------------------------------------------------------------------------------------------------------


def test_what_is_left_out_has_the_values_of_openai() -> None:
    asked = call()
    (request,) = asked.requests
    assert (request.request_id, request.n, request.max_tokens, request.stop) == ("r1-0", 1, 16, ())
    assert request.sampling.temperature == request.sampling.top_p == 1
    assert request.sampling.seed == 42
    assert (asked.num_top, asked.echo, asked.stream, asked.include_usage) == (None, False, False, False)


@pytest.mark.parametrize(
    ("value", "understood"),
    [
        ("Once", [TextPrompt("Once")]),
        ("", [TextPrompt("")]),
        (["Once"], [TextPrompt("Once", origin="prompt[0]")]),
        (["a", "토마토 🍅"], [TextPrompt("a", origin="prompt[0]"), TextPrompt("토마토 🍅", origin="prompt[1]")]),
        ([5, 6], [TokenPrompt((5, 6))]),
        ([[5, 6], [7]], [TokenPrompt((5, 6), "prompt[0]"), TokenPrompt((7,), "prompt[1]")]),
    ],
)
def test_a_prompt_is_a_text_or_tokens_or_a_list_of_either(value: object, understood: list[object]) -> None:
    assert prompts(value) == understood


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "prompt"),
        (7, "prompt"),
        (True, "prompt"),
        ({}, "prompt"),
        ([], "prompt"),
        ([[]], "prompt[0]"),
        ([None], "prompt[0]"),
        ([True, 1], "prompt[0]"),
        ([1.5], "prompt[0]"),
        (["a", 1], "prompt[1]"),
        (["a", ["b"]], "prompt[1]"),
        ([1, "a"], "prompt[1]"),
        ([1, True], "prompt[1]"),
        ([1, -1], "prompt[1]"),
        ([1, 2.0], "prompt[1]"),
        ([1, [2]], "prompt[1]"),
        ([[1], "a"], "prompt[1]"),
        ([[1], [2, None]], "prompt[1][1]"),
        ([[1], [[2]]], "prompt[1][0]"),
        (LONE, "prompt"),
        (["a", LONE], "prompt[1]"),
        (["a"] * (MAX_PROMPTS + 1), "prompt"),
        ([1] * (MAX_PROMPT_TOKENS + 1), "prompt"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_prompt_that_is_none_is_refused_with_its_place(value: object, name: str) -> None:
    assert refused(call, prompt=value).name == name


def test_each_prompt_becomes_the_request_that_it_would_be_alone() -> None:
    many = call(prompt=["a", "b"], seed=7, n=3, stop="x", max_tokens=5).requests
    assert [request.request_id for request in many] == ["r1-0", "r1-1"]
    for request, text in zip(many, "ab", strict=True):
        (alone,) = call(prompt=text, seed=7, n=3, stop="x", max_tokens=5).requests
        assert replace(request, request_id="", prompt=alone.prompt) == replace(alone, request_id="")


def test_without_a_seed_no_two_answers_have_the_same() -> None:
    seeds = [request.sampling.seed + copy for request in call(prompt=["a"] * 4, n=3).requests for copy in range(3)]
    assert seeds == list(range(42, 54))
    late = completion_call({"model": "m", "prompt": ["a"] * 4}, "m", "r", MAX_SEED - 1).requests
    assert [request.sampling.seed for request in late] == [MAX_SEED - 1, MAX_SEED, 0, 1]


@pytest.mark.parametrize("name", sorted((SAMPLING_FIELDS.keys() & LIMITS.keys()) - set(LISTED_SETTINGS)))
def test_each_setting_of_the_sampler_arrives_and_has_its_limits(name: str) -> None:
    limit = LIMITS[name]
    (request,) = call(**{name: limit.maximum}).requests
    assert getattr(request.sampling, name) == limit.maximum
    error = refused(call, **{name: limit.maximum + 1 if limit.integer else limit.maximum * 2})
    assert str(limit) in error.message


def test_the_other_fields_arrive() -> None:
    (request,) = call(stop=["a", "b"], max_tokens=5, n=3, logprobs=4).requests
    assert (request.stop, request.max_tokens, request.n, request.num_logprobs) == (("a", "b"), 5, 3, 4)
    (request,) = call(stop_token_ids=[7], min_tokens=2, ignore_eos=True, logit_bias={"5": -1}).requests
    assert (request.stop_token_ids, request.min_tokens, request.ignore_eos) == ((7,), 2, True)
    assert request.sampling.logit_bias == ((5, -1.0),)
    assert call(logprobs=0).num_top == 0
    assert call(n=3, best_of=3).requests[0].n == 3
    assert call(best_of=1) == call()
    assert call(echo=True).echo
    assert call(stream=True, stream_options={"include_usage": True}).include_usage
    assert call(user="somebody") == call()
    assert call(add_special_tokens=False).requests[0].prompt == TextPrompt("Once", add_special_tokens=False)


@pytest.mark.parametrize("name", sorted(COMPLETION_FIELDS.keys() - {"model", "prompt"}))
def test_null_is_the_same_as_leaving_out(name: str) -> None:
    assert call(**{name: None}) == call()


@pytest.mark.parametrize("name", sorted(NOT_SUPPORTED))
def test_known_fields_that_say_nothing_are_accepted_and_others_refused(name: str) -> None:
    for value in (None, *NOT_SUPPORTED[name]):
        assert call(**{name: value}) == call()
    assert refused(call, **{name: "x"}).name == name


@pytest.mark.parametrize("name", sorted(COMPLETION_FIELDS.keys() - {"prompt"}))
@pytest.mark.parametrize("value", [[{}], {"a": 1}, 10**400, 1e300, -1e300, LONE, [LONE], [[]]])
def test_what_is_of_the_wrong_kind_or_size_is_refused_with_the_name_of_the_field(name: str, value: object) -> None:
    assert refused(call, **{name: value}).name.startswith(name)


@pytest.mark.parametrize(
    ("fields", "name", "words"),
    [
        ({"logprobs": 6}, "logprobs", "from 0 to 5"),
        ({"logprobs": -1}, "logprobs", "from 0 to 5"),
        ({"logprobs": True}, "logprobs", "from 0 to 5"),
        ({"max_tokens": 0}, "max_tokens", "from 1 to"),
        ({"echo": True, "logprobs": 0}, "echo", "the tokens of a prompt have no log-probabilities here"),
        ({"suffix": "x"}, "suffix", "not supported"),
        ({"best_of": 2}, "best_of", "2 is not n, which is 1"),
        ({"best_of": 2, "n": 3}, "best_of", "2 is not n, which is 3"),
        ({"n": 3, "prompt": ["a"] * 400}, "n", "3 answers to each of 400 prompts are more than 1,024"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "for streams only"),
        ({"stream": True, "stream_options": {"includ_usage": True}}, "stream_options.includ_usage", "not known"),
        ({"prompt": [1], "add_special_tokens": True}, "add_special_tokens", "nothing is ever added to tokens"),
        ({"messages": []}, "messages", "this field is not known"),
        ({"prompts": "x"}, "prompts", "this field is not known"),
    ],
)
def test_what_contradicts_itself_or_is_not_there_is_refused(fields: dict[str, Any], name: str, words: str) -> None:
    error = refused(call, **fields)
    assert error.name == name
    assert words in error.message


def test_the_nearest_name_is_told_and_the_limit_of_answers_can_be_reached() -> None:
    assert refused(call, prompts="x").hint == "did you mean prompt?"
    assert len(call(prompt=["a"] * (MAX_ANSWERS // 128), n=128).requests) == MAX_ANSWERS // 128


@pytest.mark.parametrize("name", ["model", "prompt"])
def test_model_and_prompt_must_be_there(name: str) -> None:
    assert refused(call, **{name: None}).name == name


def test_another_model_is_unknown_everywhere() -> None:
    for read in (
        call,
        lambda **fields: tokenize_call({"prompt": "x"} | fields, "m"),
        lambda **fields: detokenize_call({"tokens": [1]} | fields, "m"),
        lambda **fields: render_requests({"prompt": "x"} | fields, "m"),
    ):
        with pytest.raises(UnknownModel):
            read(model="gpt-" + "x" * 10_000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*COMPLETION_FIELDS, *NOT_SUPPORTED, "tokens", "messages"]), JSON, max_size=4))
def test_whatever_a_field_holds_a_request_is_understood_or_refused(fields: dict[str, object]) -> None:
    for read in (completion_call, lambda body, model, *_: tokenize_call(body, model)):
        for body in (fields, {"model": "m", "prompt": "x"} | fields):
            with contextlib.suppress(InvalidValue, UnknownModel):
                read(body, "m", "r", 0)
    for detokenize in (fields, {"tokens": fields.get("tokens", 1)}, fields.get("tokens")):
        with contextlib.suppress(InvalidValue, UnknownModel):
            detokenize_call(detokenize, "m")


# Replies --------------------------------------------------------------------------------------------------------------

SPELLINGS = [
    Spelling("Ġyes", b" yes", False),
    Spelling("<0xEA>", b"\xea\xb0", False),
    Spelling("<0x80>", b"\x80", False),
    Spelling("<e>", b"<e>", True),
    Spelling("<0x20>yes", b" yes", False),
    Spelling("▁", b" ", False),
]
END = 3


def choice(token_id: int, logprob: float = -0.5, *top: tuple[int, float]) -> TokenChoice:
    """A token that was chosen, and others that could have been."""
    return TokenChoice(token_id, logprob, 1, tuple(Candidate(*other) for other in top), DRAW)


def finish(reason: FinishReason, num_tokens: int, num_prompt: int = 10, num_cached: int = 0) -> Finish:
    """An end."""
    return Finish(reason, "because", Usage(num_prompt, num_tokens, num_cached))


DELTAS = [
    Delta("", index=0),
    Delta(" yes", (choice(0),), index=2),
    Delta(" no", (choice(0),), index=0),
    Delta("", (choice(END),), index=0),
    Delta("", finish=finish(FinishReason.STOP, 2, 10, 4), index=0),
    Delta("!", (choice(0),), finish=finish(FinishReason.LENGTH, 1, 10, 10), index=1),
    Delta(".", finish=finish(FinishReason.LENGTH, 1, 7, 3), index=2),
    Delta("?", (choice(0),), finish=finish(FinishReason.STOP, 1, 7, 7), index=3),
]
USAGE = {
    "prompt_tokens": 17,
    "completion_tokens": 5,
    "total_tokens": 22,
    "prompt_tokens_details": {"cached_tokens": 7},
}


def whole(
    asked: CompletionCall, deltas: list[Delta], echoes: tuple[str, ...] = (), notices: tuple[str, ...] = ()
) -> Any:
    answer = WholeCompletion(asked, SPELLINGS.__getitem__, HEAD, echoes)
    for delta in deltas:
        answer.take(delta)
    return json.loads(json_bytes(answer.complete(notices)))


def streamed(
    asked: CompletionCall, deltas: list[Delta], echoes: tuple[str, ...] = (), notices: tuple[str, ...] = ()
) -> list[Any]:
    answer = StreamedCompletion(asked, SPELLINGS.__getitem__, HEAD, echoes)
    chunks = [*answer.begin(deltas[0], notices), *(chunk for delta in deltas for chunk in answer.take(delta))]
    return [*chunks, *answer.end()]


def test_a_whole_answer_has_the_shape_of_openai() -> None:
    told = whole(call(prompt=["a", "b"], n=2), DELTAS)
    assert (told["id"], told["object"], told["created"], told["model"]) == (
        "cmpl-1",
        "text_completion",
        1_700_000_000,
        "m",
    )
    assert told["choices"] == [
        {"index": 0, "text": " no", "logprobs": None, "finish_reason": "stop"},
        {"index": 1, "text": "!", "logprobs": None, "finish_reason": "length"},
        {"index": 2, "text": " yes.", "logprobs": None, "finish_reason": "length"},
        {"index": 3, "text": "?", "logprobs": None, "finish_reason": "stop"},
    ]
    assert told["usage"] == USAGE
    assert "cutaway" not in told
    assert whole(call(prompt=["a", "b"], n=2), DELTAS, notices=("a note",))["cutaway"] == {"notices": ["a note"]}


def test_a_stream_joined_is_the_whole_answer_and_gives_each_finish_once() -> None:
    asked = call(prompt=["a", "b"], n=2, echo=True, stream=True, stream_options={"include_usage": True})
    *chunks, last = streamed(asked, DELTAS, ("a", "b"), ("a note",))
    assert all(chunk["object"] == "text_completion" and chunk["id"] == "cmpl-1" for chunk in chunks)
    assert [len(chunk["choices"]) for chunk in chunks] == [1] * len(chunks)
    assert chunks[0]["cutaway"] == {"notices": ["a note"]}
    assert not any("cutaway" in chunk for chunk in chunks[1:])
    for expected in whole(asked, DELTAS, ("a", "b"))["choices"]:
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == expected["index"]]
        assert "".join(each["text"] for each in own) == expected["text"]
        assert own[0]["text"] == "aabb"[expected["index"]]
        assert [each["finish_reason"] for each in own] == [None] * (len(own) - 1) + [expected["finish_reason"]]
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert (last["choices"], last["usage"]) == ([], USAGE)


def test_without_echo_nothing_comes_before_the_first_text_and_it_has_the_notices() -> None:
    chunks = streamed(call(prompt=["a", "b"], n=2, stream=True), DELTAS, notices=("a note",))
    assert chunks[0]["choices"] == [{"index": 2, "text": " yes", "logprobs": None, "finish_reason": None}]
    assert [chunk.get("cutaway") for chunk in chunks] == [{"notices": ["a note"]}] + [None] * (len(chunks) - 1)
    assert not any("usage" in chunk for chunk in chunks)


HALVES = [
    Delta(" yes", (choice(0, -0.25, (0, -0.25), (4, -1.0), (END, -math.inf)),)),
    Delta("", (choice(1),)),
    Delta("가", (choice(2),)),
    Delta("", (choice(5),)),  # held back, since it may begin a stop string
    Delta(" ", (choice(END, -0.5, (0, -0.125)),), finish=finish(FinishReason.STOP, 5)),
]


def test_log_probabilities_have_the_old_shape() -> None:
    (told,) = whole(call(logprobs=2), [replace(HALVES[0], text=" yes"), HALVES[-1]])["choices"]
    assert told["logprobs"] == {
        "tokens": [" yes", "<e>"],
        "token_logprobs": [-0.25, -0.5],
        "top_logprobs": [{" yes": -0.25, "token_id:4": -1.0}, {"<e>": -0.5, " yes": -0.125}],
        "text_offset": [0, 4],
    }
    assert whole(call(logprobs=0), HALVES)["choices"][0]["logprobs"]["top_logprobs"][0] == {" yes": -0.25}
    three = whole(call(logprobs=3), HALVES)["choices"][0]["logprobs"]["top_logprobs"][0]
    assert three == {" yes": -0.25, "token_id:4": -1.0, "<e>": -9999}


def test_a_token_begins_where_its_character_does_and_half_a_character_is_told_by_its_bytes() -> None:
    (told,) = whole(call(logprobs=0), HALVES)["choices"]
    assert told["text"] == " yes가 "
    assert told["logprobs"]["tokens"] == [" yes", "bytes:\\xea\\xb0", "bytes:\\x80", " ", "<e>"]
    assert told["logprobs"]["text_offset"] == [0, 4, 4, 5, 6]


def test_in_a_stream_tokens_come_with_the_text_that_they_complete() -> None:
    chunks = [chunk["choices"][0] for chunk in streamed(call(logprobs=0, stream=True), HALVES)]
    assert [(each["text"], each["logprobs"]["text_offset"]) for each in chunks] == [
        (" yes", [0]),
        ("가", [4, 4]),
        (" ", [5, 6]),
    ]


def test_a_space_that_the_engine_dropped_shifts_what_follows() -> None:
    logprobs = ChoiceLogprobs(SPELLINGS.__getitem__, 0)
    told = [logprobs.take(Delta("yes", (choice(0),))), logprobs.take(Delta(" yes", (choice(0), choice(0))))]
    assert [each and each["text_offset"] for each in told] == [[0], [3, 7]]


# Several requests as one stream ---------------------------------------------------------------------------------------


class Script:
    """An engine that says what it was told to, one delta at a time."""

    def __init__(self, deltas: dict[str, list[Delta | Exception]]) -> None:
        self.deltas = deltas
        self.closed: list[str] = []

    async def submit(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        try:
            for delta in self.deltas[request.request_id]:
                if isinstance(delta, Exception):
                    raise delta
                yield delta
                await asyncio.sleep(0)
            await asyncio.sleep(60)
        finally:
            self.closed.append(request.request_id)


def requests(*copies: int) -> list[GenerationRequest]:
    return [GenerationRequest(f"r{place}", TextPrompt("x"), n=n) for place, n in enumerate(copies)]


def collect(engine: Script, asked: list[GenerationRequest]) -> list[Delta]:
    async def play() -> list[Delta]:
        deltas = [delta async for delta in submit_all(engine, asked)]  # type: ignore[arg-type]
        assert len(asyncio.all_tasks()) == 1
        return deltas

    return asyncio.run(play())


def ending(text: str, index: int = 0) -> Delta:
    return Delta(text, finish=finish(FinishReason.STOP, 1), index=index)


def test_copies_of_all_requests_are_counted_through() -> None:
    script = {
        "r0": [Delta("", notices=("first",)), Delta("a"), ending("b", 1), ending("c")],
        "r1": [Delta(""), ending("d")],
        "r2": [ending("e"), Delta("f", index=1), ending("g", 1)],
    }
    engine = Script(script)  # type: ignore[arg-type]
    deltas = collect(engine, requests(2, 1, 2))
    assert deltas[0] == Delta("", notices=("prompt[0]: first",))
    texts = {index: "".join(delta.text for delta in deltas if delta.index == index) for index in range(5)}
    assert texts == {0: "ac", 1: "b", 2: "d", 3: "e", 4: "fg"}
    assert sorted(engine.closed) == ["r0", "r1", "r2"]


def test_one_request_is_passed_on_as_it_is() -> None:
    deltas = [Delta("", notices=("a note",)), Delta("a", (choice(0),)), ending("b")]
    assert collect(Script({"r0": [*deltas]}), requests(1)) == deltas


def test_a_request_that_cannot_be_run_keeps_all_from_being_answered() -> None:
    engine = Script({"r0": [Delta(""), ending("a")], "r1": [InvalidValue("prompt[1]", "bad")]})
    seen = []

    async def play() -> None:
        async for delta in submit_all(engine, requests(1, 1)):  # type: ignore[arg-type]
            seen.append(delta)

    with pytest.raises(InvalidValue):
        asyncio.run(play())
    assert seen == []
    assert sorted(engine.closed) == ["r0", "r1"]


def test_a_failure_of_one_ends_all() -> None:
    engine = Script({"r0": [Delta(""), Delta("a")], "r1": [Delta(""), Delta("b"), RuntimeError("broken")]})
    with pytest.raises(RuntimeError, match="broken"):
        collect(engine, requests(1, 1))
    assert sorted(engine.closed) == ["r0", "r1"]


@pytest.mark.parametrize("num_read", range(1, 5))
def test_leaving_the_iteration_closes_all(num_read: int) -> None:
    engine = Script({f"r{place}": [Delta(""), Delta("a"), Delta("b")] for place in range(3)})

    async def play() -> None:
        async with contextlib.aclosing(submit_all(engine, requests(1, 1, 1))) as deltas:  # type: ignore[arg-type]
            for _ in range(num_read):
                await anext(deltas)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(play())
    assert sorted(engine.closed) == ["r0", "r1", "r2"]


# Tokens and rendered prompts ------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "hi"}


def test_tokens_are_asked_for_a_text_or_for_messages() -> None:
    assert tokenize_call({"prompt": "x"}, "m").prompt == TextPrompt("x")
    asked = tokenize_call({"model": "m", "prompt": "x", "add_special_tokens": False, "return_token_strs": True}, "m")
    assert (asked.prompt, asked.with_pieces) == (TextPrompt("x", add_special_tokens=False), True)
    chat = tokenize_call({"messages": [USER], "add_generation_prompt": True, "tools": []}, "m")
    assert (chat.prompt, chat.with_pieces) == (Conversation((Message(Role.USER, "hi"),)), False)
    assert detokenize_call({"tokens": [1, 2]}, "m") == TokenPrompt((1, 2), "tokens")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ([], "body"),
        ({}, "prompt"),
        ({"prompt": ["x"]}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": LONE}, "prompt"),
        ({"prompt": "x", "messages": [USER]}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [USER], "add_special_tokens": False}, "add_special_tokens"),
        ({"messages": [USER], "add_generation_prompt": False}, "add_generation_prompt"),
        ({"messages": [USER], "chat_template": "x"}, "chat_template"),
        ({"prompt": "x", "return_token_str": True}, "return_token_str"),
        ({"prompt": "x", "model": 7}, "model"),
    ],
)
def test_what_cannot_be_cut_into_tokens_is_refused(body: object, name: str) -> None:
    assert refused(tokenize_call, body, "m").name == name


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (7, "body"),
        ({}, "tokens"),
        ({"tokens": []}, "tokens"),
        ({"tokens": "x"}, "tokens"),
        ({"tokens": ["x"]}, "tokens[0]"),
        ({"tokens": [1, -1]}, "tokens[1]"),
        ({"tokens": [1, True]}, "tokens[1]"),
        ({"tokens": [1], "token": 1}, "token"),
    ],
)
def test_what_is_no_list_of_tokens_is_refused(body: object, name: str) -> None:
    assert refused(detokenize_call, body, "m").name == name


def test_tokens_are_told_with_the_names_of_vllm() -> None:
    assert tokenize_reply("prompt", (5, 6), 100) == {"count": 2, "max_model_len": 100, "tokens": (5, 6)}
    assert tokenize_reply("prompt", (5, 6), 100, str)["token_strs"] == ["5", "6"]
    error = refused(tokenize_reply, "messages", range(MAX_PROMPT_TOKENS + 1), 100)
    assert error.name == "messages"
    assert "1,000,001 tokens" in error.message


def test_both_kinds_of_requests_are_rendered_and_refused_as_if_they_were_run() -> None:
    body = {"model": "m", "prompt": ["x", "y"], "max_tokens": 3, "n": 2, "seed": 1}
    (first, second) = render_requests(body, "m")
    assert (first.prompt, second.prompt) == (TextPrompt("x", origin="prompt[0]"), TextPrompt("y", origin="prompt[1]"))
    (chat,) = render_requests({"model": "m", "messages": [USER], "max_tokens": 3}, "m")
    assert (chat.prompt, chat.max_tokens) == (Conversation((Message(Role.USER, "hi"),)), 3)
    for wrong, name in (
        ([], "body"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": [USER], "prompt": "x"}, "prompt"),
        ({"model": "m", "messages": [USER], "temperature": 3}, "temperature"),
        ({"model": "m", "prompt": "x", "logprobs": 6}, "logprobs"),
    ):
        assert refused(render_requests, wrong, "m").name == name


def test_each_part_of_a_rendered_prompt_says_where_it_came_from() -> None:
    segments = ((0, 3, None), (3, 5, 0), (5, 6, None), (6, 8, 2))
    facts = PromptFacts("chat", "<u>hi\nyo", segments, (1, 2), ((0, 3), (3, 8)), 7, ("a note",))
    conversation = Conversation((Message(Role.USER, "hi"),))
    told = rendered_prompt(conversation, facts)
    assert [(part["origin"], part["text"]) for part in told["segments"]] == [
        ("template", "<u>"),
        ("messages[0]", "hi"),
        ("template", "\n"),
        ("messages[2]", "yo"),
    ]
    assert told | {"segments": ()} == {
        "kind": "chat",
        "prompt": "<u>hi\nyo",
        "segments": (),
        "tokens": (1, 2),
        "count": 2,
        "max_tokens": 7,
        "notices": ("a note",),
    }
    joined = rendered_prompt(conversation, replace(facts, kind="completion"))
    assert joined["segments"][0]["origin"] == "separator"
    tokens = rendered_prompt(TokenPrompt((1, 2), "prompt[4]"), replace(facts, kind="tokens", segments=((0, 8, 0),)))
    assert [part["origin"] for part in tokens["segments"]] == ["prompt[4]"]
