"""A model's chat template, run under limits.

Owns the limits and what goes wrong in words for a user. Refuses to know tokenizers. Sources: Jinja; the environment
that transformers gives to templates (utils/chat_template_utils.py): ``trim_blocks`` and ``lstrip_blocks``, ``tojson``
without HTML escapes, ``raise_exception``, ``strftime_now``, loop controls and ``{% generation %}``.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from cutaway.errors import CorruptFile, TemplateError
from cutaway.text.renderer import UNTRUSTED, Renderer

MAX_SOURCE_CHARS = 256 * 1024
# Fuel is about one a step of the template and one for ten characters that it moves.
BASE_FUEL = 100_000
FUEL_PER_MESSAGE = 1_000
BASE_OUTPUT_CHARS = 1_000_000
OUTPUT_PER_CHAR = 4
BASE_SECONDS = 2.0
SECONDS_PER_MEGACHAR = 1.0


class ChatTemplate:
    """Turns messages into the text that a model was trained on.

    Args:
        source: the template.
        variables: what it may use beside the messages: ``bos_token``, ``eos_token`` and the like.
        clock: tells the time to templates that write the date.
        renderer: runs it; an own one by default.

    Raises:
        TemplateError: the source is longer than ``MAX_SOURCE_CHARS``.
        CorruptFile: the source is no text.
    """

    def __init__(
        self,
        source: str,
        variables: Mapping[str, object],
        clock: Callable[[], datetime] = datetime.now,
        renderer: Renderer | None = None,
    ) -> None:
        if len(source) > MAX_SOURCE_CHARS:
            raise TemplateError(
                f"the chat template has {len(source):,} characters, more than the limit of {MAX_SOURCE_CHARS:,}",
                hint=UNTRUSTED,
            )
        try:
            source.encode()
        except UnicodeEncodeError:
            raise CorruptFile("the chat template holds half of a surrogate pair, which is no text") from None
        self.source = source
        self._variables = dict(variables)
        self._clock = clock
        self._renderer = renderer or Renderer()

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt text for ``messages`` (``role`` and ``content`` each), up to where the assistant's answer begins.

        Raises:
            TemplateError: the template does not take these messages, is not valid, or ran into a limit; the message
                says which, and the limit.
        """
        num_chars = sum(len(message["content"]) for message in messages)
        fuel = BASE_FUEL + FUEL_PER_MESSAGE * len(messages) + num_chars
        max_output_chars = BASE_OUTPUT_CHARS + OUTPUT_PER_CHAR * num_chars
        seconds = BASE_SECONDS + SECONDS_PER_MEGACHAR * num_chars / 1e6
        job = {
            "source": self.source,
            "context": {
                "tools": None,
                "documents": None,
                **self._variables,
                "messages": list(messages),
                "add_generation_prompt": True,
            },
            "now": self._clock().isoformat(),
            "fuel": fuel,
            "max_output_chars": max_output_chars,
        }
        reply = self._renderer.render(job, seconds)
        if "error" in reply:
            raise _explain(reply, {"fuel": fuel, "output": max_output_chars})
        return str(reply["text"])


def _explain(reply: Mapping[str, object], limits: Mapping[str, int]) -> TemplateError:
    kind, detail, line = str(reply["error"]), str(reply["detail"])[:500], reply.get("line")
    where = "" if line is None else f" in line {line}"
    if kind == "Refused":
        return TemplateError(
            f"the chat template does not take these messages: {detail}",
            hint="many models want user and assistant to take turns, the user first, and some have no system message",
        )
    if kind == "OutOfFuel":
        return TemplateError(
            f"the chat template{where} ran out of its limit of {limits['fuel']:,} steps", hint=UNTRUSTED
        )
    if kind == "OutputTooLong":
        return TemplateError(
            f"the chat template wrote {detail} characters, more than the limit of {limits['output']:,}",
            hint=UNTRUSTED,
        )
    if kind == "MemoryError":
        return TemplateError("the chat template ran out of its limit of memory", hint=UNTRUSTED)
    if kind == "RecursionError" or "recursion limit" in detail:
        return TemplateError(f"the chat template{where} is nested or calls itself too deeply", hint=UNTRUSTED)
    if kind == "SyntaxError":
        return TemplateError(f"the chat template is not valid{where}: {detail}", hint=UNTRUSTED)
    return TemplateError(
        f"the chat template failed{where}: {detail}",
        hint="it may use something that Cutaway does not offer to templates; please report the model",
    )
