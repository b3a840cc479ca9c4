"""The tests of ``onnx.backend.test`` for the CPU, and those that are excluded, with reasons."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from functools import cache
from pathlib import Path

import onnx.backend.test

from weft.compiler.onnx_backend import WeftBackend

EXCLUSIONS = Path(__file__).with_name("exclusions.txt")
_SUFFIX = "_cpu"


@cache
def load_suite() -> dict[str, Callable[[], None]]:
    """Every test by name, without ``_cpu``, as a function that raises where it fails."""
    classes = onnx.backend.test.BackendTest(WeftBackend, __name__).test_cases
    found: dict[str, Callable[[], None]] = {}
    for kind in sorted(classes):
        for method in sorted(vars(classes[kind])):
            if method.startswith("test_") and method.endswith(_SUFFIX):
                found[method.removesuffix(_SUFFIX)] = _bound(classes[kind], method)
    return found


def _bound(kind: type[unittest.TestCase], method: str) -> Callable[[], None]:
    def run() -> None:
        getattr(kind(method), method)()  # a fresh test case for each run

    return run


def load_exclusions() -> dict[str, str]:
    """The reason for each excluded test, from lines ``name: reason``."""
    lines = EXCLUSIONS.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(": ", 1) for line in lines if line and not line.startswith("#")]
    return dict(pairs)
