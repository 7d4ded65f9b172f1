"""What everybody outside sees of an engine."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from cutaway.glass.receipt import ModelFacts, Receipt
from cutaway.types import Delta, GenerationRequest


@dataclass(frozen=True, slots=True)
class EngineStats:
    """How busy an engine is now."""

    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int


class EngineClient(Protocol):
    """An engine, wherever it runs. Safe to use from one event loop."""

    @property
    def model(self) -> ModelFacts:
        """The model that answers."""
        ...

    def submit(self, request: GenerationRequest) -> AsyncIterator[Delta]:
        """Run a request; the last delta, and only that, carries ``finish``. Leaving the iteration aborts the request.

        Raises:
            InvalidValue, ContextExceeded, TemplateError: the request cannot be turned into a prompt.
            EngineStopped: the engine is gone.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """End a request now; its stream ends with finish reason ``aborted``. Unknown ids are nobody's."""
        ...

    def stats(self) -> EngineStats:
        """How busy the engine is now."""
        ...

    def receipt(self, request_id: str) -> Receipt | None:
        """The receipt of a finished request, while it is kept."""
        ...

    async def drain(self) -> None:
        """Take no new requests, finish those that run, and stop."""
        ...

    def close(self) -> None:
        """Stop: take no new requests, abort those that run, and wait for the step under way."""
        ...
