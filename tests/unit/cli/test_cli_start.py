"""Help and completion are printed without importing the compiler."""

import subprocess
import sys

import click
import pytest

from weft.cli.debug import DEFAULT_BOUND
from weft.cli.inspect import STAGES
from weft.cli.loader import LANGUAGES
from weft.cli.main import cli
from weft.compiler.stages import all_stages
from weft.debug.compare import DEFAULT_BOUND as COMPARED_BOUND
from weft.export.loaders import LOADERS

VERBS = cli.list_commands(click.Context(cli))


def modules_of(*arguments, **variables):
    """The top-level modules, and those of weft, that a command line imports; what it prints."""
    code = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from weft.cli.main import main
main(sys.argv[1:])
"""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True,
                          check=True, env={"COLUMNS": "100", **variables})
    return set(done.stderr.split()), done.stdout


def test_help_lists_every_verb_with_the_first_sentence_of_its_help():
    modules, text = modules_of("--help")
    assert not modules & {"numpy", "llvmlite", "rich", "weft.ir", "weft.runtime", "weft.cli.common"}
    limit = 80 - 2 - 6 - max(map(len, VERBS))  # the width of the column, as click derives it
    for verb in VERBS:
        command = cli.get_command(click.Context(cli), verb)
        shown = " ".join(line.split(maxsplit=1)[1] for line in text.splitlines()
                         if line.startswith(f"  {verb} "))
        assert command.get_short_help_str(limit) == shown


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_imports_neither_numpy_nor_the_compiler(verb):
    modules, text = modules_of(verb, "--help")
    assert "Usage: weft" in text
    assert not modules & {"numpy", "llvmlite", "rich", "weft.ir", "weft.runtime", "weft.transform"}


def test_shells_complete_verbs_without_importing_them():
    modules, text = modules_of(_WEFT_COMPLETE="bash_complete", COMP_WORDS="weft pro",
                               COMP_CWORD="1")
    assert text.split() == ["plain,profile"]
    assert "weft.cli.run" not in modules


def test_what_the_command_line_repeats_is_current():
    assert all_stages() == STAGES
    assert DEFAULT_BOUND == COMPARED_BOUND
    assert tuple(LOADERS) == LANGUAGES
