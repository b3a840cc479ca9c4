"""What pages name exists: commands and their options, settings, extras, targets of make, files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise

import click

from tests.docs.coverage_page import ROOT
from weft.cli.main import cli
from weft.support.config import knobs

FOLDERS = ("docs", "docs/tutorials", "docs/guides", "weft/cli/error_pages")
PAGES = [*(page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))),
         *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in PAGES}
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|`|[.]venv/bin/|python -m )weft ([a-z]+)\b([^`#\n]*)", re.MULTILINE)
_OPTION = re.compile(r"(?<!\S)(--?[a-z][\w-]*)")
_OF_OTHERS = {"WEFT_COMPLETE", "WEFT_TEST_SEED", "WEFT_TEST_SHARE"}  # click's, and of the tests


def commands_in(text: str) -> Iterator[tuple[str, str]]:
    """The commands in code, each with what follows it; words in quotes are values."""
    code = [*(body for _, body in _BLOCK.findall(text)), *re.findall(r"`weft [^`]+`", text)]
    yield from _COMMAND.findall(re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", "''", "\n".join(code)))


def options_of(command: click.Command) -> set[str]:
    """The options of a command and of the commands below it."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    own = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return own.union({"--help"}, *map(options_of, below))


def wrong_commands(text: str) -> list[str]:
    found = []
    for name, rest in commands_in(text):
        command = cli.get_command(click.Context(cli), name)
        if command is None or set(_OPTION.findall(rest)) - options_of(command):
            found.append(f"weft {name}{rest}")
    return found


def extras() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project["optional-dependencies"]


def wrong_names(text: str) -> set[str]:
    """Settings, extras and targets of make that do not exist."""
    settings = set(re.findall(r"(?<!\w)WEFT_[A-Z_]+\b", text)) - _OF_OTHERS
    brackets = re.findall(r"(?:weft|pip install \S*)\[([a-z,-]+)\]", text)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    code = "\n".join(body for kind, body in _BLOCK.findall(text) if kind in ("sh", "bash"))
    targets = {*re.findall(r"^make ([a-z-]+)", code, re.MULTILINE),
               *re.findall(r"`make ([a-z-]+)", text)}
    return ((settings - {knob.env for knob in knobs().values()})
            | ({one for names in brackets for one in names.split(",")} - extras().keys())
            | (targets - set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))))


def missing_files(text: str) -> list[str]:
    """Paths and modules of the repository that do not exist."""
    folders = "weft|docs|tests|benchmarks|tools|examples|packaging"
    modules = re.findall(r"python -m ((?:benchmarks|tools|examples|tests)[\w.]*\w)", text)
    paths = [path for path in re.findall(rf"`((?:{folders})/[\w./-]+?)`", text)
             if not (ROOT / path).exists()]
    return paths + [module for module in modules if not any(
        (ROOT / f"{module.replace('.', '/')}{end}").exists() for end in (".py", "/__init__.py"))]


def faults_of_form(text: str) -> list[str]:
    """Text directly below a table (a row of it), headings without words, outputs shown twice."""
    prose = _BLOCK.sub("```", text)
    rows = re.findall(r"^\|.*\n(?!\||<!--|\n)(.+)", prose, re.MULTILINE)
    blocks = [(found[1], found[2], found.start(), found.end()) for found in _BLOCK.finditer(text)]
    twice = [second[1] for first, second in pairwise(blocks)
             if first[0] == second[0] == "text" and not text[first[3]:second[2]].strip()]
    return [*rows, *re.findall(r"^#+ *$", prose, re.MULTILINE), *twice]


def test_commands_and_options_exist() -> None:
    assert sum(1 for text in TEXTS.values() for _ in commands_in(text)) > 100
    assert {page: found for page, text in TEXTS.items() if (found := wrong_commands(text))} == {}


def test_settings_extras_and_targets_exist() -> None:
    assert {page: found for page, text in TEXTS.items() if (found := wrong_names(text))} == {}


def test_the_page_of_installation_has_every_extra() -> None:
    """All but those that only tests of weft itself need."""
    shown = set(re.findall(r"`weft\[([a-z-]+)\]`", TEXTS["docs/install.md"]))
    assert {one for one in extras() if not one.endswith("test")} <= shown


def test_files_of_the_repository_exist() -> None:
    assert {page: found for page, text in TEXTS.items() if (found := missing_files(text))} == {}


def test_tables_end_and_outputs_are_shown_once() -> None:
    assert {page: found for page, text in TEXTS.items() if (found := faults_of_form(text))} == {}


def test_what_is_wrong_is_found() -> None:
    """Each check can fail."""
    text = "`weft compil x`\n```sh\nweft bench m.onnx --thread 1\nmake tset\n```\n"
    assert wrong_commands(text) == ["weft bench m.onnx --thread 1", "weft compil x"]
    assert wrong_names(text + '`WEFT_DEBUGS=1`, `pip install "weft[onxn]"`') == {
        "WEFT_DEBUGS", "onxn", "tset"}
    assert missing_files("`weft/none.py`, `python -m benchmarks.none`") == [
        "weft/none.py", "benchmarks.none"]
    table = "| a |\n|---|\n| 1 |\nbelow\n\n##\n\n```text\n1\n```\n```text\n2\n```\n"
    assert faults_of_form(table) == ["below", "##", "2\n"]
