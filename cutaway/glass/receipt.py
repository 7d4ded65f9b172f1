"""The receipt: what happened to one request, as plain data.

Owns the shape of the facts, not how they are gathered (``recorder``) or shown (``stages``, ``explain``). Times are
nanoseconds on one monotonic clock; a fact that nobody reported is ``None``, never zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cutaway.scheduler.plan import Decision, PrefixLookup, TableChange
from cutaway.types import FinishReason, Prompt, SamplingParams, TokenChoice


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Which model answered, and on what."""

    name: str
    architecture: str
    quantization: str
    dtype: str
    kernels: str
    num_threads: int
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    embedding_storage: str
    block_size: int
    kv_bytes_per_token: int
    cache_bytes: int
    cache_tokens: int
    cache_requests: int
    fingerprint: str
    version: str
    trained_context: int
    why_reference: str | None = None  # instead of the native kernels


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The request as it came in; one of its ``n`` copies, with that copy's seed in ``sampling``."""

    prompt: Prompt
    sampling: SamplingParams
    max_tokens: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    n: int = 1
    index: int = 0


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """The prompt that the model read.

    Attributes:
        kind: ``"chat"`` when a template rendered messages, ``"completion"`` when there was none for them, ``"text"``
            and ``"tokens"`` when the client sent a text or tokens.
        text: the rendered prompt, or what the tokens stand for.
        segments: (start, end, message index, 0 for a text or tokens, or ``None`` for the template) that cover ``text``.
        token_ids: its tokens.
        spans: (start, end) of each token in ``text``.
        max_tokens: most tokens to generate, after defaults and clamps.
        notices: what was defaulted or changed, in words.
    """

    kind: str
    text: str
    segments: tuple[tuple[int, int, int | None], ...]
    token_ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    max_tokens: int
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One step that this request was in.

    Attributes:
        step_id: the plan's id.
        phase: ``"prefill"`` while it reads the prompt, ``"decode"`` after; a way of speaking, the engine has no phases.
        start, count: positions of the request that it computed.
        batch_index: place of the request in the batch.
        num_requests, num_tokens: size of the batch.
        budget_left: rows that the step had room for.
        changes: what changed in the block tables.
        sampled: a token was chosen after it.
        begin_ns, end_ns: from planning to committing.
        prepare_ns, forward_ns, sample_ns: inside it: tensors, forward pass, choosing.
    """

    step_id: int
    phase: str
    start: int
    count: int
    batch_index: int
    num_requests: int
    num_tokens: int
    budget_left: int
    changes: tuple[TableChange, ...]
    sampled: bool
    begin_ns: int
    end_ns: int
    prepare_ns: int
    forward_ns: int
    sample_ns: int


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """One generated token: the step that chose it, its place in the request, and how it was chosen."""

    step_id: int
    position: int
    choice: TokenChoice


@dataclass(frozen=True, slots=True)
class Spelling:
    """A token of the vocabulary.

    Attributes:
        piece: as the vocabulary spells it.
        content: the bytes that it stands for.
        special: whether it is a control token.
    """

    piece: str
    content: bytes
    special: bool


@dataclass(frozen=True, slots=True)
class DeltaFacts:
    """One piece of text handed to the client, and the bytes that were held back after it."""

    at_ns: int
    text: str
    num_held_bytes: int


@dataclass(frozen=True, slots=True)
class FinishFacts:
    """The end: why, who caused it (the end token, if one did), and what was given back."""

    reason: FinishReason
    cause: str
    end_id: int | None
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generated_tokens: int
    num_blocks_freed: int
    num_blocks_free: int


@dataclass(frozen=True, slots=True)
class Marks:
    """When things happened.

    Attributes:
        received_ns: the engine was asked.
        rendered_ns: the chat template was done.
        tokenized_ns: the prompt was tokens.
        queued_ns: the scheduler had it.
        detokenize_ns: sum of the time spent turning tokens into text.
        finished_ns: the last delta was made.
    """

    received_ns: int
    rendered_ns: int
    tokenized_ns: int
    queued_ns: int
    detokenize_ns: int
    finished_ns: int


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What only the client knows: its own clock, and how long it took to load the model, if it did."""

    input: str
    sent_ns: int
    first_text_ns: int | None
    last_ns: int
    load_ns: int | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Everything that is known about one finished request.

    ``spellings`` has every token id that occurs in the receipt; ``decisions`` what the scheduler decided about it;
    ``lookup`` what was in the cache when it was first admitted, ``None`` if it never was.
    """

    request_id: str
    model: ModelFacts
    request: RequestFacts
    prompt: PromptFacts
    decisions: tuple[Decision, ...]
    lookup: PrefixLookup | None
    steps: tuple[StepFacts, ...]
    tokens: tuple[TokenFacts, ...]
    spellings: Mapping[int, Spelling]
    deltas: tuple[DeltaFacts, ...]
    finish: FinishFacts
    marks: Marks
    client: ClientFacts | None = None
