"""Receipts and how they are told: complete, in order, adding up, in both languages."""

import io
from dataclasses import replace

import pytest
from fake_engine import FACTS, make_core, make_preparer, make_request
from rich.console import Console

from cutaway.errors import InvalidValue
from cutaway.glass.explain import explain
from cutaway.glass.ledger import time_ledger, timings
from cutaway.glass.receipt import ClientFacts, Receipt
from cutaway.glass.receipts import Receipts
from cutaway.glass.stages import PROMPT_LABELS, mark_template, tell_stages
from cutaway.glass.words import LANGUAGES, load_words
from cutaway.types import Draw, FinishReason, GenerationRequest, Prompt, TextPrompt, TokenPrompt


def receipt_of(request: GenerationRequest, abort_after: int | None = None) -> Receipt:
    """Run a request on the fake engine, maybe beside others, and take its receipt."""
    core = make_core()
    for stream_id, other in enumerate((request, make_request("neighbour", "somebody else's question", 30))):
        core.add(stream_id, make_preparer().prepare(other))
    for step in range(1, 1000):
        events = core.step()
        if step == abort_after:
            events += core.abort(0, "the client left")
        for event in events:
            if event.stream_id == 0 and event.receipt is not None:
                return event.receipt
    raise AssertionError("the request never ended")


@pytest.fixture(scope="module")
def receipt() -> Receipt:
    return receipt_of(make_request("a", "Is a 토마토 a fruit? " * 2, 9))


def test_a_receipt_has_every_token_step_and_delta(receipt: Receipt) -> None:
    first = len(receipt.prompt.token_ids)
    assert [token.position for token in receipt.tokens] == list(range(first, first + 9))
    assert len(receipt.tokens) == receipt.finish.num_generated_tokens == 9
    assert sum(step.sampled for step in receipt.steps) == 9
    covered = [position for step in receipt.steps for position in range(step.start, step.start + step.count)]
    assert covered == list(range(len(receipt.prompt.token_ids) + 8))
    assert (
        sum(len(change.blocks) for step in receipt.steps for change in step.changes) == receipt.finish.num_blocks_freed
    )


def test_steps_are_in_order_and_prefill_comes_first(receipt: Receipt) -> None:
    times = [time for step in receipt.steps for time in (step.begin_ns, step.end_ns)]
    assert times == sorted(times)
    phases = [step.phase for step in receipt.steps]
    assert phases == sorted(phases, reverse=True)
    assert phases[0] == "prefill"
    assert phases[-1] == "decode"
    assert max(step.num_requests for step in receipt.steps) == 2


def test_every_token_that_a_receipt_names_is_spelled(receipt: Receipt) -> None:
    for token_id in (*receipt.prompt.token_ids, *(token.choice.token_id for token in receipt.tokens)):
        assert receipt.spellings[token_id].content


def test_the_time_ledger_adds_up(receipt: Receipt) -> None:
    sent, last = receipt.marks.received_ns - 5_000, receipt.marks.finished_ns + 7_000
    seen = replace(receipt, client=ClientFacts("question", sent, sent + 1, last, None))
    ledger = time_ledger(seen)
    assert ledger.total_ns == last - sent
    assert sum(duration for _, duration in ledger.rows) + ledger.unaccounted_ns == ledger.total_ns
    rows = dict(ledger.rows)
    assert (rows["application"], rows["flush"]) == (5_000, 7_000)
    assert all(duration >= 0 for duration in rows.values())
    assert ledger.unaccounted_ns >= 0


def test_unknown_times_are_none_and_not_zero(receipt: Receipt) -> None:
    assert timings(receipt).load_ms is None
    assert timings(receipt_of(make_request("b", "x" * 200, 20), abort_after=2)).ttft_ms is None


def test_prefill_and_decode_times_are_those_of_the_steps(receipt: Receipt) -> None:
    summary = timings(receipt)
    whole = sum(step.end_ns - step.begin_ns for step in receipt.steps) / 1e6
    assert summary.prefill_ms + summary.decode_ms == pytest.approx(whole)


