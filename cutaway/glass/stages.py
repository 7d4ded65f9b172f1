"""A receipt, told in 13 stages: labelled texts and tables, in a reader's language.

Owns what each stage shows. Refuses to know how it is drawn: the terminal does that in ``explain``. Names in
``snake_case`` (``token_ids``, ``cached_token_count`` …) are the field's own and the same in every language.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby

from cutaway.glass.cache_facts import tell_block_table, tell_cache, tell_prefix, used_groups
from cutaway.glass.receipt import PromptFacts, Receipt, StepFacts, TokenFacts
from cutaway.glass.words import Words
from cutaway.printable import quote
from cutaway.scheduler.plan import Action
from cutaway.types import Candidate, Conversation, FinishReason, SamplingParams, TextPrompt, TokenPrompt

TEMPLATE_MARKS = ("⟦", "⟧")
PROMPT_LABELS = {"chat": "added", "completion": "not_added", "text": "as_written", "tokens": "as_sent"}
NUM_OTHERS = 2
ALWAYS_SHOWN = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
    "stop",
)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, ready to be drawn.

    Attributes:
        number: 1 to 13.
        title, sentence: in the reader's language.
        lines: (label, text) pairs.
        tables: drawn under the lines.
    """

    number: int
    title: str
    sentence: str
    lines: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...] = ()


Lines = list[tuple[str, str]]
Tell = Callable[[Receipt, Words], tuple[Lines, list[Table]]]


def tell_stages(receipt: Receipt, words: Words) -> tuple[Stage, ...]:
    """Tell a receipt in 13 stages."""
    tellers: dict[str, Tell] = {
        "client": _client,
        "application": _application,
        "admission": _admission,
        "tokenize": _tokenize,
        "batch": _batch,
        "tensors": _tensors,
        "embed": _embed,
        "layers": _layers,
        "kv_cache": _kv_cache,
        "sample": _sample,
        "stream": _stream,
        "decode": _decode,
        "finish": _finish,
    }
    stages = []
    for number, (name, tell) in enumerate(tellers.items(), start=1):
        lines, tables = tell(receipt, words)
        stages.append(Stage(number, words.titles[name], words.sentences[name], tuple(lines), tuple(tables)))
    return tuple(stages)


