"""What ends an answer, and what does not: stop ids, least lengths, ignored end tokens; on an engine without a model."""

from dataclasses import replace

import pytest
from fake_engine import CONTEXT, VOCAB_SIZE, expected_ids, ids_of, make_core, make_preparer, make_request, text_of

from cutaway.engine.answer import Answer
from cutaway.engine.messages import Event
from cutaway.errors import InvalidValue
from cutaway.glass.receipt import Receipt
from cutaway.glass.stages import tell_stages
from cutaway.glass.words import load_words
from cutaway.scheduler.plan import NewRequest
from cutaway.text.fake import END_ID, ByteTokenizer
from cutaway.types import DryBreakers, Finish, FinishReason, GenerationRequest, SamplingParams

MODEL_ENDS = ByteTokenizer().end_ids


def new_of(request: GenerationRequest) -> NewRequest:
    return make_preparer().prepare(request).copies[0]


def run(request: GenerationRequest) -> tuple[list[int], str, Finish, Receipt]:
    """Tokens, text, end and receipt of a request beside a neighbour."""
    core = make_core()
    core.add(0, make_preparer().prepare(request))
    core.add(1, make_preparer().prepare(make_request("neighbour", "somebody else", 30)))
    events: list[Event] = []
    while core.num_live:
        events += [event for event in core.step() if event.stream_id == 0]
    receipt, finish = events[-1].receipt, events[-1].delta.finish
    assert receipt is not None
    assert finish is not None
    deltas = [event.delta for event in events]
    return ids_of(deltas), text_of(deltas), finish, receipt


def test_a_stop_id_ends_an_answer_and_its_text_is_not_part_of_it() -> None:
    request = make_request("a", "tomato", 20)
    free = expected_ids(request)
    stop_id = next(token_id for token_id in free[3:] if token_id not in MODEL_ENDS)
    at = free.index(stop_id)
    token_ids, text, finish, receipt = run(replace(request, stop_token_ids=(stop_id,)))
    assert token_ids == free[: at + 1]
    assert finish.reason is FinishReason.STOP
    assert receipt.finish.end_id == stop_id
    assert text == run(replace(request, max_tokens=at))[1]
    for language, words in (("en", f"({stop_id}), one of stop_token_ids"), ("ko", "stop_token_ids 가운데 하나인 토큰")):
        told = tell_stages(receipt, load_words(language))
        assert any(words in line for _, line in told[-1].lines), told[-1]
        assert any(f'"stop_token_ids": [{stop_id}]' in line for _, line in told[2].lines), told[2]


def question_that_ends(max_tokens: int = 60) -> GenerationRequest:
    """A request whose answer an end token of the model ends after a few tokens."""
    for number in range(1000):
        request = make_request("a", f"question {number}", max_tokens)
        free = expected_ids(request)
        if 4 <= len(free) < 20 and free[-1] in MODEL_ENDS:
            return request
    raise AssertionError("there is none")


def test_ignored_end_tokens_end_nothing_and_show_nothing() -> None:
    request = question_that_ends(40)
    free = expected_ids(request)
    token_ids, text, finish, _ = run(replace(request, ignore_eos=True))
    assert finish.reason is FinishReason.LENGTH
    assert len(token_ids) == 40
    assert token_ids[: len(free)] == free
    assert "<|end|>" not in text
    assert new_of(replace(request, ignore_eos=True, stop_token_ids=(7, END_ID))).end_ids == (7, END_ID)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_before_its_least_length_no_token_ends_an_answer(ignore_eos: bool) -> None:
    request = question_that_ends()
    least = len(expected_ids(request)) + 10
    longer = replace(request, min_tokens=least, ignore_eos=ignore_eos, stop_token_ids=(7,))
    token_ids, _, finish, receipt = run(longer)
    assert not {7, *MODEL_ENDS}.intersection(token_ids[:least]), "as with vLLM, even if they would end nothing"
    assert len(token_ids) > least or finish.reason is FinishReason.LENGTH
    assert (receipt.request.min_tokens, receipt.request.ignore_eos) == (least, ignore_eos)
    assert token_ids == expected_ids(longer)


