"""Pages of the command line, the settings, the passes and the error codes."""

from __future__ import annotations

import contextlib
import io
from importlib import import_module
from typing import Any

import click

from tools.site.api_pages import NAMESPACES, page_of
from weft.cli.explain import error_pages, summary_of
from weft.cli.main import _VERBS as VERBS
from weft.support.config import knobs

_PASSES = """# Passes

`weft passes` prints the same; `weft passes NAME` describes one.

```text
{}```
"""
_SETTINGS = """# Settings

Environment variables, read when they are needed; `weft doctor` shows the value of each. Options of
`weft.compile` with the same names take precedence.

| variable | default | meaning |
|---|---|---|
{}
"""
_CONTENTS = """# Reference

- [The command line](command_line.md)
- [Settings](settings.md)
- [Passes](passes.md)
- [Operators](../operators/README.md)
- [The language](../language.md) and [its grammar](../grammar.md)
- [The format of artifacts](../artifacts.md#what-a-file-needs)

## Public names

| module | what it has |
|---|---|
{}

## Error codes

Every message of weft begins with a code; `weft explain CODE` prints its page.

| code | class | meaning |
|---|---|---|
{}

```{{toctree}}
:hidden:
:caption: Reference

command_line
settings
passes
```

```{{toctree}}
:hidden:
:caption: Names
:glob:

api/*
```

```{{toctree}}
:hidden:
:caption: Errors
:glob:

errors/*
```
"""


def generated_pages() -> dict[str, str]:
    """All pages that come from code, by their paths below ``docs/reference``."""
    pages = {f"api/{n.name}.md": page_of(n) for n in NAMESPACES}
    errors = error_pages()
    pages |= {f"errors/{code}.md": page.replace("](../", "](../../")
              for code, page in errors.items()}
    pages["command_line.md"] = _command_line()
    pages["settings.md"] = _settings()
    pages["passes.md"] = _passes()
    pages["index.md"] = _contents(errors)
    return pages


def _command_line() -> str:
    parts = ["# The command line", "`weft --help` and `weft VERB --help` print the same."]
    for name, verb in VERBS.items():
        module = import_module(f"weft.cli.{verb.module}")
        command = getattr(module, f"{name}_command")
        parts += [f"## weft {name}", f"```text\n{_help_of(name, command)}\n```"]
    return "\n\n".join(parts) + "\n"


def _help_of(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"weft {name}", terminal_width=90)
    return command.get_help(context).rstrip()


def _passes() -> str:
    return _PASSES.format(_printed("catalogues", "passes_command"))


def _settings() -> str:
    rows = (f"| `{k.env}` | `{k.default!r}` | {k.doc} |" for k in knobs().values())
    return _SETTINGS.format("\n".join(rows))


def _printed(module: str, command: str, *arguments: str) -> str:
    """What a command prints."""
    found: Any = getattr(import_module(f"weft.cli.{module}"), command)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        found.main(list(arguments), standalone_mode=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _contents(errors: dict[str, str]) -> str:
    names = (f"| [{n.name}](api/{n.name}.md) | {n.about} |" for n in NAMESPACES)
    codes = (" | ".join((f"| [{code}](errors/{code}.md)", *summary_of(page))) + " |"
             for code, page in errors.items())
    return _CONTENTS.format("\n".join(names), "\n".join(codes))
