"""``weft cache``: showing and clearing the cache of compiled code."""

from __future__ import annotations

from typing import Any

import click

from weft.cli.common import print_json, print_table
from weft.support.cache import (
    DiskCache,
    Store,
    Usage,
    default_directory,
    store_folders,
    store_objection,
    unsafe_folder,
)
from weft.support.config import Config, config


class SizeOption(click.ParamType):
    """A number of bytes such as ``512M`` or ``4G``, as in ``WEFT_CACHE_SIZE``."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:  # noqa: ARG002 - click's names
        if isinstance(value, int):
            return value
        return Config.cache_size.convert(value, param.opts[0])


@click.group("cache", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="print the figures as JSON")
@click.pass_context
def cache_command(context: click.Context, *, as_json: bool) -> None:
    """Show the cache of compiled code, or clear it.

    The cache keeps the code of compiled models and kernels, by digests of what they were compiled
    from, so that the next compilation is fast. WEFT_CACHE_SIZE limits its size: the entries least
    recently used are removed first. WEFT_CACHE_DIR sets its folder; WEFT_NO_CACHE=1 disables it.

    \b
    weft cache                    folder, size and growth
    weft cache clear              remove all entries
    weft cache clear --keep 1G    remove the entries least recently used, down to 1 GiB

    WEFT_STORE names folders that are read where the cache has no entry; weft warm fills both.
    """
    if context.invoked_subcommand is not None:
        return
    facts = cache_facts()
    if as_json:
        print_json(facts)
    else:
        print_table("", ("cache of compiled code", ""), list(facts.items()))


@cache_command.command("clear")
@click.option("--keep", type=SizeOption(), default=0, metavar="SIZE",
              help="keep the entries used last, up to this size, such as 512M or 4G")
def clear_command(keep: int) -> None:
    """Remove compiled code from the cache. Running programs are not affected."""
    cache = DiskCache(default_directory(), config.cache_size)
    count, freed = cache.clear(keep)
    click.echo(f"removed {count_of(count, 'entry', 'entries')}, {in_units(freed)}, "
               f"from {cache.directory}")


def cache_facts() -> dict[str, str]:
    """Folder, size, limit and growth of the cache, for ``weft cache`` and ``weft doctor``."""
    directory = default_directory()
    if config.no_cache:
        return {"folder": str(directory), "state": "off (WEFT_NO_CACHE)"}
    reason = unsafe_folder(directory)
    if reason is not None:
        return {"folder": str(directory), "state": f"not used: {reason}",
                "cure": "chmod -R go-w, or chown -R, the folder; or set WEFT_CACHE_DIR to a folder "
                        "of your own"}
    usage, limit = DiskCache(directory).usage(), config.cache_size
    share = f" ({100 * usage.size / limit:.0f} %)" if limit else ""
    return {"folder": str(directory), "size": f"{_size(usage)} of {in_units(limit)}{share}",
            **_growth(usage), **_stores()}


def _stores() -> dict[str, str]:
    """The stores behind the cache (``WEFT_STORE``), each with its size or why it is not used."""
    found = {}
    for folder in store_folders():
        reason = store_objection(folder)
        number, size = Store(folder).size() if reason is None else (0, 0)
        found[f"store {folder}"] = f"not used: {reason}" if reason is not None else \
            f"{count_of(number, 'entry', 'entries')}, {in_units(size)}"
    return found


def cache_line() -> str:
    """``cache_facts`` in one line."""
    folder, *facts = cache_facts().items()
    plain = ("size", "state", "cure")
    return "; ".join([folder[1], *(value if name in plain else f"{name}: {value}"
                                   for name, value in facts)])


def _growth(usage: Usage) -> dict[str, str]:
    return {"written in the last day": in_units(usage.written_today),
            "written in the last week": in_units(usage.written_this_week),
            "unused for a month": in_units(usage.unused_for_a_month)}


def _size(usage: Usage) -> str:
    return f"{count_of(usage.entries, 'entry', 'entries')}, {in_units(usage.size)}"


def count_of(number: int, one: str, many: str) -> str:
    """A number and its noun."""
    return f"{number} {one if number == 1 else many}"


def in_units(size: float) -> str:
    """A number of bytes with its unit, such as ``1.5 MiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
