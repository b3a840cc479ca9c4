"""Errors cross processes whole, and names that are taken are known before they are used."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from weft.nn.modules.containers import MissingEntryError
from weft.support.errors import AllocationError, InvalidInputError


@pytest.mark.parametrize("kind", [InvalidInputError, AllocationError, MissingEntryError],
                         ids=lambda kind: kind.__name__)
def test_errors_cross_processes(kind):
    error = kind("too large", where="here", expected="less", got="more", notes=("a note",),
                 help="use less")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert str(error.at("there", "another note")) == f"{error}".replace(
        "  a note", "  a note\n  another note")


def test_an_operator_of_a_user_cannot_have_a_name_of_weft_in_a_fresh_process():
    program = '''
import weft
from weft.ir.typing.relations import same_type_as

@weft.define_op("exp", relation=same_type_as(0))
def exp(x, attrs):
    """Another exponential."""
    return x
'''
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=False)
    assert "E0011 operator 'exp' is registered twice" in done.stderr
