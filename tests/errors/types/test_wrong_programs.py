"""Ill-typed programs and the exact messages they get.

A file in ``text/`` is a program, a line ``=====``, and the message. ``built_programs.py`` makes the
same mistakes in Python; ``built/`` holds their messages, with FILE for the path of that file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.errors.types import built_programs
from weft import op
from weft.ir import infer_type, parse
from weft.support.errors import TypeInferenceError

HERE = Path(__file__).parent
TEXTS = sorted((HERE / "text").glob("*.weft"))
BUILT = sorted(built_programs.PROGRAMS)


def sides(path: Path) -> tuple[str, str]:
    program, message = path.read_text(encoding="utf-8").split("\n=====\n")
    return program, message.rstrip("\n")


def error_of_text(path: Path) -> TypeInferenceError:
    program, _ = sides(path)
    with pytest.raises(TypeInferenceError) as caught:
        infer_type(parse(program, source=path.name))
    return caught.value


def error_of_built(name: str) -> TypeInferenceError:
    with pytest.raises(TypeInferenceError) as caught:
        infer_type(built_programs.PROGRAMS[name]())
    return caught.value


def test_the_table_is_complete():
    assert len(TEXTS) + len(BUILT) >= 60
    assert {p.stem for p in (HERE / "built").glob("*.txt")} == set(BUILT)
    assert op.add.name == "add"  # the catalogue of operators is imported


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.stem)
def test_message_of_a_text(path):
    assert error_of_text(path).render() == sides(path)[1]


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.stem)
def test_every_error_in_a_text_says_where_what_and_how(path):
    for error in error_of_text(path).errors:
        line = error.where.removeprefix(f"{path.name}:").split(":")[0]
        assert error.notes[0] == f"| {sides(path)[0].splitlines()[int(line) - 1]}"
        assert set(error.notes[1]) == {"|", " ", "^"}
        assert error.expected
        assert error.got
        assert error.help


@pytest.mark.parametrize("name", BUILT)
def test_message_of_a_built_program(name):
    expected = (HERE / "built" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
    assert error_of_built(name).render().replace(built_programs.__file__, "FILE") == expected


@pytest.mark.parametrize("name", BUILT)
def test_every_error_in_python_shows_the_line_of_the_user(name):
    for error in error_of_built(name).errors:
        line = int(error.where.removeprefix(f"{built_programs.__file__}:").split(":")[0])
        shown = Path(built_programs.__file__).read_text(encoding="utf-8").splitlines()[line - 1]
        assert error.notes[0] == f"| {shown.strip()}"
        assert error.help
