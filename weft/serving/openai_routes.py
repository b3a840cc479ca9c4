"""The routes of OpenAI's interface for language models: chat, completions, and their streams."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from weft.serving.admission import read_body, ticket_of, while_connected
from weft.serving.catalogue import Catalogue
from weft.serving.openai_request import TextRequest, model_name, parse_text_request
from weft.serving.refusal import message_of, status_of
from weft.serving.replies import Reply, begin_replies, usage
from weft.serving.responses import json_response, openai_error
from weft.serving.tensors import parse_json


def openai_router(catalogue: Catalogue) -> APIRouter:
    """The routes under ``/v1``."""
    router = APIRouter(prefix="/v1")
    created = int(time.time())

    def described(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "weft"}

    async def models() -> Response:
        return json_response({"object": "list", "data": [*map(described, catalogue.texts)]})

    async def model(name: str) -> Response:
        return json_response(described(catalogue.find_text(name).name))

    async def chat(request: Request) -> Response:
        return await _reply(request, catalogue, chat=True)

    async def complete(request: Request) -> Response:
        return await _reply(request, catalogue, chat=False)

    router.add_api_route("/models", models, methods=["GET"])
    router.add_api_route("/models/{name}", model, methods=["GET"])
    router.add_api_route("/chat/completions", chat, methods=["POST"])
    router.add_api_route("/completions", complete, methods=["POST"])
    return router


async def _reply(request: Request, catalogue: Catalogue, *, chat: bool) -> Response:
    body = parse_json(await read_body(request, catalogue.limits))
    served = catalogue.find_text(model_name(body))
    served.scheduler.check_room()
    asked = await asyncio.to_thread(parse_text_request, body, served.model, chat=chat)
    replies = begin_replies(served, asked)
    for reply in replies:  # whatever ends the response: the client, a time limit, an error
        ticket_of(request).cleanup.callback(reply.job.cancel)
    form = _Form(asked)
    if asked.stream:
        return StreamingResponse(_events(form, replies), media_type="text/event-stream",
                                 headers={"Cache-Control": "no-cache"})
    return await while_connected(request, _whole(form, replies))


async def _whole(form: _Form, replies: Sequence[Reply]) -> Response:
    texts = await asyncio.gather(*(reply.text() for reply in replies))
    return json_response(form.response(replies, texts))


async def _events(form: _Form, replies: Sequence[Reply]) -> AsyncIterator[str]:
    """Server-sent events: a chunk for each part of a text, in the order in which they come."""
    merged: asyncio.Queue[dict[str, Any] | Exception | None] = asyncio.Queue()

    async def forward(reply: Reply) -> None:
        try:
            async for part in reply.parts():
                merged.put_nowait(form.chunk(reply, part))
            merged.put_nowait(form.chunk(reply, None))
        except Exception as error:  # noqa: BLE001 - the stream ends with it
            merged.put_nowait(error)
        merged.put_nowait(None)

    for reply in replies:
        if form.chat:
            yield _event(form.opening(reply))
    tasks = [asyncio.create_task(forward(reply)) for reply in replies]
    try:
        left = len(tasks)
        while left:
            event = await merged.get()
            if event is None:
                left -= 1
            elif isinstance(event, Exception):
                yield _event(openai_error(status_of(event), message_of(event)))
                return
            else:
                yield _event(event)
        if form.include_usage:
            yield _event({**form.head, "choices": [], "usage": usage(replies)})
        yield "data: [DONE]\n\n"
    finally:
        for task in tasks:
            task.cancel()


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


class _Form:
    """How replies are written: as chat or as completion, whole or in chunks."""

    def __init__(self, asked: TextRequest) -> None:
        self.chat = asked.chat
        self.include_usage = asked.include_usage
        kind = "chat.completion" if asked.chat else "text_completion"
        self.head: dict[str, Any] = {
            "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{secrets.token_hex(12)}",
            "object": f"{kind}.chunk" if asked.chat and asked.stream else kind,
            "created": int(time.time()), "model": asked.model,
        }

    def response(self, replies: Sequence[Reply], texts: Sequence[str]) -> dict[str, Any]:
        choices = [self._choice(reply, {"message": {"role": "assistant", "content": text}}
                                if self.chat else {"text": text})
                   for reply, text in zip(replies, texts, strict=True)]
        return {**self.head, "choices": choices, "usage": usage(replies)}

    def opening(self, reply: Reply) -> dict[str, Any]:
        return self._chunk(reply, {"delta": {"role": "assistant", "content": ""}})

    def chunk(self, reply: Reply, part: str | None) -> dict[str, Any]:
        """A part of a text; ``None``: its end."""
        if self.chat:
            return self._chunk(reply, {"delta": {} if part is None else {"content": part}})
        return self._chunk(reply, {"text": part or ""})

    def _chunk(self, reply: Reply, content: dict[str, Any]) -> dict[str, Any]:
        return {**self.head, "choices": [self._choice(reply, content)],
                **({"usage": None} if self.include_usage else {})}

    def _choice(self, reply: Reply, content: dict[str, Any]) -> dict[str, Any]:
        return {"index": reply.index, **content, "logprobs": None,
                "finish_reason": reply.finish_reason}
