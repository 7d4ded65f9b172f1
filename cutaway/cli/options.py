"""Options that several commands share, each defined once, and the values they make."""

import functools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import click

from cutaway.cli.model import Command, model_option
from cutaway.cli.prompt import argument_text
from cutaway.engine.options import DTYPES, EngineOptions
from cutaway.limits import LIMITS, MAX_SEED
from cutaway.types import GenerationRequest, Message, Role, SamplingParams


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Everything that says how an answer is made, as the command line gave it; ``None`` means it did not."""

    model: str
    system: str | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int | None
    max_tokens: int | None
    stop: tuple[str, ...]
    context: int | None
    threads: int | None
    dtype: str

    def engine(self) -> EngineOptions:
        """How the engine is set up.

        Raises:
            InvalidValue: a value is outside its limits.
        """
        return EngineOptions(context=self.context, dtype=self.dtype, num_threads=self.threads)

    def instructions(self) -> tuple[Message, ...]:
        """What stands before a conversation: one message, or none without ``--system``."""
        return () if self.system is None else (Message(Role.SYSTEM, self.system, "--system"),)

    def request(
        self, conversation: Sequence[Message], num_logprobs: int | None = None, num_candidates: int = 0
    ) -> GenerationRequest:
        """A request that goes on with a conversation; without a seed, one is drawn. Raises as ``engine``."""
        return GenerationRequest(
            request_id=f"req_{secrets.token_hex(8)}",
            messages=(*self.instructions(), *conversation),
            sampling=SamplingParams(
                temperature=self.temperature,
                top_p=self.top_p,
                top_k=self.top_k,
                min_p=self.min_p,
                repetition_penalty=self.repetition_penalty,
                presence_penalty=self.presence_penalty,
                frequency_penalty=self.frequency_penalty,
                seed=secrets.randbelow(MAX_SEED) if self.seed is None else self.seed,
            ),
            max_tokens=self.max_tokens,
            stop=self.stop,
            num_logprobs=num_logprobs,
            num_candidates=num_candidates,
        )


def generation_options(command: Command) -> Command:
    """Add every option of ``GenerationOptions``; the command gets them in one argument, ``options``."""

    def number(name: str, kind: type, default: float | None, text: str) -> Callable[[Command], Command]:
        limit = LIMITS[name]
        hint = f"; {limit.hint}" if limit.hint else ""
        return click.option(
            f"--{name.replace('_', '-')}",
            type=kind,
            default=default,
            show_default=default is not None,
            help=f"{text} ({limit}{hint}).",
        )

    @functools.wraps(command)
    def collect(**values: Any) -> None:
        names = [field.name for field in fields(GenerationOptions)]
        if values["system"] is not None:
            values["system"] = argument_text("system", values["system"])
        values["stop"] = tuple(argument_text("stop", text) for text in values["stop"])
        command(options=GenerationOptions(**{name: values.pop(name) for name in names}), **values)

    decorators: list[Callable[[Command], Command]] = [
        model_option,
        click.option("--system", help="Instructions that stand before the conversation."),
        number("temperature", float, 0.0, "How freely tokens are drawn"),
        number("top_p", float, 1.0, "Keep the most likely tokens that together have this probability"),
        number("top_k", int, 0, "Keep this many of the most likely tokens"),
        number("min_p", float, 0.0, "Drop tokens less likely than this share of the most likely one"),
        number("repetition_penalty", float, 1.0, "Make tokens of prompt and answer less likely to come again"),
        number("presence_penalty", float, 0.0, "Subtract from the score of each token that the answer has"),
        number("frequency_penalty", float, 0.0, "Subtract for each time that the answer has the token"),
        number("seed", int, None, "Start of the random numbers; the same seed gives the same answer"),
        number("max_tokens", int, None, "Most tokens to generate"),
        click.option("--stop", multiple=True, help="End the answer before this text; may be given several times."),
        number(
            "context", int, None, "Tokens of prompt and answer that fit; what the model was trained for, if left out"
        ),
        number("threads", int, None, "Threads for arithmetic; one for each core, if left out"),
        click.option(
            "--dtype",
            type=click.Choice(DTYPES),
            default="auto",
            show_default=True,
            help="Numbers to compute with; auto is bfloat16 where the processor has it, else float32.",
        ),
    ]
    wrapped: Command = collect
    for decorator in reversed(decorators):
        wrapped = decorator(wrapped)
    return wrapped
