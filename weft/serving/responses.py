"""Responses: JSON, and errors in the form of the protocol that was spoken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from weft.serving.refusal import message_of, retry_after_of, status_of

OPENAI_PATH = "/v1/"
_TYPES = {429: "rate_limit_error", 404: "not_found_error"}


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None
                  ) -> Response:
    """A value as JSON."""
    text = json.dumps(value, separators=(",", ":"))
    return Response(text, status, headers, media_type="application/json")


def error_response(path: str, error: BaseException) -> Response:
    """An error in the form of the protocol that a path belongs to."""
    retry = retry_after_of(error)
    headers = None if retry is None else {"Retry-After": str(retry)}
    return message_response(path, status_of(error), message_of(error), headers)


def message_response(path: str, status: int, message: str,
                     headers: Mapping[str, str] | None = None) -> Response:
    """An error with this status and message."""
    body = openai_error(status, message) if path.startswith(OPENAI_PATH) else {"error": message}
    return json_response(body, status, headers)


def openai_error(status: int, message: str) -> dict[str, Any]:
    """OpenAI's form of an error, which streams have, too."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
