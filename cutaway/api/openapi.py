"""The OpenAPI document of the server: which routes there are, and what they take.

Owns its shape. What it says of fields is read off the tables that read them, so that it cannot promise anything else.
Invariant: what a schema of a request admits may still be refused, by what it cannot say (fields that contradict each
other, a prompt that is too long); what it does not admit is refused.
Source: https://spec.openapis.org/oas/v3.1.0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutaway.api import anthropic, completion_call, tokenize
from cutaway.api.json_text import Json
from cutaway.api.openai import (
    CHAT_FIELDS,
    CUTAWAY_FIELDS,
    EMPTY_IN_MESSAGES,
    ROLES,
    SAYING_NOTHING,
    STREAM_FIELDS,
)
from cutaway.api.openai_sampling import read_breakers, read_logit_bias, read_stop_token_ids
from cutaway.api.prompts import read_token_ids
from cutaway.api.values import Number, Reader, read_flag, read_object, read_stop, read_stop_list, read_text
from cutaway.limits import LIMITS, MAX_MESSAGES, MAX_STOP_CHARS, MAX_STOP_STRINGS, Limit

VERSION = "3.1.0"
TEXT: Json = {"type": "string"}
STOP_TEXT: Json = TEXT | {"minLength": 1, "maxLength": MAX_STOP_CHARS}
ERROR = "Error"


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """A route: its path with the names of its parts in braces, its methods, and what it is for."""

    path: str
    methods: Sequence[str]
    text: str


def openapi_document(routes: Sequence[RouteFacts], version: str) -> Json:
    """The document.

    Args:
        routes: all that there are.
        version: of the server.
    """
    return {
        "openapi": VERSION,
        "info": {"title": "Cutaway", "version": version},
        "paths": {
            route.path: {method.lower(): _operation(route, method) for method in sorted(route.methods)}
            for route in routes
        },
        "components": {"schemas": {ERROR: _error_schema(), **SCHEMAS}},
    }


def body_schema(fields: Mapping[str, Reader], silent: Mapping[str, Sequence[object]], required: list[str]) -> Json:
    """The body of a request.

    Args:
        fields: with their readers.
        silent: fields that are not supported, with the values that say nothing.
        required: fields that must be there.
    """
    told = {name: {"enum": [*values, None]} for name, values in silent.items()}
    must = {name: _value_schema(name, fields[name]) for name in required}
    return _object(_properties(fields) | must | told, required)


def chat_schema() -> Json:
    """The body of a request for a chat completion."""
    return body_schema(CHAT_FIELDS, SAYING_NOTHING, ["model", "messages"])


def completion_schema() -> Json:
    """The body of a request for a completion; its prompts have too many forms to be described."""
    return body_schema(completion_call.COMPLETION_FIELDS, completion_call.NOT_SUPPORTED, ["model", "prompt"])


def message_schema(required: list[str]) -> Json:
    """The body of a message in Anthropic's API; its content has too many forms to be described."""
    schema = body_schema(anthropic.MESSAGE_FIELDS, anthropic.SAYING_NOTHING, required)
    schema["properties"] |= {"messages": {}, "system": {}}
    return schema


def number_schema(limit: Limit) -> Json:
    """A number inside a limit."""
    lower = "exclusiveMinimum" if limit.above else "minimum"
    kind = "integer" if limit.integer else "number"
    schema: Json = {"type": kind, lower: limit.minimum, "maximum": limit.maximum}
    return schema | ({"description": limit.hint} if limit.hint else {})


def _operation(route: RouteFacts, method: str) -> Json:
    operation: Json = {"operationId": _operation_id(route.path, method), "summary": route.text}
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    if names:
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in names]
    if route.path in BODIES:
        content = {"application/json": {"schema": _schema_of(BODIES[route.path])}}
        operation["requestBody"] = {"required": True, "content": content}
    error = {"application/json": {"schema": _schema_of(ERROR)}}
    operation["responses"] = {
        "200": {"description": "The answer"},
        "default": {"description": "An error", "content": error},
    }
    return operation


