"""Errors in the shape of OpenAI's API.

Owns which error is which status, type and code. Refuses to know HTTP beyond the number. Invariant: an error that is no
``CutawayError`` tells nothing of itself; it is a bug, and the server's log has it.
Source: https://platform.openai.com/docs/guides/error-codes, and ``openai._exceptions``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cutaway.errors import (
    ContextExceeded,
    CutawayError,
    EngineStopped,
    GenerationError,
    InvalidValue,
    TemplateError,
    UnknownModel,
)
from cutaway.types import Finish, FinishReason

INVALID, SERVER = "invalid_request_error", "server_error"
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
        self.headers = headers or {}


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
        return ErrorReply(500, SERVER, "internal_error", f"a bug of the server; its log has request {request_id}")
    message = f"{error.message} (hint: {error.hint})" if error.hint else error.message
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
