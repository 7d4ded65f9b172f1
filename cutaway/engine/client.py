"""What everybody outside sees of an engine."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cutaway.glass.receipt import ModelFacts, PromptFacts, Receipt, Spelling
from cutaway.types import Delta, Finish, GenerationRequest, Message, Prompt, TokenPrompt


@dataclass(frozen=True, slots=True)
class EngineStats:
    """How busy an engine is now; copies of a request count as requests.

    Attributes:
        num_running: requests that hold blocks of the cache.
        num_waiting: requests that do not.
        num_free_blocks: blocks of the cache that no request counts on.
        num_blocks: all of them.
        num_deferred: those that wait for the prompt that they share; they are among ``num_waiting``.
    """

    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int
    num_deferred: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What is new of one copy of a request.

    Attributes:
        num_prompt_tokens: length of the prompt, once for each request: when the first token of any copy tells that it
            was read; else 0.
        num_generated_tokens: tokens chosen; those of all progress of a copy add up to its usage.
        finish: set in the last one of each copy, and only there.
        receipt: comes with the finish, unless the engine was lost or the request never reached it.
    """

    num_prompt_tokens: int
    num_generated_tokens: int
    finish: Finish | None = None
    receipt: Receipt | None = None


Watcher = Callable[[Progress], None]


class EngineClient(Protocol):
    """An engine, wherever it runs. Safe to use from one event loop."""

    @property
    def model(self) -> ModelFacts:
        """The model that answers."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether it takes requests: it was not told to stop, and has not stopped by itself."""
        ...

    def submit(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        """Run a request. Leaving the iteration aborts it.

        The first delta, mostly an empty one, comes as soon as the request has been made a prompt. The last delta of
        each of its ``n`` copies carries ``finish``, and no other; deltas of copies are interleaved. If the engine is
        lost, that is a finish with the reason ``failed``.

        Raises:
            InvalidValue, ContextExceeded, TemplateError: the request cannot be turned into a prompt.
            EngineStopped: the engine takes no more requests.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """End a request now; its stream ends with finish reason ``aborted``. Unknown ids are nobody's."""
        ...

    async def pin(self, pin_id: str, messages: Sequence[Message], seconds: float, salt: str = "") -> int:
        """Keep what the cache has of a conversation for a time; returns how many tokens that is.

        It is 0 if the cache has nothing of it, or if it would pin more than half of the cache. A pin of the same id is
        replaced. Pins yield when the last request could otherwise not go on, and end when the engine is lost.

        Raises:
            InvalidValue, TemplateError: the messages cannot be made a prompt, or ``seconds`` is outside its limits.
            EngineStopped: the engine takes no more requests, or was lost meanwhile.
        """
        ...

    async def release(self, pin_id: str) -> None:
        """Let go of a pin. Unknown ids hold nothing."""
        ...

    async def render(self, request: GenerationRequest) -> PromptFacts:
        """The prompt that a request would get, without running it.

        Raises:
            InvalidValue, ContextExceeded, TemplateError: as ``submit``.
        """
        ...

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens of a prompt, however many.

        Raises:
            InvalidValue, TemplateError: it cannot be made a prompt.
        """
        ...

    async def detokenize(self, tokens: TokenPrompt) -> str:
        """The text that tokens stand for: control tokens spelled out, U+FFFD for bytes that are no UTF-8.

        Raises:
            InvalidValue: the vocabulary has no such token.
        """
        ...

    def stats(self) -> EngineStats:
        """How busy the engine is now."""
        ...

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody of the progress of every request from now on.

        It is called from threads of the engine, which wait meanwhile, so it has to be quick.
        """
        ...

    def spelling(self, token_id: int) -> Spelling:
        """How the model's vocabulary writes a token."""
        ...

    def receipt(self, request_id: str, index: int = 0) -> Receipt | None:
        """The receipt of a finished copy of a request.

        ``None`` if it is kept no longer, or if the engine was lost before the copy ended.
        """
        ...

    async def drain(self) -> None:
        """Take no new requests, finish those that run, and stop."""
        ...

    def close(self) -> None:
        """Stop: take no new requests, abort those that run, and wait for the step under way."""
        ...
