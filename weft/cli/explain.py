"""``weft explain``: what an error code means, a program that raises it, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import click

from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean

PAGES = Path(__file__).parent / "error_pages"


def error_pages() -> dict[str, str]:
    """The pages in Markdown by their codes, in the order of codes."""
    return {path.stem: path.read_text("utf-8") for path in sorted(PAGES.glob("E*.md"))}


def summary_of(page: str) -> tuple[str, str]:
    """The class that a page is about, and the first sentence of what it means."""
    heading, meaning = page.split("\n\n", 2)[:2]
    sentence = re.split(r"(?<=\.)\s|: ", meaning.replace("\n", " "), maxsplit=1)[0]
    return heading.partition(": ")[2], sentence.removesuffix(".")


@click.command("explain")
@click.argument("code", required=False)
def explain_command(code: str | None) -> None:
    """Explain the error CODE, or list all codes.

    \b
    weft explain
    weft explain E0100
    """
    pages = error_pages()
    if code is None:
        _print_list(pages)
        return
    page = pages.get(code.upper())
    if page is None:
        raise OptionError("unknown error code", got=code, expected="E and four digits",
                          help=did_you_mean(code.upper(), pages) or "weft explain lists all codes")
    _print_page(page)


def _print_list(pages: dict[str, str]) -> None:
    from weft.cli.common import print_table

    print_table("errors of weft", ["code", "class", "meaning"],
                [(code, *summary_of(page)) for code, page in pages.items()])


def _print_page(page: str) -> None:
    """With headings and colours on a terminal; elsewhere the text as it is."""
    from rich.console import Console
    from rich.markdown import Markdown

    screen = Console()
    if screen.is_terminal:
        screen.print(Markdown(page))
    else:
        click.echo(page, nl=False)
