"""``weft keys`` and ``weft sign``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("keys")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("weft"),
              show_default=True, help="the name of the files, without .key and .pub")
def keys_command(output: Path) -> None:
    """Make a pair of keys to sign artifacts with.

    NAME.key is the private key, to be kept secret; NAME.pub is for those who load what it signs.
    """
    from weft.export.signing import make_keys

    public = make_keys(output)
    click.echo(f"wrote {output}.key, which is secret\nwrote {output}.pub: {public}")


@click.command("sign")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), required=True,
              help="the private key, which weft keys wrote")
def sign_command(file: Path, key: Path) -> None:
    """Sign the artifact FILE; signatures of other keys are kept.

    \b
    weft keys -o release
    weft sign net.weft --key release.key
    """
    from weft.export.signing import sign_artifact

    sign_artifact(file, key)
    click.echo(f"signed {file}")
