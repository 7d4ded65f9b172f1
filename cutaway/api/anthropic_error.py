"""Errors in the shape of Anthropic's API.

Owns which error is which status and type. Refuses to know HTTP beyond the number. Invariant: an error that is no
``CutawayError`` tells nothing of itself; it is a bug, and the server's log has it.
Source: https://platform.claude.com/docs/en/api/errors; ``invalid_request_error`` is there also for every status of
400 to 499 that has no type of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cutaway.api.failure import BUSY_RETRY_S, HttpError, Unfinished, bug_message, full_message
from cutaway.errors import ContextExceeded, CutawayError, EngineStopped, InvalidValue, TemplateError, UnknownModel
from cutaway.types import FinishReason

INVALID, NOT_FOUND, TOO_LARGE = "invalid_request_error", "not_found_error", "request_too_large"
OVERLOADED, SERVER = "overloaded_error", "api_error"
TYPES_OF_STATUS: Mapping[int, str] = {404: NOT_FOUND, 413: TOO_LARGE}
# Of this vendor alone: too many requests wait.
OVERLOADED_STATUS = 529


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error as it is sent.

    Attributes:
        status: of HTTP.
        type: the kind, by Anthropic's names.
        message: in words.
        request_id: of the request that met it.
        headers: to send with it.
    """

    status: int
    type: str
    message: str
    request_id: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The JSON object."""
        error = {"type": self.type, "message": self.message}
        return {"type": "error", "error": error, "request_id": self.request_id}


def error_reply(error: Exception, request_id: str) -> ErrorReply:
    """How an error is told to the client whose request caused it or met it."""
    if not isinstance(error, CutawayError):
        return ErrorReply(500, SERVER, bug_message(request_id), request_id)
    status, kind, headers = _kind(error)
    return ErrorReply(status, kind, full_message(error), request_id, headers)


def _kind(error: CutawayError) -> tuple[int, str, Mapping[str, str]]:
    """Status, type and headers of an error."""
    match error:
        case HttpError():
            others = INVALID if error.status < 500 else SERVER
            return error.status, TYPES_OF_STATUS.get(error.status, others), error.headers
        case InvalidValue() | ContextExceeded() | TemplateError():
            return 400, INVALID, {}
        case UnknownModel():
            return 404, NOT_FOUND, {}
        case Unfinished(reason=FinishReason.REJECTED):
            return OVERLOADED_STATUS, OVERLOADED, {"retry-after": str(BUSY_RETRY_S)}
        case EngineStopped() | Unfinished(reason=FinishReason.ABORTED):
            return 503, SERVER, {}
        case _:
            return 500, SERVER, {}
