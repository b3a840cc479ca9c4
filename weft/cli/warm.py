"""``weft warm``: filling the cache of kernels before models need them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from weft.cli.cache import count_of, in_units
from weft.cli.common import print_json, session, shapes_option


@click.command("warm")
@click.argument("models", nargs=-1)
@click.option("--level", type=click.Choice(["native", "v2", "v3", "v4"]), default="native",
              show_default=True, help="the CPU to build for: this one, or a level of x86-64")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), default=None,
              metavar="FOLDER", help="also write a store, which WEFT_STORE names elsewhere")
@shapes_option
@click.option("--list", "list_only", is_flag=True, help="list the networks that are known by name")
@click.option("--json", "as_json", is_flag=True, help="print the figures as JSON")
def warm_command(models: tuple[str, ...], level: str, into: Path | None,
                 shapes: tuple[tuple[str, tuple[object, ...]], ...], *, list_only: bool,
                 as_json: bool) -> None:
    """Build kernels into the cache, so that models compile faster.

    MODELS are files, or names of common networks; by default all of these. Any model with the same
    kernels finds them: another depth or other weights change nothing, other sizes do.

    \b
    weft warm                             the kernels of common networks, for this CPU
    weft warm bert.onnx resnet-bottleneck
    weft warm --into /opt/weft-store      a folder for an image; set WEFT_STORE to it
    weft warm --level v3 --into store     for target="llvm -mcpu=x86-64-v3"
    """
    from weft.compiler.build.common_nets import COMMON_NETS

    if list_only:
        click.echo("\n".join(COMMON_NETS))
        return
    facts = _warm(models or tuple(COMMON_NETS), level, into, dict(shapes) or None)
    if as_json:
        print_json(facts)
        return
    click.echo(f"{count_of(facts['entries'], 'entry', 'entries')}, {in_units(facts['bytes'])}, "
               f"{facts['new']} of them new, in {facts['seconds']:.1f} s: {facts['folder']}")


def _warm(models: tuple[str, ...], level: str, into: Path | None,
          inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Build the kernels of each model; what the cache holds of them, and what was new."""
    from weft.compiler.build.common_nets import COMMON_NETS
    from weft.compiler.build.store import LEVELS, build_ahead, write_store
    from weft.support import progress
    from weft.support.cache import open_cache
    from weft.support.errors import OptionError

    cache = open_cache()
    if cache is None:
        raise OptionError("there is no cache to fill",
                          help="weft cache says why; WEFT_CACHE_DIR sets its folder")
    start, before = time.perf_counter(), cache.size()[0]
    keys: set[str] = set()
    with session(), progress.task("building kernels ahead", len(models)) as task:
        for name in models:
            net = COMMON_NETS.get(name)
            keys |= build_ahead(name if net is None else net(), LEVELS[level],
                                inputs if net is None else None)
            task.advance(name)
    found = [payload for key in keys if (payload := cache.get(key)) is not None]
    facts = {"entries": len(found), "bytes": sum(map(len, found)),
             "new": cache.size()[0] - before, "folder": str(into or cache.directory)}
    if into is not None:
        facts["entries"], facts["bytes"] = write_store(cache, keys, into)
    return {**facts, "seconds": time.perf_counter() - start}
