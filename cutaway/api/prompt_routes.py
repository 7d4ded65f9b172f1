"""The routes around prompts: completions, what a prompt looks like, and tokens.

Owns which path is what. Refuses to know fields, shapes and sockets.
"""

import asyncio
import secrets
from collections.abc import Callable

from fastapi import FastAPI, Request, Response

from cutaway.api.batch import submit_all
from cutaway.api.body import off_loop, read_body
from cutaway.api.completion_call import CompletionCall, completion_call
from cutaway.api.completion_reply import StreamedCompletion, WholeCompletion
from cutaway.api.json_body import parse_body
from cutaway.api.json_text import json_bytes
from cutaway.api.openai_reply import make_head
from cutaway.api.render import render_requests, rendered_prompt
from cutaway.api.response import StreamedResponse, WholeResponse
from cutaway.api.timings import HEADER, refuse_header
from cutaway.api.tokenize import detokenize_call, tokenize_call, tokenize_reply
from cutaway.api.vendor import OPENAI
from cutaway.engine.client import EngineClient
from cutaway.limits import MAX_SEED
from cutaway.types import Conversation, TextPrompt, TokenPrompt


def add_prompt_routes(app: FastAPI, engine: EngineClient, clock: Callable[[], float]) -> None:
    """Let an app answer them.

    Args:
        app: gets the routes.
        engine: answers.
        clock: seconds since 1970.
    """
    _add_completions(app, engine, clock)
    _add_tokens(app, engine)


def _add_completions(app: FastAPI, engine: EngineClient, clock: Callable[[], float]) -> None:
    model = engine.model

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        """Texts or tokens continued, whole or as a stream."""
        reply_id = f"cmpl-{secrets.token_hex(12)}"
        seed = secrets.randbelow(MAX_SEED)
        refuse_header(request.headers.get(HEADER))
        body = await read_body(request)
        call = await off_loop(body, lambda text: completion_call(parse_body(text), model.name, reply_id, seed))
        head = make_head(model, reply_id, int(clock()))
        deltas, echoes = submit_all(engine, call.requests), await _echoes(engine, call)
        if not call.stream:
            return WholeResponse(deltas, WholeCompletion(call, engine.spelling, head, echoes))
        reply = StreamedCompletion(call, engine.spelling, head, echoes)
        return StreamedResponse(deltas, reply, OPENAI, request.state.request_id)

    @app.post("/render")
    async def render(request: Request) -> Response:
        """What the model would read for a request, without running it."""
        body = await read_body(request)
        asked = await off_loop(body, lambda text: render_requests(parse_body(text), model.name))
        told = [rendered_prompt(each.prompt, await engine.render(each)) for each in asked]
        return await _json({"model": model.name, "prompts": told})


def _add_tokens(app: FastAPI, engine: EngineClient) -> None:
    model = engine.model

    @app.post("/tokenize")
    async def tokenize(request: Request) -> Response:
        """The tokens of a text or of a conversation."""
        body = await read_body(request)
        call = await off_loop(body, lambda text: tokenize_call(parse_body(text), model.name))
        token_ids = await engine.tokenize(call.prompt)
        piece = (lambda token_id: engine.spelling(token_id).piece) if call.with_pieces else None
        name = "messages" if isinstance(call.prompt, Conversation) else "prompt"
        return await _json(await asyncio.to_thread(tokenize_reply, name, token_ids, model.context_length, piece))

    @app.post("/detokenize")
    async def detokenize(request: Request) -> Response:
        """The text of tokens."""
        body = await read_body(request)
        tokens = await off_loop(body, lambda text: detokenize_call(parse_body(text), model.name))
        return await _json({"prompt": await engine.detokenize(tokens)})


async def _echoes(engine: EngineClient, call: CompletionCall) -> list[str]:
    """The texts of the prompts, if answers begin with them."""
    texts = []
    for request in call.requests if call.echo else ():
        match request.prompt:
            case TextPrompt(text):
                texts.append(text)
            case TokenPrompt():
                texts.append(await engine.detokenize(request.prompt))
    return texts


async def _json(value: object) -> Response:
    """A value that may be long."""
    return Response(await asyncio.to_thread(json_bytes, value), media_type="application/json")
