"""Pages of the command line, the options, the settings, the passes and the error codes."""

from __future__ import annotations

import contextlib
import inspect
import io
from importlib import import_module
from typing import Any

import click

import weft
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

Each setting is an environment variable, which is read when it is needed, and a name for Python.
`weft doctor` shows the value of each. `with weft.config(debug=5):` sets it for a block,
`weft.compile(model, debug=5)` for a compilation; both take precedence over the variable.

| variable | in Python | default | meaning |
|---|---|---|---|
{}
"""
_OPTIONS = """# Options of weft.compile

`weft.compile(model, ...)` takes these by keyword. All [settings](settings.md) are options, too, for
this compilation alone: `weft.compile(model, threads=4, precision="bf16")`.

| option | default | meaning |
|---|---|---|
{}
"""
# What the options of ``weft.compile`` mean; links are those of ``docs/reference``.
OPTIONS = {
    "target": (
        'what to compile for: a `Target` or its text, such as `"llvm -mcpu=haswell"` or '
        '`"cuda -arch=sm_90a"`; `None` is the setting `WEFT_TARGET`, which is this machine. '
        "`weft targets` lists them"),
    "inputs": (
        'shapes by input name, instead of those of the model: `{"x": ("batch", 3, 224, '
        "224)}`. A name makes the size [symbolic](../dynamic_shapes.md). The name of an inner"
        " tensor makes that tensor an input"),
    "example_inputs": (
        "the arguments with which a module of [PyTorch](../pytorch.md) or a function of "
        "[JAX](../jax.md) is traced"),
    "opt_level": (
        "0 for no optimisation, up to 3 for all"),
    "passes": (
        "[passes of yours](../tutorials/add_pass.md) over the typed program; `weft.pass_at` "
        "gives a pass its position"),
    "rules": (
        "[rewrite rules of yours](../tutorials/add_rule.md), which `simplify_expr` applies "
        "before its own"),
    "tir_passes": (
        "[functions over the loops](../tutorials/add_tir_pass.md) of each kernel"),
    "codegens": (
        "names of [external code generators](../codegen.md), in the order in which they "
        "choose"),
    "specialize": (
        "sizes for which the program gets faster kernels, beside those for all sizes: "
        '`{"batch": [1, 8, (2, 4)]}`'),
    "state": (
        'outputs and the inputs that they are the next values of: `{"present": "past"}`. The '
        "module keeps these tensors and updates them in place"),
    "outputs": (
        "names of the tensors to compute, instead of the outputs of the model"),
    "devices": (
        "[devices](../graphs.md) over which the program is spread"),
    "placement": (
        'how it is spread: `"cost"`, `"profile"`, or a device for each name; `None`: by the '
        "annotations of the program"),
    "soft_placement": (
        "run on the first device what names a device that is not listed"),
    "strict": (
        "raise `StrictError` where weft otherwise warns of [what it does "
        "instead](../performance.md#what-weft-does-instead)"),
    "tier": (
        '`"fast"` answers sooner and makes the faster code [in a thread](../compile_time.md)'),
}
_CONTENTS = """# Reference

- [The command line](command_line.md)
- [Options of weft.compile](options.md)
- [Settings](settings.md)
- [Passes](passes.md)
- [Operators](../operators/README.md)
- [The language](../language.md) and [its grammar](../grammar.md)
- [The format of artifacts](../artifacts.md#what-a-file-needs), and [how long a file
  lasts](../artifacts.md#how-long-a-file-lasts)

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
options
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
    pages["options.md"] = _options()
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


def _options() -> str:
    """The options in the order of the signature. Raises ``ValueError`` for one without meaning."""
    options = {name: p.default for name, p in inspect.signature(weft.compile).parameters.items()
               if p.kind is p.KEYWORD_ONLY}
    if options.keys() != OPTIONS.keys():
        wrong = ", ".join(sorted(options.keys() ^ OPTIONS.keys()))
        raise ValueError(f"weft.compile and OPTIONS have different options: {wrong}")
    rows = (f"| `{name}` | `{default!r}` | {OPTIONS[name]} |" for name, default in options.items())
    return _OPTIONS.format("\n".join(rows))


def _settings() -> str:
    rows = (f"| `{k.env}` | `{k.name}` | `{k.default!r}` | {k.doc} |" for k in knobs().values())
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
