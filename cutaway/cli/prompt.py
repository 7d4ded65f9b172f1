"""A text from the command line or from standard input."""

import sys

from cutaway.errors import InvalidValue


def read_prompt(argument: str | None) -> str:
    """The prompt from the command line or from standard input.

    Raises:
        InvalidValue: it is not UTF-8, or there is none.
    """
    if argument is not None and argument != "-":
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue("prompt", f"character {error.start} is not UTF-8") from None
        return argument
    if argument is None and sys.stdin.isatty():
        raise InvalidValue("prompt", "there is none", hint='cutaway ask "Is a tomato a fruit?"')
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidValue(
            "prompt", f"byte {error.start} of standard input is not UTF-8", hint="convert it, for example with iconv"
        ) from None
    except OSError as error:
        raise InvalidValue("prompt", f"standard input cannot be read: {error.strerror or error}") from None
