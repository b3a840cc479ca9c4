"""The manual page of ``weft`` in roff, written from the help of its commands: ``weft --man``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from weft import __version__


def man_page(root: click.Group) -> str:
    """The page: the commands of ``root``, each with its arguments and options."""
    context = click.Context(root, info_name="weft")
    lines = [f'.TH WEFT 1 "" "weft {__version__}" "weft"', ".SH NAME",
             "weft \\- compile deep learning models to machine code", ".SH SYNOPSIS",
             ".B weft", "COMMAND [OPTIONS] [ARGUMENTS]", ".SH DESCRIPTION", *_text(root.help or ""),
             ".SH OPTIONS", *_options(root, context), ".SH COMMANDS"]
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        if command is not None:
            lines += _command(command, click.Context(command, context, info_name=name))
    return "\n".join([*lines, ""])


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "weft {_escaped(context.info_name or "")} {_escaped(usage)}"'
    yield from _text(command.help or "")
    yield from _options(command, context)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and record[1]:
            yield from (".TP", f"\\fB{_escaped(record[0])}\\fR", _escaped(record[1]))


def _text(text: str) -> Iterator[str]:
    """Paragraphs; those that begin with a form of ``\\b`` keep their lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = paragraph.split("\n")
        if lines[0].strip() == "\b":
            yield from (".PP", ".nf", *map(_escaped, lines[1:]), ".fi")
        else:
            yield from (".PP", _escaped(" ".join(line.strip() for line in lines)))


def _escaped(text: str) -> str:
    """Text in which roff sees no commands."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return re.sub(r"^([.'])", r"\\&\1", text)
