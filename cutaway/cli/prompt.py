"""A text from the command line or from standard input."""

import os
import sys

from cutaway.errors import InvalidValue


def argument_text(name: str, argument: str) -> str:
    """A text from the command line, which is UTF-8 whatever the locale says.

    Raises:
        InvalidValue: it is not.
    """
    try:
        return os.fsencode(argument).decode()
    except UnicodeDecodeError as error:
        raise InvalidValue(name, f"byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError as error:
        raise InvalidValue(name, f"character {error.start} is no text") from None


def read_prompt(argument: str | None) -> str:
    """The prompt from the command line or from standard input.

    Raises:
        InvalidValue: it is not UTF-8, or there is none.
    """
    if argument is not None and argument != "-":
        return argument_text("prompt", argument)
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
