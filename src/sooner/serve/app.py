"""The routes. Each is thin: check, hand on, answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import JSONResponse, Response

import sooner
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.serve import translate
from sooner.serve.errors import ApiError, ClientGone, bad_body, bad_input
from sooner.serve.forms import ChatForm, TextForm
from sooner.serve.guard import Guard
from sooner.serve.limits import Settings
from sooner.serve.openapi import describe
from sooner.serve.schema import Chat, Completions, Detokenize, Tokenize
from sooner.serve.service import Service


def make_app(llm: LLM, settings: Settings) -> FastAPI:
    """The server as an ASGI application. `app.state.service` is its inside."""
    service = Service(llm, settings)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        await asyncio.to_thread(service.worker.stop)

    app = FastAPI(title="Sooner", version=sooner.__version__, lifespan=life, docs_url=None, redoc_url=None)
    app.state.service = service
    app.add_middleware(Guard, settings=settings)
    add_error_handlers(app)
    add_routes(app, service)
    describe(app)
    return app


def add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def _api_error(_: Http, error: ApiError) -> Response:
        return error.response

    @app.exception_handler(RequestValidationError)
    async def _bad_body(_: Http, error: RequestValidationError) -> Response:
        return bad_body(error.errors()).response

    @app.exception_handler(HTTPException)
    async def _no_route(http: Http, error: HTTPException) -> Response:
        message = f"{http.method} {http.url.path}: {error.detail}"
        return ApiError(error.status_code, message, headers=error.headers).response

    @app.exception_handler(ClientGone)
    async def _gone(_: Http, __: ClientGone) -> Response:
        return Response(status_code=499)  # nobody reads it

    @app.exception_handler(Exception)
    async def _failed(_: Http, error: Exception) -> Response:
        return ApiError(500, f"the server failed ({type(error).__name__}); its log says more").response


def add_routes(app: FastAPI, service: Service) -> None:
    llm, name = service.llm, service.settings.name
    card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "sooner"}
    card |= {"max_model_len": llm.engine.capacity, "drafters": list(llm.speculation.drafters)}

    @app.post("/v1/chat/completions")
    async def chat_completions(body: Chat, http: Http) -> Response:
        return await service.answer(http, ChatForm(llm, body))

    @app.post("/v1/completions")
    async def completions(body: Completions, http: Http) -> Response:
        return await service.answer(http, TextForm(llm, body))

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [card]})

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> Response:
        service.check_model(model)
        return JSONResponse(card)

    @app.post("/tokenize")
    async def tokenize(body: Tokenize) -> Response:
        service.check_model(body.model)
        return JSONResponse(await asyncio.to_thread(tokens_of, llm, body))

    @app.post("/detokenize")
    async def detokenize(body: Detokenize) -> Response:
        service.check_model(body.model)
        return JSONResponse({"prompt": await asyncio.to_thread(llm.tokenizer.decode, body.tokens, False)})

    @app.get("/health")
    async def health() -> Response:
        error = service.worker.error
        return JSONResponse({"status": error or "ok"}, 503 if error else 200)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.monitor.page(), media_type=CONTENT_TYPE_LATEST)


def tokens_of(llm: LLM, body: Tokenize) -> dict[str, Any]:
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "give either prompt or messages")
    try:
        if body.messages is None:
            tokens = llm.tokenizer.encode(body.prompt or "", body.add_special_tokens)
        else:
            text = llm.tokenizer.chat(translate.conversation(body.messages), body.add_generation_prompt)
            tokens = llm.tokenizer.encode(text, add_special=False)
    except InputError as error:
        raise bad_input(str(error), list(Tokenize.model_fields)) from error
    strings = {"token_strs": [llm.tokenizer.text_of(token) for token in tokens]} if body.return_token_strs else {}
    return {"count": len(tokens), "max_model_len": llm.engine.capacity, "tokens": tokens, **strings}
