"""Messages, a text or tokens to a prompt: what a chat template makes of them, who wrote which character, the token ids.

Owns the order of things: escape what people wrote, render, encode, put BOS in front exactly once. Refuses to know
vocabularies and template languages. Two steps, so that callers can time them: ``render`` or ``render_text``, and
``encode``; tokens need neither, and ``spell_prompt`` says what they stand for. Invariants: segments cover the text
without gaps or overlaps; no character of a message is part of a control token. Whoever sends a text writes the whole
prompt, so control tokens that are spelled out in a text are control tokens, as with vLLM and llama.cpp.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cutaway.errors import InvalidValue, TemplateError
from cutaway.text.detokenizer import spell_text
from cutaway.text.escape import escape_marks
from cutaway.text.provenance import Origin, find_origins
from cutaway.text.template import ChatTemplate
from cutaway.text.tokenizer import Encoding, Tokenizer
from cutaway.types import Message, TextPrompt, TokenPrompt

# Messages with a template or without one, a text, tokens.
Kind = Literal["chat", "completion", "text", "tokens"]

# Between the messages of a model that has no chat template.
SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the prompt text that came from one source.

    Attributes:
        start, end: in characters of the text.
        message: index of the message whose content it is, 0 for a text or tokens; ``None`` for what the template wrote.
    """

    start: int
    end: int
    message: int | None


@dataclass(frozen=True, slots=True)
class Rendering:
    """A prompt as text.

    Attributes:
        text: as people see it.
        escaped: the same with the marks of ``Tokenizer.escape``, which is what is encoded.
        segments: parts of the text, in order; together all of it.
        kind: what it was made of; all but ``chat`` are continued as they stand.
        notices: what a user should know about it.
        name: of what the client sent, for errors.
        adds_bos: whether BOS is put in front, if the model wants it.
    """

    text: str
    escaped: str
    segments: tuple[Segment, ...]
    kind: Kind
    notices: tuple[str, ...]
    name: str = "messages"
    adds_bos: bool = True


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt, ready for a model.

    Attributes:
        text: what the ids stand for; spans and segments count its characters.
        encoding: the token ids, BOS in front included, and the span of each.
        segments, kind, notices: as in ``Rendering``.
    """

    text: str
    encoding: Encoding
    segments: tuple[Segment, ...]
    kind: Kind
    notices: tuple[str, ...]


def render_prompt(tokenizer: Tokenizer, template: ChatTemplate | None, messages: Sequence[Message]) -> RenderedPrompt:
    """``render`` and ``encode`` in one; errors as theirs."""
    return encode(tokenizer, render(tokenizer, template, messages))


def render(tokenizer: Tokenizer, template: ChatTemplate | None, messages: Sequence[Message]) -> Rendering:
    """Write the messages as one text.

    Without a template the contents are joined by an empty line, whoever speaks; a single one stands alone.

    Raises:
        InvalidValue: a content is no text.
        TemplateError: the template failed, or does not take these messages.
    """
    for index, message in enumerate(messages):
        _check_text("messages", message.content, f" of message {index}")
    contents = [tokenizer.escape(message.content) for message in messages]
    if template is None:
        escaped = SEPARATOR.join(contents)
        origins = find_origins(escaped, contents, None)
    else:
        roles = [message.role.value for message in messages]

        def write(texts: Sequence[str]) -> str:
            return template.render([{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)])

        def write_again(texts: Sequence[str]) -> str | None:
            try:
                return write(texts)
            except TemplateError:
                return None  # it looks into the contents, and markers put it off

        escaped = write(contents)
        origins = find_origins(escaped, contents, write_again)
    text = tokenizer.unescape(escaped)
    segments = _cover(tokenizer, escaped, len(text), origins)
    return Rendering(text, escaped, segments, *_describe(tokenizer, template, len(messages)))


def render_text(tokenizer: Tokenizer, prompt: TextPrompt) -> Rendering:
    """Take a text as it is.

    Raises:
        InvalidValue: it is no text.
    """
    _check_text(prompt.origin, prompt.text, "")
    segments = _whole(prompt.text)
    escaped = escape_marks(prompt.text)
    return Rendering(
        prompt.text, escaped, segments, "text", tokenizer.notices, prompt.origin, prompt.add_special_tokens
    )


def encode(tokenizer: Tokenizer, rendering: Rendering) -> RenderedPrompt:
    """Turn the text into ids, with BOS in front exactly once if it is wanted.

    Raises:
        InvalidValue: the prompt has no tokens at all.
        TemplateError: the template put a control token together from its own text and a message's.
    """
    encoding = tokenizer.encode(rendering.escaped)
    bos_id = tokenizer.bos_id if rendering.adds_bos else None
    if bos_id is not None and encoding.token_ids[:1] != (bos_id,):
        encoding = Encoding((bos_id, *encoding.token_ids), ((0, 0), *encoding.spans))
    if not encoding.token_ids:
        raise InvalidValue(rendering.name, "the prompt is empty: there is nothing to continue", hint="write something")
    if rendering.kind != "text":
        _refuse_forged(tokenizer, rendering, encoding)
    notices = rendering.notices + _missing_characters(rendering, encoding)
    return RenderedPrompt(rendering.text, encoding, rendering.segments, rendering.kind, notices)


def spell_prompt(tokenizer: Tokenizer, prompt: TokenPrompt) -> RenderedPrompt:
    """Take tokens as they are, and say what they stand for.

    Raises:
        InvalidValue: the vocabulary has no such token.
    """
    last_id = tokenizer.vocab_size - 1
    for place, token_id in enumerate(prompt.token_ids):
        if token_id > last_id:
            raise InvalidValue(
                prompt.origin,
                f"the id {token_id} at position {place:,} is outside of the vocabulary, 0 to {last_id}",
                hint="ids of another model's tokenizer mean nothing here",
            )
    text, spans = spell_text(tokenizer, prompt.token_ids)
    return RenderedPrompt(text, Encoding(prompt.token_ids, spans), _whole(text), "tokens", tokenizer.notices)


def _whole(text: str) -> tuple[Segment, ...]:
    """One segment from one client; none of nothing."""
    return (Segment(0, len(text), 0),) if text else ()


def _check_text(name: str, text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            name,
            f"character {error.start}{where} is {text[error.start]!r}, half of a surrogate pair, which is no text",
            hint="decode the text from UTF-8 or UTF-16 before it is sent",
        ) from None


def _describe(tokenizer: Tokenizer, template: ChatTemplate | None, num_messages: int) -> tuple[Kind, tuple[str, ...]]:
    if template is not None:
        return "chat", tokenizer.notices
    notice = "this model has no chat template, so it continues the text instead of answering it"
    if num_messages > 1:
        notice += "; the messages are joined by empty lines, and who said what is left out"
    return "completion", (*tokenizer.notices, notice)


def _cover(tokenizer: Tokenizer, escaped: str, length: int, origins: Sequence[Origin]) -> tuple[Segment, ...]:
    """Origins in the escaped text to segments of the text, with the template's parts between them."""
    segments = []
    position = consumed = 0
    end = 0
    for origin in origins:
        start = position + len(tokenizer.unescape(escaped[consumed : origin.start]))
        stop = start + len(tokenizer.unescape(escaped[origin.start : origin.end]))
        consumed, position = origin.end, stop
        if start > end:
            segments.append(Segment(end, start, None))
        if stop > start:
            segments.append(Segment(start, stop, origin.message))
        end = stop
    if length > end:
        segments.append(Segment(end, length, None))
    return tuple(segments)