def test_the_prompt_is_covered_by_its_segments(receipt: Receipt) -> None:
    assert "".join(receipt.prompt.text[start:end] for start, end, _ in receipt.prompt.segments) == receipt.prompt.text
    assert mark_template(receipt.prompt) == receipt.prompt.text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_receipt_is_told_in_13_stages(receipt: Receipt, language: str) -> None:
    words = load_words(language)
    stages = tell_stages(receipt, words)
    assert [stage.number for stage in stages] == list(range(1, 14))
    assert all(stage.title and stage.sentence and (stage.lines or stage.tables) for stage in stages)
    decode = stages[11].tables[0]
    assert len(decode.rows) == len(receipt.tokens)
    tokens = stages[3].tables[0]
    assert [row[1] for row in tokens.rows] == [str(token_id) for token_id in receipt.prompt.token_ids]


def test_what_the_template_added_is_marked_and_nothing_else(receipt: Receipt) -> None:
    text = "<|user|>tomato<|end|>"
    prompt = replace(receipt.prompt, kind="chat", text=text, segments=((0, 8, None), (8, 14, 0), (14, 21, None)))
    assert mark_template(prompt) == "⟦<|user|>⟧tomato⟦<|end|>⟧"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (TextPrompt("Is a <|bos|>토마토", origin="prompt[1]"), "Is a <|bos|>토마토"),
        (TokenPrompt((73, 115, 256), "prompt[1]"), "3"),
    ],
)
def test_it_is_told_what_kind_of_prompt_it_was(prompt: Prompt, shown: str, language: str) -> None:
    receipt = receipt_of(replace(make_request("a", "x", 3), prompt=prompt))
    assert receipt.request.prompt == prompt
    assert receipt.prompt.token_ids.count(256) == 1
    stages = tell_stages(receipt, load_words(language))
    (row,) = stages[1].tables[0].rows
    assert row[:2] == ("prompt[1]", "")
    assert shown in row[2]
    kinds = {kind: load_words(language).label(label) for kind, label in PROMPT_LABELS.items()}
    told = [text for _, text in stages[2].lines]
    assert [kind for kind, words in kinds.items() if words in told] == [receipt.prompt.kind]
    assert mark_template(receipt.prompt) == ("Is<|bos|>" if isinstance(prompt, TokenPrompt) else shown)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_dice_of_the_first_token_are_shown_as_they_fell(receipt: Receipt, language: str) -> None:
    first = receipt.tokens[0]
    drawn = replace(first.choice, draw=Draw(uniform=0.25, low=0.125, high=0.5, probability=0.375))
    seen = replace(receipt, tokens=(replace(first, choice=drawn), *receipt.tokens[1:]))
    sample = tell_stages(seen, load_words(language))[9]
    shown = " ".join(text for _, text in sample.lines)
    assert all(number in shown for number in ("0.250000", "[0.125000, 0.500000)", "37.50%"))


@pytest.mark.parametrize("abort_after", [1, 3])
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_aborted_request_can_be_told_too(language: str, abort_after: int) -> None:
    receipt = receipt_of(make_request("a", "x" * 100, 20), abort_after)
    assert receipt.finish.reason is FinishReason.ABORTED
    console = Console(file=io.StringIO(), width=100)
    explain(receipt, load_words(language), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "aborted" in text
    assert "the client left" in text


def test_both_languages_say_the_same_things() -> None:
    english, korean = load_words("en"), load_words("ko")
    for name in ("titles", "sentences", "labels", "times"):
        ours, theirs = getattr(english, name), getattr(korean, name)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert holes(ours[key]) == holes(theirs[key]), key
    shared = [key for key in english.sentences if english.sentences[key] == korean.sentences[key]]
    assert not shared


def holes(text: str) -> set[str]:
    return {part.split("}")[0] for part in text.split("{")[1:]}


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'xx' is none of en, ko"):
        load_words("xx")


def test_only_so_many_receipts_are_kept(receipt: Receipt) -> None:
    receipts = Receipts(max_kept=3)
    for index in range(5):
        receipts.put(replace(receipt, request_id=f"r{index}"))
    assert [receipts.get(f"r{index}") is not None for index in range(5)] == [False, False, True, True, True]


def test_the_answer_is_the_same_whatever_is_recorded() -> None:
    plain = receipt_of(make_request("a", "tomato", 12))
    watched = receipt_of(replace(make_request("a", "tomato", 12), num_logprobs=None, num_candidates=5))
    assert [token.choice.token_id for token in plain.tokens] == [token.choice.token_id for token in watched.tokens]


def test_facts_of_the_model_are_in_the_receipt(receipt: Receipt) -> None:
    assert receipt.model == FACTS
