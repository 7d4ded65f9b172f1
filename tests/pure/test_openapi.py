"""The OpenAPI document says what the server takes, no less, and hardly more."""

import contextlib
import json
import re
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.api.docs_page import docs_page
from cutaway.api.openai import CHAT_FIELDS, SAYING_NOTHING, chat_call
from cutaway.api.openapi import (
    RouteFacts,
    chat_schema,
    completion_schema,
    message_schema,
    number_schema,
    openapi_document,
)
from cutaway.api.values import Number
from cutaway.errors import CutawayError
from cutaway.limits import LIMITS

SCHEMA = chat_schema()
USER = {"role": "user", "content": "x"}
KINDS = {"string": str, "object": dict, "array": list, "boolean": bool, "null": type(None)}


def admits(schema: dict[str, Any], value: object) -> bool:
    """Whether a value is as a schema says: the words of JSON Schema that the document uses, and no others."""
    unknown = schema.keys() - CHECKS.keys() - {"description", "required", "additionalProperties"}
    assert not unknown, unknown
    return all(CHECKS[word](schema, value) for word in schema.keys() & CHECKS.keys())


def is_kind(schema: dict[str, Any], value: object) -> bool:
    if schema["type"] in ("number", "integer"):
        return isinstance(value, int | float if schema["type"] == "number" else int) and not isinstance(value, bool)
    return isinstance(value, KINDS[schema["type"]])


def same(one: object, other: object) -> bool:
    return json.dumps(one) == json.dumps(other)


def has_fields(schema: dict[str, Any], value: object) -> bool:
    if not isinstance(value, dict):
        return True
    known = schema["properties"]
    assert schema["additionalProperties"] is False
    return all(name in value for name in schema["required"]) and all(
        name in known and admits(known[name], part) for name, part in value.items()
    )


def length_of(value: object) -> int | None:
    return len(value) if isinstance(value, str | list) else None


def number_of(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


CHECKS: dict[str, Any] = {
    "type": is_kind,
    "const": lambda schema, value: same(schema["const"], value),
    "enum": lambda schema, value: any(same(each, value) for each in schema["enum"]),
    "anyOf": lambda schema, value: any(admits(each, value) for each in schema["anyOf"]),
    "properties": has_fields,
    "items": lambda schema, value: not isinstance(value, list) or all(admits(schema["items"], each) for each in value),
    "minItems": lambda schema, value: not isinstance(value, list) or len(value) >= schema["minItems"],
    "maxItems": lambda schema, value: not isinstance(value, list) or len(value) <= schema["maxItems"],
    "minLength": lambda schema, value: not isinstance(value, str) or len(value) >= schema["minLength"],
    "maxLength": lambda schema, value: not isinstance(value, str) or len(value) <= schema["maxLength"],
    "minimum": lambda schema, value: (number := number_of(value)) is None or number >= schema["minimum"],
    "exclusiveMinimum": lambda s, value: (number := number_of(value)) is None or number > s["exclusiveMinimum"],
    "maximum": lambda schema, value: (number := number_of(value)) is None or number <= schema["maximum"],
}


def taken(body: object) -> bool:
    """Whether the server takes a body."""
    with contextlib.suppress(CutawayError):
        chat_call(body, "m", "r", 1)
        return True
    return False


def body(**fields: object) -> dict[str, object]:
    return {"model": "m", "messages": [USER]} | fields


TEXTS = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 30) | st.floats(-3, 3) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.sampled_from(["timings"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*CHAT_FIELDS.keys() - {"model", "messages"}, "other"]), VALUES, max_size=3))
def test_whatever_the_server_takes_the_schema_admits(fields: dict[str, object]) -> None:
    assert admits(SCHEMA, body(**fields)) or not taken(body(**fields))


MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "system", "tool"]) | VALUES,
        "content": TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS})) | VALUES,
        "name": VALUES,
        "tool_calls": st.sampled_from([None, [], [1]]),
        "other": VALUES,
    },
)


@given(st.lists(MESSAGE, max_size=3))
def test_whatever_messages_the_server_takes_the_schema_admits(messages: list[object]) -> None:
    # Python takes true for 1, and so does the server where nothing is said by it.
    assert admits(SCHEMA, body(messages=messages)) or not taken(body(messages=messages))


LIMIT_NAMES = {name: read.limit_name for name, read in CHAT_FIELDS.items() if isinstance(read, Number)}