def _client(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    client = receipt.client
    lines = [(words.label("model"), receipt.model.name)]
    if client is None:
        return [*lines, (words.label("clock"), words.label("unknown"))], []
    last = _ms(client.last_ns - client.sent_ns)
    clock = words.label("no_text", last=last)
    if client.first_text_ns is not None:
        clock = words.label("clock_text", first=_ms(client.first_text_ns - client.sent_ns), last=last)
    lines = [(words.label("input"), client.input), *lines, (words.label("clock"), clock)]
    if client.load_ns is not None:
        lines.append(("", words.label("load_text", load=_ms(client.load_ns))))
    return lines, []


def _application(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    headings = (words.label("origin"), words.label("role"), words.label("content"))
    match receipt.request.prompt:
        case Conversation(messages):
            rows = tuple((message.origin, message.role.value, message.content) for message in messages)
        case TextPrompt(text, origin=origin):
            rows = ((origin, "", text),)
        case TokenPrompt(token_ids, origin):
            rows = ((origin, "", words.label("ids_text", count=f"{len(token_ids):,}")),)
    return [], [Table(headings, rows)]


def _admission(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    prompt = receipt.prompt
    checks = words.label(
        "checks_text",
        tokens=f"{len(prompt.token_ids):,}",
        max_tokens=f"{prompt.max_tokens:,}",
        context=f"{receipt.model.context_length:,}",
    )
    lines = [(words.label("checks"), checks)]
    if receipt.request.n > 1:
        counted = words.label("copy_text", number=receipt.request.index + 1, count=receipt.request.n)
        lines.append((words.label("copy"), counted))
    lines += [("", notice) for notice in prompt.notices]
    lines.append((words.label("settings"), json.dumps(_settings(receipt), ensure_ascii=False)))
    explanation = words.label(PROMPT_LABELS[prompt.kind])
    lines.append((words.label("prompt_text"), explanation))
    lines.append(("", mark_template(prompt)))
    return lines, []


def _settings(receipt: Receipt) -> dict[str, object]:
    """How the answer was to be made: what everybody knows, and of the rest what was asked for."""
    request = receipt.request
    settings = asdict(request.sampling) | {"max_tokens": receipt.prompt.max_tokens, "stop": request.stop}
    settings |= {name: getattr(request, name) for name in ("stop_token_ids", "min_tokens", "ignore_eos")}
    unset = asdict(SamplingParams()) | {"stop_token_ids": (), "min_tokens": 0, "ignore_eos": False}
    return {name: value for name, value in settings.items() if name in ALWAYS_SHOWN or value != unset.get(name)}


def mark_template(prompt: PromptFacts) -> str:
    """The prompt with everything that no message contains between marks."""
    begin, end = TEMPLATE_MARKS
    parts = [
        f"{begin}{prompt.text[start:stop]}{end}" if source is None else prompt.text[start:stop]
        for start, stop, source in prompt.segments
    ]
    return "".join(parts)


def _tokenize(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    prompt = receipt.prompt
    headings = ("#", "token_id", words.label("token"), words.label("bytes"), words.label("characters"), "")
    rows = []
    for index, (token_id, (start, end)) in enumerate(zip(prompt.token_ids, prompt.spans, strict=True)):
        spelling = receipt.spellings[token_id]
        special = words.label("special") if spelling.special else ""
        cells = (
            str(index),
            str(token_id),
            _show(receipt, token_id),
            spelling.content.hex(" "),
            f"{start}:{end}",
            special,
        )
        rows.append(cells)
    return [(words.label("input_length"), str(len(prompt.token_ids)))], [Table(headings, tuple(rows))]


def _batch(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    model = receipt.model
    replica = words.label("replica_text", kernels=model.kernels, threads=model.num_threads)
    headings = (
        words.label("step"),
        "phase",
        "batch_index",
        "token_count",
        words.label("batch"),
        words.label("budget_left"),
    )
    alike = groupby(receipt.steps, key=lambda step: _batch_cells(step, words))
    rows = tuple((_range([step.step_id for step in steps]), *cells) for cells, steps in alike)
    lines = [(words.label("replica"), replica)]
    news = [decision for decision in receipt.decisions if decision.action is not Action.ADMITTED]
    lines += [(words.label(f"decision_{decision.action.value}"), decision.reason) for decision in news]
    if not news:
        lines.append((words.label("decision_waiting"), words.label("not_waited")))
    return lines, [Table(headings, rows)] if rows else []


def _batch_cells(step: StepFacts, words: Words) -> tuple[str, ...]:
    batch = words.label("batch_text", requests=f"{step.num_requests:,}", tokens=f"{step.num_tokens:,}")
    return (step.phase, str(step.batch_index), f"{step.count:,}", batch, f"{step.budget_left:,}")


def _tensors(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    headings = (words.label("step"), "input_ids", "position_ids", "slots", "block_table", "dtype")
    rows = []
    num_blocks = accumulate((_table_end(step) for step in receipt.steps), max)
    alike = groupby(zip(receipt.steps, num_blocks, strict=True), key=lambda pair: (pair[0].count, pair[1]))
    for (count, length), pairs in alike:
        steps = [step for step, _ in pairs]
        positions = _range([steps[0].start, steps[-1].start + count - 1])
        rows.append(
            (
                _range([step.step_id for step in steps]),
                f"[{count}]",
                f"[{count}] {positions}",
                f"[{count}]",
                f"[{length}]",
                "int64",
            )
        )
    return [("", words.label("no_mask"))], [Table(headings, tuple(rows))] if rows else []


def _table_end(step: StepFacts) -> int:
    """How long the first block table is after a step's changes, 0 if there are none."""
    return max((change.first + len(change.blocks) for change in step.changes if not change.group), default=0)


def _embed(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    model = receipt.model
    table = words.label(
        "table_text",
        vocab=f"{model.vocab_size:,}",
        hidden=model.hidden_size,
        storage=model.embedding_storage,
        dtype=model.dtype,
    )
    vectors = f"{_prompt_shapes(receipt)} {model.dtype}"
    return [(words.label("table"), table), (words.label("vectors"), vectors)], []


def _layers(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    model = receipt.model
    layers = words.label("layers_text", layers=model.num_layers, shapes=_prompt_shapes(receipt))
    attention = words.label(
        "attention_text", heads=model.num_heads, kv_heads=model.num_kv_heads, head_dim=model.head_dim
    )
    return [(words.label("layers"), layers), (words.label("attention"), attention)], []


def _kv_cache(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    model = receipt.model
    prefill = [step for step in receipt.steps if step.phase == "prefill"]
    lines = []
    for key, steps in (("after_prefill", prefill), ("after_end", receipt.steps)):
        count = _num_cached(steps)
        lines.append((words.label(key), words.label("cached_text", count=count, layers=model.num_layers)))
    per_token = f"{model.kv_bytes_per_token:,}"
    used = _num_cached(receipt.steps) * model.kv_bytes_per_token / 1000
    lines += [
        *(("block_table", tell_block_table(receipt, words, group)) for group in used_groups(receipt)),
        (words.label("prefix"), tell_prefix(receipt, words)),
        (
            words.label("memory"),
            words.label("memory_text", used=f"{used:,.0f}", per_token=per_token),
        ),
        ("", tell_cache(receipt, words)),
    ]
    return lines, []


def _sample(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    lines = [(words.label("logits"), f"logits_shape [1, {receipt.model.vocab_size}]")]
    if not receipt.tokens:
        return lines, []
    choice = receipt.tokens[0].choice
    chosen = words.label(
        "chosen_text",
        token=f"{_show(receipt, choice.token_id)} ({choice.token_id})",
        raw=f"{math.exp(choice.logprob):.2%}",
        rank=choice.rank,
        final=f"{choice.draw.probability:.2%}",
    )
    lines.append((words.label("first_choice"), chosen))
    draw = choice.draw
    if draw.uniform is None:
        lines.append(("", words.label("greedy")))
    else:
        dice = words.label("dice", u=f"{draw.uniform:.6f}", low=f"{draw.low:.6f}", high=f"{draw.high:.6f}")
        lines.append(("", dice))
    headings = (words.label("stage"), words.label("kept"), words.label("removed"), words.label("candidates"))
    rows = tuple(
        (stage.name, f"{stage.num_kept:,}", f"{stage.mass_removed:.2%}", _list_candidates(receipt, stage.top))
        for stage in choice.stages
    )
    return lines, [Table(headings, rows)] if rows else []


def _stream(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    begin = receipt.marks.received_ns if receipt.client is None else receipt.client.sent_ns
    headings = (words.label("at"), words.label("delta"), words.label("held"))
    rows = tuple(
        (f"{_ms(delta.at_ns - begin)} ms", quote(delta.text), str(delta.num_held_bytes)) for delta in receipt.deltas
    )
    return [], [Table(headings, rows)] if rows else []


def _decode(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    steps = {step.step_id: step for step in receipt.steps if step.sampled}
    labels = ("step", "input", "position", "past", "time", "chosen", "others")
    rows = tuple(_decode_row(receipt, token, steps[token.step_id]) for token in receipt.tokens)
    return [("", words.label("decode_columns"))], [Table(tuple(map(words.label, labels)), rows)] if rows else []


def _decode_row(receipt: Receipt, token: TokenFacts, step: StepFacts) -> tuple[str, ...]:
    prompt, before = receipt.prompt.token_ids, token.position - 1
    fed_id = prompt[before] if before < len(prompt) else receipt.tokens[before - len(prompt)].choice.token_id
    fed = _show(receipt, fed_id)
    choice = token.choice
    others = tuple(candidate for candidate in choice.top if candidate.token_id != choice.token_id)
    return (
        str(step.step_id),
        fed if step.count == 1 else f"…{fed} ({step.count})",
        str(token.position - 1),
        str(step.start),
        f"{_ms(step.end_ns - step.begin_ns)} ms",
        f"{_show(receipt, choice.token_id)} {math.exp(choice.logprob):.1%}",
        _list_candidates(receipt, others[:NUM_OTHERS]),
    )


def _finish(receipt: Receipt, words: Words) -> tuple[Lines, list[Table]]:
    finish = receipt.finish
    usage = words.label(
        "usage_text",
        prompt=finish.num_prompt_tokens,
        completion=finish.num_generated_tokens,
        total=finish.num_prompt_tokens + finish.num_generated_tokens,
    )
    generated = [token.choice.token_id for token in receipt.tokens]
    freed = words.label("freed_text", freed=finish.num_blocks_freed, free=finish.num_blocks_free)
    lines = [
        (words.label("reason"), finish.reason.value),
        (words.label("cause"), _cause(receipt, words)),
        (words.label("text"), "".join(delta.text for delta in receipt.deltas)),
        (words.label("generated"), str(generated)),
        (words.label("usage"), usage),
        (words.label("freed"), freed),
        (words.label("saved"), words.label("saved_text")),
    ]
    return lines, []


def _cause(receipt: Receipt, words: Words) -> str:
    """What ended the answer: the token that did, a limit, or what the engine said."""
    finish = receipt.finish
    if finish.end_id is not None:
        label = "stop_token_text" if finish.end_id in receipt.request.stop_token_ids else "end_token_text"
        return words.label(label, token=f"{_show(receipt, finish.end_id)} ({finish.end_id})")
    if finish.reason is FinishReason.LENGTH:
        return words.label("limit_text", count=f"{finish.num_generated_tokens:,}")
    return finish.cause


def _range(numbers: Sequence[int]) -> str:
    """The first and the last of ascending numbers."""
    return str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]}…{numbers[-1]}"


def _prompt_shapes(receipt: Receipt) -> str:
    """Shape of the hidden states in each step that read the prompt; equal ones counted."""
    counts = groupby(step.count for step in receipt.steps if step.phase == "prefill")
    shapes = []
    for count, group in counts:
        times = len(list(group))
        shapes.append(f"[{count}, {receipt.model.hidden_size}]" + (f" × {times}" if times > 1 else ""))
    return ", ".join(shapes)


def _num_cached(steps: Sequence[StepFacts]) -> int:
    """Positions in the cache after the last of ``steps``."""
    return steps[-1].start + steps[-1].count if steps else 0


def _list_candidates(receipt: Receipt, candidates: tuple[Candidate, ...]) -> str:
    return "  ".join(
        f"{_show(receipt, candidate.token_id)} {math.exp(candidate.logprob):.1%}" for candidate in candidates
    )


def _show(receipt: Receipt, token_id: int) -> str:
    """A token as text; bytes that are no character alone are shown in hexadecimal."""
    spelling = receipt.spellings[token_id]
    if spelling.special:
        return spelling.piece
    return quote(spelling.content)


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:,.1f}"
