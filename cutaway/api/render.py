"""What a model would read for a request, without running it.

Owns the shape of the answer. Refuses to know HTTP, templates and engines.
"""

from typing import Any

from cutaway.api.completion_call import completion_call
from cutaway.api.openai import chat_call
from cutaway.errors import InvalidValue
from cutaway.glass.receipt import PromptFacts
from cutaway.types import Conversation, GenerationRequest, Prompt

REQUEST_ID, SEED = "render", 0


def render_requests(body: object, model: str) -> tuple[GenerationRequest, ...]:
    """The requests that the body of a chat completion or of a completion stands for. Errors as theirs."""
    if isinstance(body, dict) and "messages" not in body:
        if "prompt" not in body:
            raise InvalidValue("messages", "it is missing", hint="send messages, or a prompt for a completion")
        return completion_call(body, model, REQUEST_ID, SEED).requests
    return (chat_call(body, model, REQUEST_ID, SEED).request,)


def rendered_prompt(prompt: Prompt, facts: PromptFacts) -> dict[str, Any]:
    """A prompt as it is told.

    Args:
        prompt: what the client sent.
        facts: what became of it.
    """
    segments = [
        {"start": start, "end": end, "origin": _origin(prompt, facts.kind, message), "text": facts.text[start:end]}
        for start, end, message in facts.segments
    ]
    return {
        "kind": facts.kind,
        "prompt": facts.text,
        "segments": segments,
        "tokens": facts.token_ids,
        "count": len(facts.token_ids),
        "max_tokens": facts.max_tokens,
        "notices": facts.notices,
    }


def _origin(prompt: Prompt, kind: str, message: int | None) -> str:
    """Who wrote a part of the text, by the name that it has in the request."""
    if not isinstance(prompt, Conversation):
        return prompt.origin
    if message is not None:
        return f"messages[{message}]"
    return "template" if kind == "chat" else "separator"
