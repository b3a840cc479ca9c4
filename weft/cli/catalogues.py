"""``weft ops`` and ``weft passes``: lists of operators, of passes and of rewrite rules."""

from __future__ import annotations

import click


@click.command("ops")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="print the catalogue as JSON")
@click.option("--where", is_flag=True, help="the files that know operator NAME")
@click.option("--gradients", is_flag=True, help="how each operator is differentiated")
def ops_command(name: str | None, *, as_json: bool, where: bool, gradients: bool) -> None:
    """List the operators, search them, or show the page of NAME.

    For the NAME of an ONNX or torch operator, the operators that it converts to are listed.

    \b
    weft ops
    weft ops conv
    weft ops nn.conv2d
    weft ops gelu
    weft ops --where softmax
    weft ops --gradients
    """
    from weft.cli.operator_list import print_operators, print_places

    if where:
        print_places(name or "", as_json=as_json)
        return
    print_operators(name, as_json=as_json, gradients=gradients)


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
