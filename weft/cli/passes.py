"""``weft passes``: the pipelines, and the passes and rules that positions and settings may name."""

from __future__ import annotations

import click


@click.command("passes")
@click.argument("name", required=False)
@click.option("--target", default=None, metavar="TARGET",
              help="list the tir passes for this target")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def passes_command(name: str | None, target: str | None, *, as_json: bool) -> None:
    """List the passes of the compiler, or describe the pass NAME.

    The names are positions for users' passes (weft.pass_at), steps of `weft opt -p`, and values of
    WEFT_PRINT_AFTER. Passes and rules that plug-ins register are included.

    \b
    weft passes                  phases, passes, tir passes and rewrite rules
    weft passes fold_constant    what a pass does, its options, its phases
    """
    from weft.cli.pass_list import print_passes

    print_passes(name, target, as_json=as_json)
