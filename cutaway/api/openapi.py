"""The OpenAPI document of the server: which routes there are, and what they take.

Owns its shape. What it says of fields is read off the tables that read them, so that it cannot promise anything else.
Invariant: what a schema of a request admits may still be refused, by what it cannot say (fields that contradict each
other, a prompt that is too long); what it does not admit is refused.
Source: https://spec.openapis.org/oas/v3.1.0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.api.openai import (
    CHAT_FIELDS,
    CUTAWAY_FIELDS,
    EMPTY_IN_MESSAGES,
    ROLES,
    SAYING_NOTHING,
    STREAM_FIELDS,
    Reader,
)
from cutaway.api.openai_values import read_flag, read_object, read_stop, read_text
from cutaway.limits import LIMITS, MAX_MESSAGES, MAX_STOP_CHARS, MAX_STOP_STRINGS, Limit

Json = dict[str, Any]

VERSION = "3.1.0"
TEXT: Json = {"type": "string"}
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


def chat_schema() -> Json:
    """The body of a request for a chat completion."""
    silent = {name: {"enum": [*values, None]} for name, values in SAYING_NOTHING.items()}
    return {
        "type": "object",
        "properties": _properties(CHAT_FIELDS) | silent,
        "required": ["model", "messages"],
        "additionalProperties": False,
    }


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
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{BODIES[route.path]}"}}}
        operation["requestBody"] = {"required": True, "content": content}
    error = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ERROR}"}}}
    operation["responses"] = {
        "200": {"description": "The answer"},
        "default": {"description": "An error", "content": error},
    }
    return operation


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
    known = BY_READER.get(read) or BY_NAME.get(name)
    if known is not None:
        return known
    limit = LIMITS.get(LIMIT_OF.get(name, name))
    return {} if limit is None else number_schema(limit)


def _messages_schema() -> Json:
    nothing: Json = {name: {"enum": [None, False, 0, "", [], {}]} for name in EMPTY_IN_MESSAGES}
    part = _object({"type": {"const": "text"}, "text": TEXT}, ["type", "text"])
    content: Json = {"anyOf": [TEXT, {"type": "array", "items": part, "minItems": 1}]}
    message = _object({"role": {"enum": [*ROLES]}, "content": content} | nothing, ["role", "content"])
    return {"type": "array", "items": message, "minItems": 1, "maxItems": MAX_MESSAGES}


def _object(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _stop_schema() -> Json:
    text: Json = TEXT | {"minLength": 1, "maxLength": MAX_STOP_CHARS}
    return {"anyOf": [text, {"type": "array", "items": text, "maxItems": MAX_STOP_STRINGS}]}


BY_READER: Mapping[Reader, Json] = {
    read_text: TEXT,
    read_flag: {"type": "boolean"},
    read_object: {"type": "object"},
    read_stop: _stop_schema(),
}
BY_NAME: Mapping[str, Json] = {
    "messages": _messages_schema(),
    "stream_options": _object(_properties(STREAM_FIELDS), []),
    "cutaway": _object(_properties(CUTAWAY_FIELDS), []),
}
# Fields whose limit has another name.
LIMIT_OF: Mapping[str, str] = {"max_completion_tokens": "max_tokens", "top_logprobs": "logprobs"}
SCHEMAS: Mapping[str, Json] = {"ChatCompletionRequest": chat_schema()}
BODIES: Mapping[str, str] = {"/v1/chat/completions": "ChatCompletionRequest"}
