"""The tests of ``onnx.backend.test`` for the CPU, and those that are excluded, with reasons."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import onnx.backend.test
from onnx import ModelProto

from weft.onnx_backend import WeftBackend, WeftRep

EXCLUSIONS = Path(__file__).with_name("exclusions.txt")
_SUFFIX = "_cpu"


class How(StrEnum):
    """How a test that passes was compiled."""

    GIVEN = "as given"
    BOUND = "with values of small inputs as constants"


class RecordingBackend(WeftBackend):
    """The backend, and what it has prepared."""

    prepared: ClassVar[list[WeftRep]] = []

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> WeftRep:
        """As ``WeftBackend.prepare``."""
        made = super().prepare(model, device, **options)
        cls.prepared.append(made)
        return made


@cache
def load_suite() -> dict[str, Callable[[], How]]:
    """Every test by name, without ``_cpu``, as a function that raises where it fails."""
    classes = onnx.backend.test.BackendTest(RecordingBackend, __name__).test_cases
    found: dict[str, Callable[[], How]] = {}
    for kind in sorted(classes):
        for method in sorted(vars(classes[kind])):
            if method.startswith("test_") and method.endswith(_SUFFIX):
                found[method.removesuffix(_SUFFIX)] = _bound(classes[kind], method)
    return found


def _bound(kind: type[unittest.TestCase], method: str) -> Callable[[], How]:
    def run() -> How:
        RecordingBackend.prepared.clear()
        getattr(kind(method), method)()  # a fresh test case for each run
        bound = any(made.bound_inputs for made in RecordingBackend.prepared)
        return How.BOUND if bound else How.GIVEN

    return run


def load_exclusions() -> dict[str, str]:
    """The reason for each excluded test, from lines ``name: reason``."""
    lines = EXCLUSIONS.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(": ", 1) for line in lines if line and not line.startswith("#")]
    return dict(pairs)
