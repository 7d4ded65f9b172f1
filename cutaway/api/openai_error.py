"""Errors in the shape of OpenAI's API.

Owns which error is which status, type and code. Refuses to know HTTP beyond the number. Invariant: an error that is no
``CutawayError`` tells nothing of itself; it is a bug, and the server's log has it.
Source: https://platform.openai.com/docs/guides/error-codes, and ``openai._exceptions``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cutaway.api.failure import BUSY_RETRY_S, HttpError, Unfinished, bug_message, full_message
from cutaway.errors import (
    ContextExceeded,
    CutawayError,
    EngineStopped,
    InvalidValue,
    TemplateError,
    UnknownModel,
)
from cutaway.types import FinishReason

INVALID, SERVER = "invalid_request_error", "server_error"


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error as it is sent.

    Attributes:
        status: of HTTP.
        type: the kind, by OpenAI's names.
        code: the error's own name.
        message: in words.
        param: the field that is to blame.
        headers: to send with it.
    """

    status: int
    type: str
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The JSON object."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


def error_reply(error: Exception, request_id: str) -> ErrorReply:
    """How an error is told to the client whose request caused it or met it."""
    if not isinstance(error, CutawayError):
        return ErrorReply(500, SERVER, "internal_error", bug_message(request_id))
    message = full_message(error)
    match error:
        case HttpError():
            kind = INVALID if error.status < 500 else SERVER
            return ErrorReply(error.status, kind, error.code, message, headers=error.headers)
        case InvalidValue():
            return ErrorReply(400, INVALID, error.code, message, error.name)
        case UnknownModel():
            return ErrorReply(404, INVALID, "model_not_found", message, "model")
        case ContextExceeded():
            return ErrorReply(400, INVALID, error.code, message, "messages")
        case TemplateError():
            return ErrorReply(400, INVALID, error.code, message, "messages")
        case EngineStopped():
            return ErrorReply(503, SERVER, error.code, message)
        case Unfinished(reason=FinishReason.REJECTED):
            return ErrorReply(503, SERVER, "overloaded", message, headers={"retry-after": str(BUSY_RETRY_S)})
        case Unfinished(reason=FinishReason.ABORTED):
            return ErrorReply(503, SERVER, "aborted", message)
        case _:
            return ErrorReply(500, SERVER, error.code, message)