def test_bans_end_with_the_least_length() -> None:
    new = new_of(replace(make_request("a", "tomato", 9), min_tokens=3, stop_token_ids=(1, 2)))
    first = len(new.token_ids)
    assert [new.banned_at(first + at) for at in range(5)] == [(*MODEL_ENDS, 1, 2)] * 3 + [()] * 2
    assert new_of(replace(make_request("a", "tomato"), stop_token_ids=(1,))).banned_ids == ()


def shown(text: str, stop: tuple[str, ...], min_tokens: int) -> tuple[str, str | None]:
    """What of a text of one token a byte is shown, and the stop string that ended it."""
    answer = Answer(ByteTokenizer(), 0, stop, min_tokens)
    pieces = []
    for byte in text.encode():
        pieces.append(answer.push(byte).text)
        if answer.stop is not None:
            return "".join(pieces), answer.stop
    return "".join(pieces) + answer.flush(), answer.stop


@pytest.mark.parametrize(
    ("min_tokens", "expected"),
    [
        (0, ("a", "bc")),
        (2, ("a", "bc")),  # complete with the third token
        (3, ("abca", "bc")),  # the first is complete too early, so the second ends it
        (5, ("abca", "bc")),  # begun too early, but complete in time
        (6, ("abcabcd", "bc")),
        (9, ("abcabcdbca", None)),
        (10, ("abcabcdbca", None)),
        (99, ("abcabcdbca", None)),
    ],
)
def test_a_stop_string_counts_if_it_is_complete_after_the_least_length(
    min_tokens: int, expected: tuple[str, str | None]
) -> None:
    assert shown("abcabcdbca", ("bc",), min_tokens) == expected


def test_what_is_held_back_at_the_end_stops_nothing_within_the_least_length() -> None:
    for min_tokens, stop in ((0, "\ufffd"), (1, "\ufffd"), (2, None)):
        answer = Answer(ByteTokenizer(), 0, ("\ufffd",), min_tokens)
        answer.push(ord("a"))
        answer.push("é".encode()[0])
        answer.flush()
        assert answer.stop == stop


def test_breakers_are_looked_for_only_if_they_are_wanted() -> None:
    request = make_request("a", "tomato")
    assert new_of(request).dry_breakers == DryBreakers()
    with_dry = replace(request, sampling=SamplingParams(dry_multiplier=0.8, dry_sequence_breakers=("to", ".")))
    assert new_of(with_dry).dry_breakers == DryBreakers(
        frozenset({ord(".")}), ((frozenset({ord("t")}), (ord("o"),)),) * 2
    )


@pytest.mark.parametrize("name", ["stop_token_ids", "logit_bias"])
@pytest.mark.parametrize(("token_id", "fits"), [(VOCAB_SIZE - 1, True), (VOCAB_SIZE, False), (2**31 - 1, False)])
def test_a_token_id_beyond_the_vocabulary_is_refused_with_both(name: str, token_id: int, fits: bool) -> None:
    request = make_request("a", "tomato")
    if name == "logit_bias":
        request = replace(request, sampling=SamplingParams(logit_bias=((token_id, 1.0),)))
    else:
        request = replace(request, stop_token_ids=(token_id,))
    if fits:
        new_of(request)
        return
    with pytest.raises(InvalidValue) as caught:
        new_of(request)
    assert caught.value.message == (
        f"{name}: token {token_id:,} is not in the vocabulary, whose ids go from 0 to {VOCAB_SIZE - 1:,}"
    )


def test_a_least_length_that_the_context_has_no_room_for_is_refused() -> None:
    request = replace(make_request("a", "x" * (CONTEXT - 10), None), min_tokens=11)
    with pytest.raises(InvalidValue, match="min_tokens: 11 are more than the 10 that the context has room for"):
        new_of(request)
    assert new_of(replace(request, min_tokens=10)).max_tokens == 10
    with pytest.raises(InvalidValue, match="min_tokens: 20 are more than the 10"):
        new_of(replace(request, max_tokens=50, min_tokens=20))
    with pytest.raises(InvalidValue, match="min_tokens: 9 are more than the limit of max_tokens, 8"):
        replace(make_request("a", "tomato", 8), min_tokens=9)
