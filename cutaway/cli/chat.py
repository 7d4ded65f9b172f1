"""``cutaway chat``: a conversation in the terminal."""

import asyncio
import contextlib
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from cutaway.cli.ask import print_notices, unfinished
from cutaway.cli.options import GenerationOptions, generation_options
from cutaway.cli.output import stream, tell
from cutaway.cli.session import open_session
from cutaway.engine.interrupts import interrupts_held
from cutaway.errors import CutawayError, InvalidValue
from cutaway.glass.cache_facts import describe_cache
from cutaway.types import Finish, FinishReason, GenerationRequest, Message, Role

EXIT = "/exit"
HELP = """\
/system [TEXT]   show or set the instructions that stand before the conversation; /system - removes them
/reset           forget the conversation, but not the instructions
/model [NAME]    show the model, or go on with another one
/save FILE       write the conversation to FILE, as Markdown if it ends in .md, else as JSON
/help            this list
/exit            end the chat
//TEXT           a message that begins with a slash
Ctrl-C stops an answer, Ctrl-D ends the chat."""


@click.command(help=f"Talk with a model.\n\n\b\nAt the prompt:\n{HELP}")
@generation_options
def chat(options: GenerationOptions) -> None:
    """Hold a conversation until the input ends."""
    options.request([Message(Role.USER, "")])  # refuses wrong values before a model is loaded
    conversation = Conversation(options)
    tell(f"{options.model}: type a message, or /help. Ctrl-D ends the chat.")
    tell(describe_cache(conversation.session.engine.model))
    _prepare_input()
    try:
        while (line := _read_line()) is not None and line.split()[:1] != [EXIT]:
            # Piped lines are no different from typed ones: what is wrong with one of them does not keep the next back.
            try:
                conversation.obey(_checked(line))
            except CutawayError as error:
                tell(f"error: {error}")
            except KeyboardInterrupt:
                tell("\n(stopped)")
    finally:
        with interrupts_held():
            conversation.session.engine.close()


class Conversation:
    """The history of a chat, and the engine that continues it.

    Args:
        options: of the command line; ``/system`` and ``/model`` change them.
    """

    def __init__(self, options: GenerationOptions) -> None:
        self.options = options
        self.session = open_session(options.model, options.engine())
        self.history: list[Message] = []

    def obey(self, line: str) -> None:
        """Do what a line says: a command if it begins with a slash, else a message to the model.

        Raises:
            CutawayError: it cannot be done; the conversation is as before.
            KeyboardInterrupt: the user stopped it; the conversation is as before.
        """
        text = line.strip()
        if not text:
            return
        if not text.startswith("/") or text.startswith("//"):
            self._answer(text.removeprefix("/"))
            return
        command, _, rest = text.partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "/system": self._system,
            "/reset": self._reset,
            "/model": self._model,
            "/save": self._save,
            "/help": lambda _: tell(HELP),
        }
        if command not in commands:
            raise InvalidValue(
                "command",
                f"{command} is none of {', '.join(commands)}, {EXIT}",
                hint="a message that begins with a slash is typed with two",
            )
        commands[command](rest.strip())

    def _answer(self, text: str) -> None:
        """Ask the model, print the answer as it comes, and remember both; an answer that was stopped stays as it is."""
        question = Message(Role.USER, text, "question")
        request = self.options.request([*self.history, question])
        parts: list[str] = []
        try:
            finish = asyncio.run(self._run(request, parts))
        except KeyboardInterrupt:
            finish = None
            tell("\n(stopped)")
        answer = Message(Role.ASSISTANT, "".join(parts), "history")
        if finish is None and not answer.content:
            return  # stopped before it began: there is no turn to remember
        if finish is not None and finish.reason in (FinishReason.REJECTED, FinishReason.FAILED):
            tell(f"error: {unfinished(finish.reason, finish.cause)}")
        else:
            self.history += [replace(question, origin="history"), answer]

    async def _run(self, request: GenerationRequest, parts: list[str]) -> Finish | None:
        finish = None
        async for delta in self.session.engine.submit(request):
            print_notices(delta)
            parts.append(delta.text)
            stream(delta.text)
            finish = delta.finish
        click.echo()
        return finish

    def _system(self, text: str) -> None:
        if text:
            self.options = replace(self.options, system=None if text == "-" else text)
        tell(f"system: {self.options.system or '(none)'}")

    def _reset(self, _: str) -> None:
        self.history.clear()
        tell("the conversation is forgotten" + (", the instructions stay" if self.options.system else ""))

    def _model(self, name: str) -> None:
        if name:
            # The old model goes only when the new one is there, so that whatever happens there is one to go on with.
            old, self.session = self.session, open_session(name, self.options.engine())
            self.options = replace(self.options, model=name)
            old.engine.close()
        tell(f"model: {self.options.model}")

    def _save(self, name: str) -> None:
        if not name:
            raise InvalidValue("file", "there is no name", hint="/save tomato.md")
        messages = [*self.options.instructions(), *self.history]
        if name.endswith(".md"):
            content = "".join(f"**{message.role.value}**\n\n{message.content}\n\n" for message in messages)
        else:
            plain = [{"role": message.role.value, "content": message.content} for message in messages]
            content = json.dumps({"model": self.options.model, "messages": plain}, ensure_ascii=False, indent=2) + "\n"
        data = content.encode("utf-8", "backslashreplace")  # a model's path may be in no encoding
        try:
            path = Path(name).expanduser()
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            raise InvalidValue("file", f"{name} exists already", hint="choose another name") from None
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidValue("file", f"{name} cannot be written: {reason}") from None
        tell(f"saved {len(messages)} messages to {path}")


def _prepare_input() -> None:
    """Read bytes that are not UTF-8 as such, whatever the locale, and give ``input`` a history and editing keys."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    with contextlib.suppress(ImportError):  # not on every platform
        import readline  # noqa: F401 - its import gives input() a history and editing keys


def _read_line() -> str | None:
    """The next line, ``None`` at the end of input. Ctrl-C gives up the line that is being typed.

    Raises:
        InvalidValue: there is nothing to read lines from.
    """
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            return input(prompt)
        except EOFError:
            if prompt:
                click.echo()
            return None
        except KeyboardInterrupt:
            click.echo()
        except BrokenPipeError:  # of the prompt
            raise
        except OSError as error:
            raise InvalidValue("input", f"standard input cannot be read: {error.strerror or error}") from None


def _checked(line: str) -> str:
    """The line, unless it has bytes that ``_prepare_input`` let through.

    Raises:
        InvalidValue: it is not UTF-8.
    """
    try:
        return line.encode("utf-8", "surrogateescape").decode()
    except UnicodeDecodeError as error:
        raise InvalidValue(
            "input", f"byte {error.start} of the line is not UTF-8", hint="convert it, for example with iconv"
        ) from None
