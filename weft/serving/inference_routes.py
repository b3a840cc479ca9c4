"""The routes of the Open Inference Protocol, version 2 (KServe, Triton)."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from weft import __version__
from weft.runtime.manifest import TensorSpec
from weft.serving.admission import read_body, while_connected
from weft.serving.catalogue import Catalogue
from weft.serving.responses import json_response
from weft.serving.tensor_model import TensorModel
from weft.serving.tensors import (
    DATATYPES,
    check_outputs,
    encode_response,
    parse_infer_request,
)
from weft.support.errors import InvalidInputError

HEADER_LENGTH = "Inference-Header-Content-Length"
_LARGE = 1 << 16  # bytes that a thread converts, while the event loop serves others


def inference_router(catalogue: Catalogue) -> APIRouter:
    """The routes under ``/v2``."""
    router = APIRouter(prefix="/v2")

    async def server_metadata() -> Response:
        return json_response({"name": "weft", "version": __version__,
                              "extensions": ["binary_tensor_data"]})

    async def live() -> Response:
        return json_response({"live": True})

    async def ready() -> Response:
        return json_response({"ready": True})

    async def model_metadata(name: str, version: str | None = None) -> Response:
        return json_response(metadata(catalogue, catalogue.find(name, version)))

    async def model_ready(name: str, version: str | None = None) -> Response:
        model = catalogue.find(name, version)
        return json_response({"name": model.name, "ready": True})

    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        model = catalogue.find(name, version)
        body = await read_body(request, catalogue.limits)
        length = request.headers.get(HEADER_LENGTH)
        if length is not None and not length.isdecimal():
            raise InvalidInputError(f"invalid {HEADER_LENGTH}", got=length,
                                    expected="the length of the JSON header in bytes")
        return await while_connected(request, _infer(model, body, length))

    router.add_api_route("", server_metadata, methods=["GET"])
    router.add_api_route("/health/live", live, methods=["GET"])
    router.add_api_route("/health/ready", ready, methods=["GET"])
    for path in ("/models/{name}", "/models/{name}/versions/{version}"):
        router.add_api_route(path, model_metadata, methods=["GET"])
        router.add_api_route(f"{path}/ready", model_ready, methods=["GET"])
        router.add_api_route(f"{path}/infer", infer, methods=["POST"])
    return router


def metadata(catalogue: Catalogue, model: TensorModel) -> dict[str, Any]:
    """The metadata of a model for clients; symbolic sizes are -1."""
    return {"name": model.name, "versions": catalogue.versions(model.name),
            "platform": model.platform,
            "inputs": [_described(spec) for spec in model.module.inputs],
            "outputs": [_described(spec) for spec in model.module.outputs]}


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": DATATYPES[spec.dtype],
            "shape": [size if isinstance(size, int) else -1 for size in spec.shape]}


async def _infer(model: TensorModel, body: bytes, length: str | None) -> Response:
    header = None if length is None else int(length)
    specs = model.module.outputs
    request = (parse_infer_request(body, header) if len(body) < _LARGE
               else await asyncio.to_thread(parse_infer_request, body, header))
    check_outputs(request, specs)
    arrays = await model.infer(request.feeds)
    head: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
    if request.id is not None:
        head["id"] = request.id
    large = sum(array.nbytes for array in arrays) >= _LARGE
    content, split = (await asyncio.to_thread(encode_response, head, specs, arrays, request)
                      if large else encode_response(head, specs, arrays, request))
    if split is None:
        return Response(content, media_type="application/json")
    return Response(content, media_type="application/octet-stream",
                    headers={HEADER_LENGTH: str(split)})
