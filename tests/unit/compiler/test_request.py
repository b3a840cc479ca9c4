"""The arguments of ``weft.compile`` are checked once, before any work."""

import pytest

import weft
from weft.compiler.options import CompileOptions
from weft.compiler.request import CheckedRequest, CompileRequest
from weft.support.config import config
from weft.support.errors import OptionError, StrictError, TargetError
from weft.support.fallback import Fallback, report

CHANGE = Fallback("another plan", "a reason", "nothing", "nothing to do")


def checked(**arguments: object) -> CheckedRequest:
    request = CompileRequest(**arguments)  # type: ignore[arg-type]
    with request.settings():
        return request.check()


def test_a_request_becomes_options() -> None:
    found = checked(target="llvm -mcpu=haswell", opt_level=1, inputs={"x": ("n", 3)},
                    state={"y": "x"}, outputs=["y"])
    assert found.options == CompileOptions.make("llvm -mcpu=haswell", 1, {"x": ("n", 3)},
                                                state={"y": "x"}, outputs=["y"])
    assert (found.threads, found.knobs) == (None, {})


def test_threads_are_those_of_the_knobs_alone() -> None:
    with config(threads=3):
        assert checked().threads is None
        assert checked(knobs={"threads": 2}).threads == 2


@pytest.mark.parametrize(("arguments", "error", "text"), [
    ({"opt_level": 4}, OptionError, "opt_level"),
    ({"target": "abacus"}, TargetError, "abacus"),
    ({"inputs": {"x": 3}}, OptionError, "shape of input 'x'"),
    ({"devices": "sim:0"}, OptionError, "devices"),
    ({"placement": "cost"}, OptionError, "several devices"),
    ({"passes": [print]}, OptionError, "not a pass"),
    ({"passes": [weft.pass_at(weft.ir.PASSES.get("fuse_ops")(), after="nothing")]}, OptionError,
     "nothing"),
    ({"tir_passes": [3]}, OptionError, "pass"),
    ({"specialize": {"n": 3}}, OptionError, "specialize"),
])
def test_wrong_arguments(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        checked(**arguments)


def test_unknown_knobs_are_refused_at_once() -> None:
    with pytest.raises(OptionError, match="loudness"):
        CompileRequest(knobs={"loudness": 3})


def test_settings_hold_in_the_block_and_strict_refuses() -> None:
    with CompileRequest(knobs={"threads": 2}).settings():
        assert config.threads == 2
    with CompileRequest(strict=True).settings(), pytest.raises(StrictError, match="another plan"):
        report(CHANGE)
