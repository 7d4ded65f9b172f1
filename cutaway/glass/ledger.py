"""Where a request's time went, as rows that add up.

Every row but the last is measured on its own; the last, *unaccounted*, is what they leave of the whole. It is always
there, so that nobody has to trust the others.
"""

from dataclasses import dataclass

from cutaway.glass.receipt import Receipt


@dataclass(frozen=True, slots=True)
class TimeLedger:
    """Rows of (name, nanoseconds); with ``unaccounted_ns``, the rest, they sum up to ``total_ns``."""

    rows: tuple[tuple[str, int], ...]
    unaccounted_ns: int
    total_ns: int


def time_ledger(receipt: Receipt) -> TimeLedger:
    """The ledger of a finished request, from the client's send to its last event, or as the engine saw it."""
    marks, client = receipt.marks, receipt.client
    begin_ns = marks.received_ns if client is None else client.sent_ns
    end_ns = marks.finished_ns if client is None else client.last_ns
    first_ns = receipt.steps[0].begin_ns if receipt.steps else marks.finished_ns
    rows = (
        ("application", marks.received_ns - begin_ns),
        ("template", marks.rendered_ns - marks.received_ns),
        ("tokenize", marks.tokenized_ns - marks.rendered_ns),
        ("queue", first_ns - marks.tokenized_ns),
        ("prefill", _computing_ns(receipt, "prefill")),
        ("decode", _computing_ns(receipt, "decode")),
        ("sampling", sum(step.sample_ns for step in receipt.steps)),
        ("scheduling", sum(_host_ns(receipt))),
        ("detokenize", marks.detokenize_ns),
        ("flush", end_ns - marks.finished_ns),
    )
    total_ns = end_ns - begin_ns
    return TimeLedger(rows, total_ns - sum(duration for _, duration in rows), total_ns)


@dataclass(frozen=True, slots=True)
class Timings:
    """The durations that users ask for, in milliseconds; ``None`` where nobody measured.

    Attributes:
        load_ms: loading the model, if that was done for this request.
        template_ms, tokenize_ms: from messages to tokens.
        prefill_ms: steps until the first token was chosen.
        decode_ms: steps after that.
        ttft_ms: from asking to the first token, without loading.
    """

    load_ms: float | None
    template_ms: float
    tokenize_ms: float
    prefill_ms: float
    decode_ms: float
    ttft_ms: float | None


def timings(receipt: Receipt) -> Timings:
    """Summarize a receipt's times."""
    marks, client = receipt.marks, receipt.client
    asked_ns = marks.received_ns if client is None else client.sent_ns
    first = next((step.end_ns for step in receipt.steps if step.sampled), None)
    steps = {phase: [s for s in receipt.steps if s.phase == phase] for phase in ("prefill", "decode")}
    return Timings(
        load_ms=None if client is None or client.load_ns is None else client.load_ns / 1e6,
        template_ms=(marks.rendered_ns - marks.received_ns) / 1e6,
        tokenize_ms=(marks.tokenized_ns - marks.rendered_ns) / 1e6,
        prefill_ms=sum(step.end_ns - step.begin_ns for step in steps["prefill"]) / 1e6,
        decode_ms=sum(step.end_ns - step.begin_ns for step in steps["decode"]) / 1e6,
        ttft_ms=None if first is None else (first - asked_ns) / 1e6,
    )


def _computing_ns(receipt: Receipt, phase: str) -> int:
    return sum(step.prepare_ns + step.forward_ns for step in receipt.steps if step.phase == phase)


def _host_ns(receipt: Receipt) -> list[int]:
    """What each step spent on planning and committing."""
    return [step.end_ns - step.begin_ns - step.prepare_ns - step.forward_ns - step.sample_ns for step in receipt.steps]
