"""Server-sent events, as OpenAI's clients read them.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from cutaway.api.json_text import json_bytes

CONTENT_TYPE = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    """An event whose data is a JSON value."""
    return b"data: " + json_bytes(value) + b"\n\n"
