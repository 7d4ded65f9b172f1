"""Timings of one request: how they are asked for, and their shape."""

import pytest

from cutaway.api.openai import ChatCall, chat_call
from cutaway.api.openai_reply import Head, StreamedAnswer, WholeAnswer
from cutaway.api.timings import read_header, timings_object
from cutaway.errors import InvalidValue
from cutaway.glass.measures import Measures
from cutaway.glass.receipt import Spelling
from cutaway.types import Delta, Finish, FinishReason, Usage

HEAD = Head("chatcmpl-1", 1_700_000_000, "m", "fp_1")
MEASURES = Measures(412_345, 21_800_000, 96_300_499, 130_000_000, (22_900_000, 55_100_000, 119_200_400), 0, 5, 0)
END = Delta("", finish=Finish(FinishReason.STOP, "end token", Usage(5, 3)))
TOLD = {"request_id": "r1", "choices": []}


def call(**fields: object) -> ChatCall:
    return chat_call({"model": "m", "messages": [{"role": "user", "content": "x"}]} | fields, "m", "r1", 42)


def spell(token_id: int) -> Spelling:
    return Spelling(str(token_id), b"x", False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, False), ({}, False), ({"timings": None}, False), ({"timings": False}, False), ({"timings": True}, True)],
)
def test_they_are_told_if_they_are_asked_for(value: object, expected: bool) -> None:
    assert call(cutaway=value).timings is expected
    assert not call().timings


@pytest.mark.parametrize(
    ("value", "name", "hint"),
    [
        (True, "cutaway", ""),
        ("timings", "cutaway", ""),
        ([], "cutaway", ""),
        ({"timings": 1}, "cutaway.timings", ""),
        ({"timing": True}, "cutaway.timing", "did you mean timings?"),
        ({"role": "user"}, "cutaway.role", "leave it out"),
    ],
)
def test_anything_else_in_it_is_refused(value: object, name: str, hint: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        call(cutaway=value)
    assert (caught.value.name, caught.value.hint) == (name, hint)


def test_the_header_says_yes_or_no() -> None:
    assert [read_header(value) for value in (None, "0", "false", "1", "true")] == [False, False, False, True, True]
    for value in ("", "yes", "2", "1, 1", "x" * 1000):
        with pytest.raises(InvalidValue) as caught:
            read_header(value)
        assert caught.value.name == "x-cutaway-timings"
        assert len(caught.value.message) < 100


def test_times_are_in_milliseconds_and_null_where_nobody_knows() -> None:
    assert timings_object("r1", [MEASURES, None]) == {
        "request_id": "r1",
        "choices": [
            {"index": 0, "queue_ms": 0.412, "prefill_ms": 21.8, "decode_ms": 96.3, "token_ms": [22.9, 55.1, 119.2]},
            {"index": 1, "queue_ms": None, "prefill_ms": None, "decode_ms": None, "token_ms": None},
        ],
    }


def test_an_answer_has_them_beside_the_notices() -> None:
    answer, plain = WholeAnswer(call(), spell, HEAD, lambda: TOLD), WholeAnswer(call(), spell, HEAD)
    answer.take(END)
    plain.take(END)
    assert answer.complete(["lowered"])["cutaway"] == {"notices": ["lowered"], "timings": TOLD}
    assert answer.complete([])["cutaway"] == {"timings": TOLD}
    assert "cutaway" not in plain.complete([])


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_stream_has_them_in_its_last_chunk(include_usage: bool) -> None:
    asked = call(stream=True, stream_options={"include_usage": include_usage})
    answer = StreamedAnswer(asked, spell, HEAD, lambda: TOLD)
    answer.begin(END, [])
    assert not any("cutaway" in chunk for chunk in answer.take(END))
    (last,) = answer.end()
    assert (last["choices"], last["cutaway"]) == ([], {"timings": TOLD})
    assert ("usage" in last) == include_usage
    assert not include_usage or last["usage"]["completion_tokens"] == 3
    plain = StreamedAnswer(asked, spell, HEAD)
    plain.take(END)
    assert len(plain.end()) == include_usage
