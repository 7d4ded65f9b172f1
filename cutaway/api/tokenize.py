"""Requests to cut a text or a conversation into tokens, or to put tokens together, and their answers.

Owns the fields and the shapes. Refuses to know HTTP, vocabularies and engines.
Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html, whose names these are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.api.fields import read_fields, require, unknown_field, unsupported_field
from cutaway.api.openai import read_messages
from cutaway.api.prompts import read_token_ids
from cutaway.api.values import Reader, check_model, read_flag, read_text
from cutaway.errors import InvalidValue
from cutaway.limits import MAX_PROMPT_TOKENS
from cutaway.types import Conversation, TextPrompt, TokenPrompt


@dataclass(frozen=True, slots=True)
class TokenizeCall:
    """A request for tokens.

    Attributes:
        prompt: whose tokens.
        with_pieces: whether to tell how the vocabulary spells each.
    """

    prompt: Conversation | TextPrompt
    with_pieces: bool


def tokenize_call(body: object, model: str) -> TokenizeCall:
    """What a client asks for.

    Args:
        body: the JSON value that it sent.
        model: the one that answers here.

    Raises:
        UnknownModel: it wants another model.
        InvalidValue: something in it is unknown, not supported, of the wrong kind or outside its limits.
    """
    fields = read_fields(body, TOKENIZE_FIELDS, "", _refuse_field)
    check_model(fields.get("model", model), model)
    with_pieces = fields.get("return_token_strs", False)
    if "messages" not in fields:
        if "prompt" not in fields:
            raise InvalidValue("prompt", "it is missing", hint="send a prompt or messages")
        return TokenizeCall(TextPrompt(fields["prompt"], fields.get("add_special_tokens", True)), with_pieces)
    if "prompt" in fields:
        raise InvalidValue("prompt", "there are messages beside it", hint="send only one of them")
    if "add_special_tokens" in fields:
        raise InvalidValue("add_special_tokens", "the chat template decides that for messages", hint="leave it out")
    return TokenizeCall(Conversation(fields["messages"]), with_pieces)


def detokenize_call(body: object, model: str) -> TokenPrompt:
    """The tokens that a client wants to read. Arguments and errors as with ``tokenize_call``."""
    fields = read_fields(
        body, DETOKENIZE_FIELDS, "", lambda prefix, name, _: unknown_field(prefix, name, DETOKENIZE_FIELDS)
    )
    check_model(fields.get("model", model), model)
    require(fields, ("tokens",))
    return TokenPrompt(fields["tokens"], "tokens")


def tokenize_reply(
    name: str, token_ids: Sequence[int], max_model_len: int, piece: Callable[[int], str] | None = None
) -> dict[str, Any]:
    """Tokens as they are told.

    Args:
        name: of the field that they are of.
        token_ids: the tokens.
        max_model_len: how many fit into the context, the answer included.
        piece: how the vocabulary spells a token, if that is to be told.

    Raises:
        InvalidValue: they are too many to tell.
    """
    if len(token_ids) > MAX_PROMPT_TOKENS:
        raise InvalidValue(
            name,
            f"its {len(token_ids):,} tokens are more than the limit of {MAX_PROMPT_TOKENS:,}",
            hint="divide it",
        )
    told = {"count": len(token_ids), "max_model_len": max_model_len, "tokens": token_ids}
    return told if piece is None else told | {"token_strs": [piece(token_id) for token_id in token_ids]}


def _refuse_field(prefix: str, name: str, value: object) -> InvalidValue | None:
    if name in NOT_SUPPORTED:
        return unsupported_field(name, value, NOT_SUPPORTED[name])
    return unknown_field(prefix, name, [*TOKENIZE_FIELDS, *NOT_SUPPORTED])


TOKENIZE_FIELDS: Mapping[str, Reader] = {
    "model": read_text,
    "prompt": read_text,
    "messages": read_messages,
    "add_special_tokens": read_flag,
    "return_token_strs": read_flag,
}
DETOKENIZE_FIELDS: Mapping[str, Reader] = {"model": read_text, "tokens": read_token_ids}
# Fields of vLLM that are not supported, with the values that say no more than leaving them out.
NOT_SUPPORTED: Mapping[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "tools": ([],),
}
