"""The application: routes, errors, and the end of its models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from weft import __version__
from weft.serving.admission import Admission
from weft.serving.catalogue import Catalogue
from weft.serving.inference_routes import inference_router
from weft.serving.metrics import CONTENT_TYPE, Metrics
from weft.serving.openai_routes import openai_router
from weft.serving.rate_limiter import RateLimiter
from weft.serving.responses import error_response, json_response, message_response
from weft.support.errors import WeftError


def make_app(catalogue: Catalogue, limiter: RateLimiter | None = None) -> FastAPI:
    """The application that serves ``catalogue``; it tells ``limiter`` of requests in error."""
    limiter = limiter or RateLimiter(catalogue.limits.max_errors)
    metrics = Metrics(catalogue)
    metrics.waiting.set_function(lambda: limiter.waiting)
    catalogue.observe(metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await catalogue.close()

    # The pages of FastAPI for people load scripts from elsewhere.
    app = FastAPI(title="weft", version=__version__, lifespan=lifespan, docs_url=None,
                  redoc_url=None)
    app.add_middleware(Admission, limits=catalogue.limits, metrics=metrics,
                       limiter=limiter)
    app.add_exception_handler(WeftError, _on_error)
    app.add_exception_handler(Exception, _on_error)  # uvicorn logs these
    app.add_exception_handler(HTTPException, _on_http_error)
    app.include_router(inference_router(catalogue))
    app.include_router(openai_router(catalogue))

    async def health() -> Response:
        return json_response({"status": "ok", "models": catalogue.names})

    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route("/metrics", show_metrics, methods=["GET"])
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(request.url.path, error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and wrong methods, which the framework finds."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}"
    return message_response(request.url.path, error.status_code, message, error.headers)
