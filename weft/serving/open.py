"""The entry points that need the extra ``weft[serve]``, which they import when they are called."""

from __future__ import annotations

import importlib
from typing import Any

from weft.serving.catalogue import Catalogue
from weft.support.errors import MissingToolError

_PACKAGES = ("fastapi", "uvicorn", "prometheus_client")


def require_packages() -> None:
    """``MissingToolError`` unless the packages of the extra are installed."""
    missing = []
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name.replace("_", "-"))
    if missing:
        raise MissingToolError(f"serving needs {', '.join(missing)}",
                               help='pip install "weft[serve]"')


def create_app(catalogue: Catalogue) -> Any:
    """The ASGI application (FastAPI) that serves a catalogue, for any ASGI server.

    Its lifespan ends the workers of the models, once they have answered what they accepted.
    """
    require_packages()
    from weft.serving.app import make_app

    return make_app(catalogue)


def serve(catalogue: Catalogue, *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve a catalogue until SIGTERM or Ctrl-C, then answer what was accepted and return.

    Port 0 takes a free one; the first line on standard output says which. ``OptionError`` if the
    address cannot be used.
    """
    require_packages()
    from weft.serving.server import run_server

    run_server(catalogue, host, port)
