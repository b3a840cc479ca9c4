"""Fat binaries: machine code for several architectures, and PTX for later ones, in one file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from weft.codegen.cuda.toolkit import program, run
from weft.support.errors import CodegenError


def fat_binary(cubins: Mapping[str, bytes], ptx: Mapping[str, str]) -> bytes:
    """``cubins`` and ``ptx`` by architecture (``sm_80``) as one binary that the driver loads.

    The driver takes the machine code of its device, else compiles the newest PTX that it can run.
    PTX of an ``a`` architecture runs there alone. Raises ``CodegenError`` if ``fatbinary`` fails.
    """
    with tempfile.TemporaryDirectory(prefix="weft-fatbin-") as folder:
        images = []
        for kind, entries in (("elf", cubins), ("ptx", {a: t.encode() for a, t in ptx.items()})):
            for arch, data in sorted(entries.items()):
                path = Path(folder, f"{arch}.{kind}")
                path.write_bytes(data)
                number = arch.removeprefix("sm_")
                images.append(f"--image3=kind={kind},sm={number},file={path}")
        result = Path(folder, "kernel.fatbin")
        done = run([program("fatbinary"), f"--create={result}", "--64", *images])
        if done.returncode != 0:
            raise CodegenError("fatbinary failed", got=(done.stdout + done.stderr).strip()[:2000])
        return result.read_bytes()
