"""Server-sent events, as the clients of OpenAI and Anthropic read them.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from typing import Any

from cutaway.api.json_text import json_bytes

CONTENT_TYPE = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    """An event whose data is a JSON value."""
    return b"data: " + json_bytes(value) + b"\n\n"


def typed_event(value: dict[str, Any]) -> bytes:
    """An event whose data is a JSON object, and whose name is the object's ``type``."""
    name: str = value["type"]
    return b"event: " + name.encode() + b"\n" + event(value)


PING = typed_event({"type": "ping"})
