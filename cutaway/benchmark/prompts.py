"""What a server is asked: random words, or the lines of a file. Standard library only."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import InvalidValue
from cutaway.limits import MAX_PROMPT_CHARS, check_number

MAX_DATASET_BYTES = 1 << 30

# Common words, each a token of its own in most vocabularies when a space is in front of it.
_WORDS = """
about above after again air all also always and animal another answer any around ask away back because been before
begin below between big book both boy but call came can car change children city close come could country cut day did
different does done down each earth eat end enough even every example eye face family far father feet few find first
follow food for form found four from get girl give good great group grow hand hard have head hear help here high home
house how idea important into just keep kind know land large last late learn leave left letter life light like line list
little live long look made make man many mean men might mile more most mother mountain move much must name near need
never new next night number off often old once one only open other our over own page paper part people picture place
plant play point put question quick read really right river run said same saw say school sea second see seem sentence
set she should show side small some something song soon sound spell stand start state still stop story study such take
talk tell than that them then there these they thing think this thought three through time together too took tree try
turn two under until use very walk want watch water way well went were what when where which while white who why will
with without word work world would write year young your
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question.

    Attributes:
        text: of the prompt.
        max_tokens: most tokens of the answer.
    """

    text: str
    max_tokens: int

    @property
    def num_words(self) -> int:
        """Words of the text, which stand for tokens where nobody counts those."""
        return len(self.text.split())


def random_prompts(num_prompts: int, input_len: int, output_len: int, seed: int) -> list[Prompt]:
    """Prompts of ``input_len`` random words; the same seed gives the same ones.

    Raises:
        InvalidValue: a length is outside its limits.
    """
    check_number("input_len", input_len)
    check_number("output_len", output_len)
    dice = random.Random(f"prompts {seed}")  # noqa: S311 - a prompt is no secret
    words = _WORDS.split()
    return [Prompt(" ".join(dice.choices(words, k=input_len)), output_len) for _ in range(num_prompts)]


def read_dataset(path: Path, output_len: int) -> list[Prompt]:
    """The prompts of a file of JSON lines: ``{"prompt": "…", "max_tokens": 128}``, the second for ``output_len``.

    Raises:
        InvalidValue: the file cannot be read, is larger than its limit, or a line is not of that form; it is named.
    """
    check_number("output_len", output_len)
    try:
        if path.stat().st_size > MAX_DATASET_BYTES:
            raise InvalidValue("dataset", f"{path} is larger than the limit of {MAX_DATASET_BYTES:,} bytes")
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidValue("dataset", f"{path} cannot be read: {reason}") from None
    prompts = [
        _parse(f"line {number} of {path}", line, output_len) for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not prompts:
        raise InvalidValue("dataset", f"{path} has no prompts")
    return prompts


def _parse(where: str, line: str, output_len: int) -> Prompt:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    text = value.get("prompt") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(text, str) or not 1 <= len(text) <= MAX_PROMPT_CHARS:
        raise InvalidValue(
            "dataset",
            f"{where} is no object with a prompt of 1 to {MAX_PROMPT_CHARS:,} characters",
            hint='each line is like {"prompt": "Is a tomato a fruit?", "max_tokens": 64}',
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            "dataset", f"{where}: character {error.start} is half of a surrogate pair, which is no text"
        ) from None
    unknown = sorted(set(value) - {"prompt", "max_tokens"})
    if unknown:
        raise InvalidValue("dataset", f"{where} has {', '.join(unknown)}, which nothing here knows")
    max_tokens = value.get("max_tokens", output_len)
    try:
        check_number("max_tokens", max_tokens)
    except InvalidValue as error:
        raise InvalidValue("dataset", f"{where}: {error.message}") from None
    return Prompt(text, max_tokens)