def _schema_of(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation_id(path: str, method: str) -> str:
    return "_".join([method.lower(), *(part.strip("{}").replace(".", "_") for part in path.split("/") if part)])


def _error_schema() -> Json:
    texts: Json = dict.fromkeys(("message", "type", "code"), TEXT)
    error = {"type": "object", "properties": texts | {"param": {"type": ["string", "null"]}}}
    return {"type": "object", "properties": {"error": error}, "required": ["error"]}


def _properties(fields: Mapping[str, Reader]) -> Json:
    """A schema for each field; ``null`` is the same as leaving it out."""
    return {name: {"anyOf": [_value_schema(name, read), {"type": "null"}]} for name, read in fields.items()}


def _value_schema(name: str, read: Reader) -> Json:
    """What a reader takes; anything, if nothing is known of it here."""
    if isinstance(read, Number):
        return number_schema(LIMITS[read.limit_name])
    return BY_READER.get(read) or BY_NAME.get(name, {})


def _messages_schema() -> Json:
    nothing: Json = {name: {"enum": [None, False, 0, "", [], {}]} for name in EMPTY_IN_MESSAGES}
    part = _object({"type": {"const": "text"}, "text": TEXT}, ["type", "text"])
    content: Json = {"anyOf": [TEXT, {"type": "array", "items": part, "minItems": 1}]}
    message = _object({"role": {"enum": [*ROLES]}, "content": content} | nothing, ["role", "content"])
    return {"type": "array", "items": message, "minItems": 1, "maxItems": MAX_MESSAGES}


def _object(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _stop_schema() -> Json:
    return {"anyOf": [STOP_TEXT, _stop_list_schema()]}


def _stop_list_schema() -> Json:
    return {"type": "array", "items": STOP_TEXT, "maxItems": MAX_STOP_STRINGS}


def _ids_schema() -> Json:
    return {"type": "array", "items": number_schema(LIMITS["token_id"])}


BY_READER: Mapping[Reader, Json] = {
    read_text: TEXT,
    read_flag: {"type": "boolean"},
    read_object: {"type": "object"},
    read_stop: _stop_schema(),
    read_stop_list: _stop_list_schema(),
    read_token_ids: _ids_schema(),
    read_logit_bias: {"type": "object", "additionalProperties": number_schema(LIMITS["logit_bias"])},
    read_stop_token_ids: _ids_schema(),
    read_breakers: {"type": "array", "items": TEXT},
}
BY_NAME: Mapping[str, Json] = {
    "messages": _messages_schema(),
    "stream_options": _object(_properties(STREAM_FIELDS), []),
    "cutaway": _object(_properties(CUTAWAY_FIELDS), []),
}
SCHEMAS: Mapping[str, Json] = {
    "ChatCompletionRequest": chat_schema(),
    "CompletionRequest": completion_schema(),
    "MessageRequest": message_schema(["model", "max_tokens", "messages"]),
    "CountTokensRequest": message_schema(["model", "messages"]),
    "TokenizeRequest": body_schema(tokenize.TOKENIZE_FIELDS, tokenize.NOT_SUPPORTED, []),
    "DetokenizeRequest": body_schema(tokenize.DETOKENIZE_FIELDS, {}, ["tokens"]),
    "RenderRequest": {"anyOf": [_schema_of("ChatCompletionRequest"), _schema_of("CompletionRequest")]},
}
BODIES: Mapping[str, str] = {
    "/v1/chat/completions": "ChatCompletionRequest",
    "/v1/completions": "CompletionRequest",
    "/v1/messages": "MessageRequest",
    "/v1/messages/count_tokens": "CountTokensRequest",
    "/tokenize": "TokenizeRequest",
    "/detokenize": "DetokenizeRequest",
    "/render": "RenderRequest",
}
