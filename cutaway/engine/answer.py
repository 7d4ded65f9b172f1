"""The growing answer of one request: tokens in, showable text out."""

from dataclasses import dataclass

from cutaway.text.detokenizer import Detokenizer
from cutaway.text.stops import StopMatcher
from cutaway.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """What a token added.

    Attributes:
        text: text that can be shown now.
        num_held_bytes: bytes held back, since they may be half a character or begin a stop string.
    """

    text: str
    num_held_bytes: int


class Answer:
    """Joins the detokenizer and the stop matcher of a request.

    Args:
        tokenizer: of the model.
        last_prompt_id: the token that the answer follows.
        stop: strings that end the answer.
        min_tokens: a stop string that is complete with the text of so many tokens, or of fewer, ends nothing.
            Source: ``update`` in ``vllm/v1/engine/detokenizer.py``.
    """

    def __init__(self, tokenizer: Tokenizer, last_prompt_id: int, stop: tuple[str, ...], min_tokens: int = 0) -> None:
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._detokenizer = Detokenizer(tokenizer, last_prompt_id)
        self._matcher = StopMatcher(stop)
        self.stop: str | None = None  # the stop string that the answer has reached

    def push(self, token_id: int) -> Piece:
        """Take in a token."""
        self._num_tokens += 1
        text = self._match(self._detokenizer.push(token_id))
        return Piece(text, self._num_held_bytes())

    def flush(self) -> str:
        """The text held back, now that no token will follow. A stop string may still complete in it."""
        text = self._match(self._detokenizer.flush())
        return text if self.stop is not None else text + self._matcher.flush()

    def _match(self, text: str) -> str:
        """Look for stop strings in new text; gives what can be shown."""
        if self._num_tokens <= self._min_tokens:
            return self._matcher.skip(text)
        shown, self.stop = self._matcher.push(text)
        return shown

    def _num_held_bytes(self) -> int:
        return len(self._detokenizer.held) + len(self._matcher.held.encode())
