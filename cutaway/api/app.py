"""The routes of the vendor API, and how an error leaves them.

Owns which path is what. Refuses to know fields, models and sockets. Invariant: whatever is sent to any path, the answer
to an error has the shape of the client's vendor.
"""

import secrets
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from cutaway import __version__
from cutaway.api import anthropic_reply, openai_reply
from cutaway.api.anthropic import counted_messages, message_call
from cutaway.api.anthropic_reply import StreamedMessage, WholeMessage
from cutaway.api.body import off_loop, read_body
from cutaway.api.body_guard import BODY_LIMITS, BodyGuard, BodyLimits
from cutaway.api.docs_page import SECURITY, docs_page
from cutaway.api.failure import HttpError
from cutaway.api.head_check import HeadCheck
from cutaway.api.http_count import HttpCount
from cutaway.api.json_body import parse_body
from cutaway.api.json_text import json_bytes
from cutaway.api.metrics import CONTENT_TYPE, Metrics
from cutaway.api.openai import chat_call
from cutaway.api.openai_reply import StreamedAnswer, WholeAnswer, make_head
from cutaway.api.openapi import RouteFacts, openapi_document
from cutaway.api.prompt_routes import add_prompt_routes
from cutaway.api.request_id import RequestIds
from cutaway.api.response import StreamedResponse, WholeResponse
from cutaway.api.timings import HEADER, read_header, refuse_header, tell_timings
from cutaway.api.trace_context import TraceContext
from cutaway.api.values import check_model
from cutaway.api.vendor import ANTHROPIC, OPENAI, ErrorReply, vendor_of
from cutaway.engine.client import EngineClient
from cutaway.errors import CutawayError
from cutaway.limits import MAX_SEED


