"""The OpenAPI document as a page for people: plain HTML that needs no network, no script and no style."""

import json
from collections.abc import Iterable, Iterator
from html import escape

from cutaway.api.json_text import Json

# Nothing is loaded or run, whatever is written on the page.
SECURITY = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
SKIPPED = ("additionalProperties", "description", "items", "type")


def docs_page(document: Json) -> str:
    """A table of the routes, and one of the fields of each body.

    Args:
        document: as ``openapi_document`` makes it.
    """
    info, schemas = document["info"], document["components"]["schemas"]
    title = f"{info['title']} {info['version']}"
    tables = [_table(("method", "path", "what it is"), _routes(document["paths"]))]
    for name, schema in schemas.items():
        tables += [f"<h2>{escape(name)}</h2>", _table(("field", "what it may be", ""), _fields(schema))]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    link = '<p>For programs: <a href="/openapi.json">/openapi.json</a></p>'
    return "\n".join([head, f"<h1>{escape(title)}</h1>", link, *tables, "</html>"])


def _routes(paths: Json) -> Iterator[tuple[str, ...]]:
    for path, operations in sorted(paths.items()):
        yield ", ".join(operations).upper(), path, next(iter(operations.values()))["summary"]


def _fields(schema: Json) -> Iterator[tuple[str, ...]]:
    for name, value in sorted(schema.get("properties", {}).items()):
        choices = [each for each in value.get("anyOf", [value]) if each != {"type": "null"}]
        hints = "; ".join(each["description"] for each in choices if "description" in each)
        yield name, " or ".join(map(_kind, choices)), hints


def _kind(schema: Json) -> str:
    """A schema in a line: its words, without what is inside."""
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return "one of " + ", ".join(map(json.dumps, schema["enum"]))
    if "properties" in schema:
        return "object of " + ", ".join(schema["properties"])
    limits = [f"{word} {value}" for word, value in schema.items() if word not in SKIPPED]
    kind = schema.get("type", "anything")
    return ", ".join([kind if isinstance(kind, str) else " or ".join(kind), *limits])


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["<table>", _row("th", heads), *(_row("td", row) for row in rows), "</table>"]
    return "\n".join(lines)


def _row(cell: str, texts: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{escape(text)}</{cell}>" for text in texts) + "</tr>"