def _refuse_forged(tokenizer: Tokenizer, rendering: Rendering, encoding: Encoding) -> None:
    """Check what ``escape`` is for, in case a template takes message texts apart and joins them to its own."""
    starts = [segment.start for segment in rendering.segments]
    for token_id, (start, end) in zip(encoding.token_ids, encoding.spans, strict=True):
        # A token that is not spelled out there, like the one for unknown characters, is nobody's forgery.
        if not tokenizer.is_special(token_id) or tokenizer.piece(token_id) not in rendering.text[start:end]:
            continue
        first = bisect_right(starts, start) - 1
        last = bisect_right(starts, end - 1)
        if any(segment.message is not None for segment in rendering.segments[first:last]):
            raise TemplateError(
                f"the chat template makes the control token {tokenizer.piece(token_id)} from the text of a message",
                hint="such a template lets a user forge control tokens, so the prompt is refused",
            )


def _missing_characters(rendering: Rendering, encoding: Encoding) -> tuple[str, ...]:
    """A notice if there are characters that no token stands for."""
    end = 0
    missing = []
    for start, stop in encoding.spans:
        if start > end:
            missing.append(rendering.text[end:start])
        end = max(end, stop)
    missing.append(rendering.text[end:])
    characters = "".join(missing)
    if not characters:
        return ()
    shown = ", ".join(f"U+{ord(char):04X}" for char in sorted(set(characters))[:5])
    return (
        f"{len(characters):,} characters are not in the model's vocabulary, which leaves them out of the prompt: "
        f"{shown}{' and others' if len(set(characters)) > 5 else ''}",
    )
