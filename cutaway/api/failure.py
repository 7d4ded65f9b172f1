"""What goes wrong with a request around the engine: before its fields are read, and after it was accepted.

Owns the errors that only a server raises. Refuses to know in which shape a vendor tells them.
"""

from collections.abc import Mapping

from cutaway.errors import CutawayError, GenerationError
from cutaway.types import Delta, Finish, FinishReason

# Ends with an answer; every other one is a failure.
ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)
BUSY_RETRY_S = 1


class Unfinished(GenerationError):
    """A request that was accepted ended without an answer."""

    def __init__(self, finish: Finish) -> None:
        super().__init__(f"the request was {finish.reason.value}: {finish.cause}")
        self.reason = finish.reason


class HttpError(CutawayError):
    """What is wrong with a request before anybody reads its fields.

    Args:
        status: of HTTP.
        code: of the error.
        message: what happened.
        hint: what to do about it.
        headers: to send with it.
    """

    def __init__(
        self, status: int, code: str, message: str, *, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


def check_finish(delta: Delta) -> None:
    """Raises ``Unfinished`` if a copy of the request ended without an answer."""
    if delta.finish is not None and delta.finish.reason not in ANSWERED:
        raise Unfinished(delta.finish)


def full_message(error: CutawayError) -> str:
    """What happened, and what to do about it."""
    return f"{error.message} (hint: {error.hint})" if error.hint else error.message


def bug_message(request_id: str) -> str:
    """What a client is told of an error that nobody expected: where to find it."""
    return f"a bug of the server; its log has request {request_id}"
