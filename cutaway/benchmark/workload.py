"""What ``offline`` computes in each round, and whether a model can. No tensors."""

import random
from dataclasses import dataclass

from cutaway.errors import InvalidValue
from cutaway.glass.receipt import ModelFacts
from cutaway.limits import check_number


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of one size, all at the same time, again and again.

    Attributes:
        input_len: tokens of a prompt.
        output_len: tokens of an answer, at least two.
        batch: requests at the same time.
        rounds: that count.
        warmup: rounds before those.
        seed: of the prompts.

    Raises:
        InvalidValue: a value is outside its limits.
    """

    input_len: int
    output_len: int
    batch: int
    rounds: int
    warmup: int
    seed: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_number(name, getattr(self, name))
        if self.output_len < 2:
            raise InvalidValue("output_len", f"{self.output_len} is too short: decode begins with the second token")

    @property
    def num_rounds(self) -> int:
        """All rounds, those of the warm-up too."""
        return self.warmup + self.rounds

    def check_fits(self, model: ModelFacts) -> None:
        """Raises ``InvalidValue`` unless the model's context and its cache hold all requests at the same time."""
        length = self.input_len + self.output_len
        if length > model.context_length:
            raise InvalidValue(
                "input_len",
                f"prompt and answer have {length:,} tokens, but the context holds {model.context_length:,}",
                hint="shorten --input-len or --output-len",
            )
        num_blocks = -(-length // model.block_size) * self.batch
        if num_blocks * model.block_size > model.cache_tokens:
            raise InvalidValue(
                "batch",
                f"{self.batch:,} requests of {length:,} tokens are more than the cache holds, {model.cache_tokens:,}",
                hint="give more --kv-memory, or a smaller --batch",
            )

    def prompt(self, index: int, number: int, vocab_size: int) -> tuple[int, ...]:
        """The tokens of one of the prompts of a round."""
        dice = random.Random(f"{self.seed} {index} {number}")  # noqa: S311 - a prompt is no secret
        return tuple(dice.choices(range(vocab_size), k=self.input_len))
