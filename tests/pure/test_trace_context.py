"""Which ``traceparent`` is one, and what is answered."""

import pytest

from cutaway.api.trace_context import answer_to, new_span_id

TRACE, PARENT, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "53995c3f42cd8ad8"


@pytest.mark.parametrize(
    ("flags", "answered"), [("00", "00"), ("01", "00"), ("02", "02"), ("03", "02"), ("ff", "02"), ("fd", "00")]
)
def test_the_trace_is_kept_and_the_span_is_new(flags: str, answered: str) -> None:
    told = answer_to([f"00-{TRACE}-{PARENT}-{flags}".encode()], SPAN)
    assert told == f"00-{TRACE}-{SPAN}-{answered}"


@pytest.mark.parametrize("more", ["", "-", "-what-the-future-will-be-like.09"])
def test_a_later_version_is_read_as_far_as_this_one_goes(more: str) -> None:
    told = answer_to([f"cc-{TRACE}-{PARENT}-01{more}".encode()], SPAN)
    assert told == f"00-{TRACE}-{SPAN}-00"


@pytest.mark.parametrize(
    "value",
    [
        "",
        TRACE,
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01-",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01x",
        f"cc-{TRACE}-{PARENT}-01.more",
        f"ff-{TRACE}-{PARENT}-01",
        f"0-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT.upper()}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}g-{PARENT}-01",
        f" 00-{TRACE}-{PARENT}-01",
        f"00_{TRACE}_{PARENT}_01",
        f"00-{TRACE}-{PARENT}-0g",
        f"00-{TRACE}-{PARENT}-01\n",
    ],
)
def test_what_is_none_is_ignored(value: str) -> None:
    assert answer_to([value.encode()], SPAN) is None


def test_none_and_two_are_ignored() -> None:
    assert answer_to([], SPAN) is None
    assert answer_to([f"00-{TRACE}-{PARENT}-01".encode()] * 2, SPAN) is None


def test_span_ids_differ() -> None:
    ids = {new_span_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(each) for each in ids} == {16}