def build_app(
    engine: EngineClient,
    clock: Callable[[], float] = time.time,
    hosts: frozenset[str] | None = None,
    bodies: BodyLimits = BODY_LIMITS,
) -> ASGIApp:
    """The server around an engine.

    Args:
        engine: answers; the caller closes it.
        clock: seconds since 1970.
        hosts: names that it answers to, as ``allowed_hosts`` gives them.
        bodies: limits of what clients send.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    _add_error_handlers(app)
    _add_state_routes(app, engine)
    metrics = _add_metrics(app, engine)
    _add_openapi(app)
    _add_model_routes(app, engine, int(clock()))
    _add_openai_routes(app, engine, clock)
    _add_anthropic_routes(app, engine)
    add_prompt_routes(app, engine, clock)
    guarded = HeadCheck(BodyGuard(app, bodies), hosts)
    return RequestIds(TraceContext(HttpCount(guarded, metrics.count_http)))


def _add_model_routes(app: FastAPI, engine: EngineClient, created: int) -> None:
    model = engine.model
    for_openai = openai_reply.model_object(model.name, created)
    for_anthropic = anthropic_reply.model_object(model.name, created, model.context_length)

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        """The models that answer."""
        if vendor_of(request.scope) is OPENAI:
            return _json(openai_reply.model_list([for_openai]))
        query = request.query_params
        return _json(anthropic_reply.model_page(for_anthropic, query.get("before_id"), query.get("after_id")))

    @app.get("/v1/models/{model_id:path}")
    async def one_model(request: Request, model_id: str) -> Response:
        """One of them."""
        check_model(model_id, model.name)
        return _json(for_openai if vendor_of(request.scope) is OPENAI else for_anthropic)


def _add_openai_routes(app: FastAPI, engine: EngineClient, clock: Callable[[], float]) -> None:
    model = engine.model

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        """An answer to a conversation, whole or as a stream."""
        reply_id = f"chatcmpl-{secrets.token_hex(12)}"
        seed = secrets.randbelow(MAX_SEED)
        timings = read_header(request.headers.get(HEADER))
        body = await read_body(request)
        call = await off_loop(body, lambda text: chat_call(parse_body(text), model.name, reply_id, seed))
        head, request_id = make_head(model, reply_id, int(clock())), request.state.request_id
        tell = partial(tell_timings, engine, call.request, request_id) if timings or call.timings else None
        if not call.stream:
            return WholeResponse(engine.submit(call.request), WholeAnswer(call, engine.spelling, head, tell))
        answer = StreamedAnswer(call, engine.spelling, head, tell)
        return StreamedResponse(engine.submit(call.request), answer, OPENAI, request_id)


def _add_anthropic_routes(app: FastAPI, engine: EngineClient) -> None:
    model = engine.model.name

    @app.post("/v1/messages")
    async def messages(request: Request) -> Response:
        """An answer to a conversation, as Anthropic gives it, whole or as a stream."""
        message_id = f"msg_{secrets.token_hex(12)}"
        seed = secrets.randbelow(MAX_SEED)
        refuse_header(request.headers.get(HEADER))
        body = await read_body(request)
        call = await off_loop(body, lambda text: message_call(parse_body(text), model, message_id, seed))
        if not call.stream:
            return WholeResponse(engine.submit(call.request), WholeMessage(call))
        return StreamedResponse(engine.submit(call.request), StreamedMessage(call), ANTHROPIC, request.state.request_id)

    @app.post("/v1/messages/count_tokens")
    async def count_tokens(request: Request) -> Response:
        """How many tokens the prompt of such a conversation has."""
        body = await read_body(request)
        counted = await off_loop(body, lambda text: counted_messages(parse_body(text), model))
        return _json({"input_tokens": len(await engine.tokenize(counted))})


def _add_state_routes(app: FastAPI, engine: EngineClient) -> None:
    @app.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> Response:
        """Whether the engine is alive."""
        return _state("alive", engine.is_running)

    @app.api_route("/ready", methods=["GET", "HEAD"])
    async def ready() -> Response:
        """Whether requests are taken, and how busy the engine is."""
        stats = engine.stats()
        return _state(
            "ready",
            engine.is_running,
            requests={"num_running": stats.num_running, "num_waiting": stats.num_waiting},
            cache={"num_free_blocks": stats.num_free_blocks, "num_blocks": stats.num_blocks},
        )

    @app.get("/version")
    async def version() -> Response:
        """The version of the server."""
        return _json({"version": __version__})


def _add_metrics(app: FastAPI, engine: EngineClient) -> Metrics:
    metrics = Metrics(engine)

    @app.get("/metrics")
    async def scrape() -> Response:
        """What an operator watches, for Prometheus."""
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    return metrics


def _add_openapi(app: FastAPI) -> None:
    def document() -> dict[str, Any]:
        routes = [route for route in app.routes if isinstance(route, APIRoute)]
        facts = [RouteFacts(route.path_format, [*(route.methods or ())], route.description) for route in routes]
        return openapi_document(facts, __version__)

    @app.get("/openapi.json")
    async def openapi() -> Response:
        """All routes, for programs."""
        return _json(document())

    @app.get("/docs")
    async def docs() -> Response:
        """All routes, for people."""
        return Response(docs_page(document()), headers=SECURITY, media_type="text/html")


def _state(name: str, holds: bool, **facts: object) -> Response:
    return _json({"status": name if holds else "stopped", **facts}, HTTPStatus.OK if holds else 503)


def _add_error_handlers(app: FastAPI) -> None:
    async def on_error(request: Request, error: Exception) -> Response:
        return _error(vendor_of(request.scope).error_reply(error, request.state.request_id))

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return await on_error(request, _routing_error(request, error))

    async def on_left(request: Request, error: Exception) -> Response:
        return await on_error(request, HttpError(400, "incomplete_body", "the body ended too early"))

    app.add_exception_handler(CutawayError, on_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ClientDisconnect, on_left)
    app.add_exception_handler(Exception, on_error)


def _routing_error(request: Request, error: HTTPException) -> HttpError:
    """There is no such path, or not for this method."""
    where = f"{request.method[:20]} {request.url.path[:200]}"
    code = {404: "unknown_url", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    message = f"{where}: {HTTPStatus(error.status_code).phrase.lower()}"
    return HttpError(error.status_code, code, message, headers=error.headers)


def _error(reply: ErrorReply) -> Response:
    return _json(reply.body(), reply.status, dict(reply.headers))


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_bytes(value), status, headers, "application/json")