@pytest.mark.parametrize("name", sorted(LIMIT_NAMES))
def test_numbers_have_the_limits_of_the_server(name: str) -> None:
    limit = LIMITS[LIMIT_NAMES[name]]
    step = 1 if limit.integer else 1e-6
    edges = [limit.minimum, limit.minimum - step, limit.maximum, limit.maximum + step]
    others = {"logprobs": True} if name == "top_logprobs" else {}
    for edge in edges:
        assert admits(SCHEMA, body(**{name: edge})) == taken(body(**others | {name: edge})), edge
    assert number_schema(limit)["maximum"] == limit.maximum


@pytest.mark.parametrize("name", sorted(SAYING_NOTHING))
def test_fields_that_are_not_supported_may_say_nothing(name: str) -> None:
    for value in (*SAYING_NOTHING[name], None, "something", [7]):
        assert admits(SCHEMA, body(**{name: value})) == taken(body(**{name: value})), value


@pytest.mark.parametrize("left_out", ["model", "messages"])
def test_what_must_be_there_is_required(left_out: str) -> None:
    given_fields = {name: value for name, value in body().items() if name != left_out}
    assert not admits(SCHEMA, given_fields)
    assert not taken(given_fields)


def test_the_other_requests_have_the_limits_of_the_server_too() -> None:
    message = message_schema(["model", "max_tokens", "messages"])
    asked = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}
    completion = completion_schema()
    for temperature, fits in ((1, True), (1.5, False), (None, True)):
        assert admits(message, asked | {"temperature": temperature}) == fits
        assert admits(completion, {"model": "m", "prompt": "a", "temperature": temperature})
    for num_top, fits in ((5, True), (6, False)):
        assert admits(completion, {"model": "m", "prompt": "a", "logprobs": num_top}) == fits
    assert not admits(message, asked | {"model": None})
    assert not admits(message, asked | {"stop_sequences": "a"})
    assert not admits(completion, {"model": "m", "prompt": "a", "suffix": "b"})


def test_every_field_has_a_schema_that_says_something() -> None:
    silent = [name for name in CHAT_FIELDS if SCHEMA["properties"][name] in ({}, {"anyOf": [{}, {"type": "null"}]})]
    assert silent == []


ROUTES = [
    RouteFacts("/health", ["HEAD", "GET"], "Whether it is alive."),
    RouteFacts("/v1/models/{model_id}", ["GET"], "One of <them>."),
    RouteFacts("/v1/chat/completions", ["POST"], "An answer."),
]


def test_the_document_has_every_route_with_its_methods_and_its_parts() -> None:
    document = openapi_document(ROUTES, "1.2")
    assert document["info"] == {"title": "Cutaway", "version": "1.2"}
    assert {path: list(told) for path, told in document["paths"].items()} == {
        "/health": ["get", "head"],
        "/v1/models/{model_id}": ["get"],
        "/v1/chat/completions": ["post"],
    }
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == 4
    (part,) = document["paths"]["/v1/models/{model_id}"]["get"]["parameters"]
    assert (part["name"], part["in"], part["required"]) == ("model_id", "path", True)
    wanted = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    referred = [wanted, *(each["responses"]["default"]["content"]["application/json"]["schema"] for each in operations)]
    for each in referred:
        name = each["$ref"].removeprefix("#/components/schemas/")
        assert name in document["components"]["schemas"]


def test_the_page_has_every_route_and_field_and_loads_nothing() -> None:
    page = docs_page(openapi_document(ROUTES, "1.2"))
    cells = [unescape(cell) for cell in re.findall(r"<td>([^<]*)</td>", page)]
    assert {"/health", "GET, HEAD", "One of <them>.", *CHAT_FIELDS, *SAYING_NOTHING} <= set(cells)
    assert cells[cells.index("temperature") + 1 :][:2] == [
        "number, minimum 0.0, maximum 2.0",
        LIMITS["temperature"].hint,
    ]
    assert cells[cells.index("cutaway") + 1] == "object of timings"
    assert cells[cells.index("best_of") + 1] == "one of 1, null"
    tags = set(re.findall(r"</?([a-z0-9]+)", page))
    assert tags == {"html", "meta", "title", "h1", "h2", "p", "a", "table", "tr", "th", "td"}
    assert re.findall(r"(?:src|href)=\"([^\"]*)", page) == ["/openapi.json"]
