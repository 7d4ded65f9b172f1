"""Options that several commands share, each defined once, and the values they make."""

import functools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import click

from cutaway.cli.byte_size import ByteSize
from cutaway.cli.model import Command, model_option
from cutaway.cli.prompt import argument_text
from cutaway.cli.token_bias import TokenBias
from cutaway.engine.options import DTYPES, KERNELS, NUMERICS, WORKERS, EngineOptions
from cutaway.limits import LIMITS, MAX_SEED, check_number
from cutaway.types import Conversation, GenerationRequest, Message, Role, SamplingParams

# A command asks one thing at a time; room for a second keeps in the cache what was said before.
MIN_RUNNING = 2
Decorator = Callable[[Command], Command]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Everything that says which model answers and how its engine is set up; ``None`` means it was not said."""

    model: str
    context: int | None
    kv_memory: int | None
    prefix_cache: bool
    threads: int | None
    dtype: str
    kernels: str
    numerics: str
    worker: str

    def engine(self, num_answers: int = 1) -> EngineOptions:
        """How the engine is set up, for so many answers at once.

        Raises:
            InvalidValue: a value is outside its limits.
        """
        return EngineOptions(
            context=self.context,
            dtype=self.dtype,
            num_threads=self.threads,
            kv_memory=self.kv_memory,
            prefix_cache=self.prefix_cache,
            kernels=self.kernels,
            numerics=self.numerics,
            worker=self.worker,
            max_running=max(num_answers, MIN_RUNNING),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions(ModelOptions):
    """Everything that says how an answer is made, as the command line gave it; ``None`` means it did not."""

    system: str | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...]
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: tuple[str, ...]
    seed: int | None
    max_tokens: int | None
    min_tokens: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool

    def instructions(self) -> tuple[Message, ...]:
        """What stands before a conversation: one message, or none without ``--system``."""
        return () if self.system is None else (Message(Role.SYSTEM, self.system, "--system"),)

    def request(
        self, conversation: Sequence[Message], num_logprobs: int | None = None, num_candidates: int = 0, n: int = 1
    ) -> GenerationRequest:
        """A request that goes on with a conversation; without a seed, one is drawn. Raises as ``engine``."""
        sampling = {name: getattr(self, name) for name in SamplingParams.__slots__}
        if self.seed is None:
            sampling["seed"] = secrets.randbelow(MAX_SEED)
        return GenerationRequest(
            request_id=f"req_{secrets.token_hex(8)}",
            prompt=Conversation((*self.instructions(), *conversation)),
            sampling=SamplingParams(**sampling),
            max_tokens=self.max_tokens,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            num_logprobs=num_logprobs,
            num_candidates=num_candidates,
            n=n,
        )


def generation_options(command: Command) -> Command:
    """Add every option of ``GenerationOptions``; the command gets them in one argument, ``options``."""

    @functools.wraps(command)
    def collect(**values: Any) -> None:
        names = [field.name for field in fields(GenerationOptions)]
        if values["system"] is not None:
            values["system"] = argument_text("system", values["system"])
        values["stop"] = tuple(argument_text("stop", text) for text in values["stop"])
        values["logit_bias"] = tuple(sorted(values["logit_bias"]))
        breakers = values["dry_sequence_breakers"] or SamplingParams().dry_sequence_breakers
        values["dry_sequence_breakers"] = tuple(argument_text("dry_sequence_breakers", text) for text in breakers)
        command(options=GenerationOptions(**{name: values.pop(name) for name in names}), **values)

    wrapped: Command = collect
    for decorator in reversed([*_request_options(), *_engine_options()]):
        wrapped = decorator(wrapped)
    return wrapped


def model_options(command: Command) -> Command:
    """Add every option of ``ModelOptions``; the command gets them in one argument, ``options``."""

    @functools.wraps(command)
    def collect(**values: Any) -> None:
        names = [field.name for field in fields(ModelOptions)]
        command(options=ModelOptions(**{name: values.pop(name) for name in names}), **values)

    wrapped: Command = collect
    for decorator in reversed([model_option, *_engine_options()]):
        wrapped = decorator(wrapped)
    return wrapped


def _request_options() -> list[Decorator]:
    return [
        model_option,
        click.option("--system", help="Instructions that stand before the conversation."),
        *_sampling_options(),
        number_option("max_tokens", int, None, "Most tokens to generate"),
        number_option("min_tokens", int, 0, "Tokens before which the answer does not end by itself"),
        click.option("--stop", multiple=True, help="End the answer before this text; may be given several times."),
        click.option(
            "--stop-token-id",
            "stop_token_ids",
            type=int,
            multiple=True,
            help="End the answer at the token with this id; may be given several times.",
        ),
        click.option("--ignore-eos", is_flag=True, help="Go on after the model's own end tokens."),
    ]


def _sampling_options() -> list[Decorator]:
    return [
        number_option("temperature", float, 0.0, "How freely tokens are drawn"),
        number_option("top_p", float, 1.0, "Keep the most likely tokens that together have this probability"),
        number_option("top_k", int, 0, "Keep this many of the most likely tokens"),
        number_option("min_p", float, 0.0, "Drop tokens less likely than this share of the most likely one"),
        number_option("repetition_penalty", float, 1.0, "Make tokens of prompt and answer less likely to come again"),
        number_option("presence_penalty", float, 0.0, "Subtract from the score of each token that the answer has"),
        number_option("frequency_penalty", float, 0.0, "Subtract for each time that the answer has the token"),
        click.option(
            "--logit-bias",
            type=TokenBias(),
            multiple=True,
            help="Add to the score of the token with this id, as in 42=-100; may be given several times "
            f"({LIMITS['logit_bias']}; {LIMITS['logit_bias'].hint}).",
        ),
        number_option("seed", int, None, "Start of the random numbers; the same seed gives the same answer"),
        number_option("typical_p", float, 1.0, "Keep the tokens nearest to the entropy with this probability together"),
        number_option("top_n_sigma", float, 0.0, "Keep scores so many standard deviations below the best"),
        number_option("xtc_probability", float, 0.0, "How often the most likely tokens but the last are dropped (XTC)"),
        number_option("xtc_threshold", float, 0.1, "The probability that these tokens have at least"),
        number_option("dry_multiplier", float, 0.0, "Strength of the penalty for going on with a repetition (DRY)"),
        number_option("dry_base", float, 1.75, "How it grows with each token of the repetition"),
        number_option("dry_allowed_length", int, 2, "The longest repetition that costs no more than the multiplier"),
        number_option("dry_penalty_last_n", int, -1, "Tokens of prompt and answer that DRY looks at"),
        click.option(
            "--dry-sequence-breaker",
            "dry_sequence_breakers",
            multiple=True,
            help="A repetition does not reach across this text; may be given several times, and replaces a line break, "
            "a colon, a double quote and an asterisk.",
        ),
    ]


def _engine_options() -> list[Decorator]:
    return [
        number_option(
            "context", int, None, "Tokens of prompt and answer that fit; what the model was trained for, if left out"
        ),
        click.option(
            "--kv-memory",
            type=ByteSize(),
            help="Memory of the KV cache, as in 2GB or 500MiB; half of what the weights leave, if left out.",
        ),
        click.option(
            "--prefix-cache/--no-prefix-cache",
            default=True,
            show_default=True,
            help="Keep what was computed for later prompts that begin alike.",
        ),
        number_option("threads", int, None, "Threads for arithmetic; one for each core, if left out"),
        _choice(
            "dtype",
            DTYPES,
            "auto",
            "Numbers of the reference kernels, which naming one chooses; auto is bfloat16 where the processor has it.",
        ),
        _choice(
            "kernels",
            KERNELS,
            "auto",
            "native: compiled, for GGUF models; reference: readable torch, for all; auto: native where it can be.",
        ),
        _choice(
            "numerics",
            NUMERICS,
            "invariant",
            "invariant: an answer never depends on what runs beside it; fast: many rows at once in bfloat16, with AMX.",
        ),
        _choice(
            "worker",
            WORKERS,
            "thread",
            "Run the engine in a thread, or in a process of its own, which is started again if it dies.",
        ),
    ]


def number_option(name: str, kind: type, default: float | None, text: str) -> Decorator:
    """An option with a number, whose limits its help names."""
    limit = LIMITS[name]
    hint = f"; {limit.hint}" if limit.hint else ""

    def check(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
        if value is not None:
            check_number(name, value)
        return value

    return click.option(
        f"--{name.replace('_', '-')}",
        type=kind,
        default=default,
        show_default=default is not None,
        callback=check,
        help=f"{text} ({limit}{hint}).",
    )


def _choice(name: str, values: Sequence[str], default: str, text: str) -> Decorator:
    """An option with one of some words."""
    return click.option(f"--{name}", type=click.Choice(values), default=default, show_default=True, help=text)
