"""One exception tree for everything that can go wrong outside a bug.

Every error says *what* happened, *which value* caused it and *which limit* it broke, and may carry a hint
that says what to do next. The command line prints the message and the hint, never a stack trace, and exits
with ``exit_code``; a server answers with ``code`` in the error shape of its API.

    CutawayError                     exit 1
    ├── UsageError                   exit 2: what was asked for cannot be done as asked
    │   ├── InvalidValue             one named value is of the wrong kind or outside its limits
    │   ├── UnknownModel             no model of that name, file or folder
    │   └── ContextExceeded          the prompt is longer than the context
    ├── ModelError                   exit 1: the model's files are at fault
    │   ├── CorruptFile              cut, malformed or inconsistent file
    │   ├── UnsupportedModel         architecture, tensor type or tokenizer that Cutaway does not know
    │   ├── MissingTensor            a tensor that the architecture needs is not in the file
    │   └── WrongShape               a tensor is there, but not of the shape that the architecture needs
    ├── DownloadError                exit 1: a model could not be fetched
    │   ├── NetworkError             refused, timed out, or cut
    │   ├── ChecksumMismatch         what arrived is not what was published
    │   └── DiskFull                 no room for it
    ├── TemplateError                exit 1: a chat template failed or ran into its limits
    ├── OutOfMemory                  exit 1: what was needed, and what there is
    ├── GenerationError              exit 1: one request failed while it ran; its neighbours go on
    └── EngineStopped                exit 1: the engine is gone, or was never there
"""

import copyreg


class CutawayError(Exception):
    """Base of every error that Cutaway raises on purpose.

    Attributes:
        code: stable, machine-readable name of the kind of error.
        message: what happened, with the value and the limit.
        hint: what to do about it; empty when there is nothing to advise.
        exit_code: the exit status of a command that ends with this error.
    """

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # As it is, without going through the constructor of its kind; errors cross from one process to another.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(CutawayError):
    """What was asked for cannot be done as asked."""

    code = "usage"
    exit_code = 2


class InvalidValue(UsageError):
    """One named value is of the wrong kind or outside its limits."""

    code = "invalid_value"

    def __init__(self, name: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"{name}: {message}", hint=hint)
        self.name = name

    def renamed(self, name: str, where: str = "") -> "InvalidValue":
        """The same error under another name, and with words in front that say where in the value it is."""
        return InvalidValue(name, where + self.message.removeprefix(f"{self.name}: "), hint=self.hint)


class UnknownModel(UsageError):
    """No model of that name, file or folder."""

    code = "unknown_model"


class ContextExceeded(UsageError):
    """The prompt, which the request has under ``name``, does not fit into the context."""

    code = "context_length_exceeded"

    def __init__(self, num_prompt_tokens: int, context_length: int, name: str = "messages") -> None:
        super().__init__(
            f"the prompt has {num_prompt_tokens:,} tokens, but the context holds {context_length:,}, "
            "one of which must stay free for the answer",
            hint="shorten the prompt or start the model with a larger --context, if it was trained for one",
        )
        self.num_prompt_tokens = num_prompt_tokens
        self.context_length = context_length
        self.name = name


class ModelError(CutawayError):
    """The model's files are at fault."""

    code = "model"


class CorruptFile(ModelError):
    """A cut, malformed or inconsistent file."""

    code = "corrupt_file"


class UnsupportedModel(ModelError):
    """An architecture, tensor type or tokenizer that Cutaway does not know."""

    code = "unsupported_model"


class MissingTensor(ModelError):
    """A tensor that the architecture needs is not in the file."""

    code = "missing_tensor"


class WrongShape(ModelError):
    """A tensor is there, but not of the shape that the architecture needs."""

    code = "wrong_shape"


class DownloadError(CutawayError):
    """A model could not be fetched; nothing half-written was kept."""

    code = "download"


class NetworkError(DownloadError):
    """The network refused, timed out, or cut the transfer."""

    code = "network"


class ChecksumMismatch(DownloadError):
    """What arrived is not what was published."""

    code = "checksum_mismatch"


class DiskFull(DownloadError):
    """There is no room for the download."""

    code = "disk_full"


class TemplateError(CutawayError):
    """A chat template failed or ran into its limits."""

    code = "template"


class OutOfMemory(CutawayError):
    """More memory is needed than there is."""

    code = "out_of_memory"

    def __init__(self, purpose: str, needed_bytes: int, available_bytes: int, *, hint: str = "") -> None:
        super().__init__(
            f"{purpose} needs {needed_bytes / 1e6:,.0f} MB of memory, "
            f"but {available_bytes / 1e6:,.0f} MB are available",
            hint=hint,
        )
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class GenerationError(CutawayError):
    """One request failed while it ran; its neighbours go on."""

    code = "generation"


class EngineStopped(CutawayError):
    """The engine is gone, or its process ended before it was there."""

    code = "engine_stopped"
