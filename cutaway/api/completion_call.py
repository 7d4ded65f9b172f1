"""Requests of OpenAI's older API, completions, in the words of ``cutaway.types``.

Owns the table of fields. Refuses to know HTTP and engines. Invariants: as in ``openai``; each prompt becomes a request
of its own, which is the one that it would be alone.
Source: https://platform.openai.com/docs/api-reference/completions/create, and for ``add_special_tokens`` vLLM.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cutaway.api.fields import read_fields, require, unknown_field, unsupported_field
from cutaway.api.openai import read_stream_options, wants_usage
from cutaway.api.openai_sampling import ENDING_FIELDS, SAMPLING_FIELDS
from cutaway.api.prompts import read_prompts
from cutaway.api.values import Number, Reader, check_model, read_flag, read_text
from cutaway.errors import InvalidValue
from cutaway.limits import MAX_ANSWERS, MAX_SEED
from cutaway.types import GenerationRequest, SamplingParams, TextPrompt, TokenPrompt

# What OpenAI takes if it is left out.
DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """A request for completions.

    Attributes:
        requests: what is to be generated, one for each prompt, with the same number of copies.
        num_top: how many alternatives of each token to tell; ``None`` tells no log-probabilities.
        echo: whether each answer begins with its prompt.
        stream: whether the answers come in pieces.
        include_usage: whether the last piece tells the usage.
    """

    requests: tuple[GenerationRequest, ...]
    num_top: int | None
    echo: bool
    stream: bool
    include_usage: bool


def completion_call(body: object, model: str, request_id: str, seed: int) -> CompletionCall:
    """What a client asks for.

    Args:
        body: the JSON value that it sent.
        model: the one that answers here.
        request_id: of the whole; each prompt's adds its place.
        seed: for requests that name none, of the first answer; each other answer has the next.

    Raises:
        UnknownModel: it wants another model.
        InvalidValue: something in it is unknown, not supported, of the wrong kind or outside its limits.
    """
    fields = read_fields(body, COMPLETION_FIELDS, "", _refuse_field)
    require(fields, ("model", "prompt"))
    check_model(fields["model"], model)
    stream = fields.get("stream", False)
    num_top, echo = fields.get("logprobs"), fields.get("echo", False)
    if echo and num_top is not None:
        raise InvalidValue(
            "echo", "the tokens of a prompt have no log-probabilities here", hint="leave out echo or logprobs"
        )
    requests = _requests(fields, request_id, seed)
    return CompletionCall(requests, num_top, echo, stream, wants_usage(fields))


def _requests(fields: Mapping[str, Any], request_id: str, seed: int) -> tuple[GenerationRequest, ...]:
    """A request for each prompt. A seed that the client named is the first of each, as if each prompt were alone."""
    prompts, n = _prompts(fields), _num_copies(fields)
    if len(prompts) * n > MAX_ANSWERS:
        raise InvalidValue("n", f"{n:,} answers to each of {len(prompts):,} prompts are more than {MAX_ANSWERS:,}")
    sampling = {name: fields[name] for name in SAMPLING_FIELDS if name in fields}
    ending = {name: fields[name] for name in ENDING_FIELDS if name in fields}
    return tuple(
        GenerationRequest(
            request_id=f"{request_id}-{index}",
            prompt=prompt,
            sampling=SamplingParams(**{"seed": (seed + index * n) % (MAX_SEED + 1)} | sampling),
            max_tokens=fields.get("max_tokens", DEFAULT_MAX_TOKENS),
            **ending,
            num_logprobs=fields.get("logprobs"),
            n=n,
        )
        for index, prompt in enumerate(prompts)
    )


def _prompts(fields: Mapping[str, Any]) -> tuple[TextPrompt | TokenPrompt, ...]:
    prompts: tuple[TextPrompt | TokenPrompt, ...] = fields["prompt"]
    if "add_special_tokens" not in fields:
        return prompts
    texts = [prompt for prompt in prompts if isinstance(prompt, TextPrompt)]
    if not texts:
        raise InvalidValue("add_special_tokens", "nothing is ever added to tokens", hint="leave it out")
    return tuple(replace(prompt, add_special_tokens=fields["add_special_tokens"]) for prompt in texts)


def _num_copies(fields: Mapping[str, Any]) -> int:
    n: int = fields.get("n", 1)
    best_of = fields.get("best_of", n)
    if best_of != n:
        raise InvalidValue(
            "best_of", f"{best_of} is not n, which is {n}; the best of more answers is not chosen here", hint="use n"
        )
    return n


def _refuse_field(prefix: str, name: str, value: object) -> InvalidValue | None:
    if name in NOT_SUPPORTED:
        return unsupported_field(name, value, NOT_SUPPORTED[name])
    return unknown_field(prefix, name, [*COMPLETION_FIELDS, *NOT_SUPPORTED])


COMPLETION_FIELDS: Mapping[str, Reader] = {
    "model": read_text,
    "prompt": read_prompts,
    "add_special_tokens": read_flag,
    **SAMPLING_FIELDS,
    **ENDING_FIELDS,
    "max_tokens": Number("max_tokens"),
    "n": Number("n"),
    "best_of": Number("n"),
    "logprobs": Number("completion_logprobs"),
    "echo": read_flag,
    "stream": read_flag,
    "stream_options": read_stream_options,
    "user": read_text,  # without effect
}
# Known fields that are not supported, with the values that say no more than leaving them out.
NOT_SUPPORTED: Mapping[str, tuple[object, ...]] = {"suffix": ("",), "prompt_logprobs": ()}
