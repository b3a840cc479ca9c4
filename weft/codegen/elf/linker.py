"""Linking ELF objects into a shared object or one relocatable object, by an installed linker.

Linkers are tried first, because the objects need no C library; then C compilers, which call a
linker; then the linker in the ``ziglang`` package. For a foreign architecture only linkers that
support it are tried.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft.runtime.devices.cpu.host import machine
from weft.support.dataclass import dataclass
from weft.support.errors import LinkerError

# Reproducible output: no build id and no paths. The code needs no executable stack.
_OPTIONS = ("-shared", "--build-id=none", "-z", "noexecstack", "-z", "relro", "-z", "now",
            "-Bsymbolic", "--strip-debug")
_RELOCATABLE = ("-r", "--build-id=none", "--strip-debug")
_EMULATION = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv"}
_LINKERS = ("ld", "ld.lld", "ld.bfd", "ld.gold", "mold")
_COMPILERS = ("cc", "gcc", "clang")
# Of these only linkers for several architectures link for a foreign one.
_CROSS_LINKERS = ("ld.lld", "mold")


@dataclass(frozen=True, slots=True)
class Linker:
    """A command with the options of GNU ld: options, object files, ``-o``."""

    command: tuple[str, ...]
    options: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.command)

    def link(self, objects: Sequence[Path], output: Path) -> str | None:
        """Write ``output``; returns the linker's message if it fails."""
        command = [*self.command, *self.options, "-o", str(output), *map(str, objects)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  timeout=300, errors="replace", cwd=output.parent)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode == 0 and output.is_file():
            return None
        return (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"


def link_shared(objects: Sequence[bytes], arch: str | None = None) -> bytes:
    """The shared object made of relocatable ELF objects for ``arch`` (this machine's if None).

    Equal objects give equal bytes. Raises ``LinkerError`` if no linker is found or all fail, with
    the message of each.
    """
    return _link(objects, arch or machine(), _OPTIONS)


def link_relocatable(objects: Sequence[bytes], arch: str | None = None) -> bytes:
    """One relocatable object of several, to be linked into a program; see ``link_shared``."""
    return _link(objects, arch or machine(), _RELOCATABLE)


def _link(objects: Sequence[bytes], arch: str, options: tuple[str, ...]) -> bytes:
    complaints = []
    with tempfile.TemporaryDirectory(prefix="weft-link-") as folder:
        names = [Path(folder) / f"{number:05d}.o" for number in range(len(objects))]
        for name, code in zip(names, objects, strict=True):
            name.write_bytes(code)
        output = Path(folder) / "linked"
        # Relative names keep the random path of the folder out of the result.
        relative = [Path(name.name) for name in names]
        for linker in _search(arch, options):
            complaint = linker.link(relative, output)
            if complaint is None:
                return output.read_bytes()
            complaints.append(f"{linker}: {complaint[:500]}")
    if not complaints:
        names = (*_linkers_for(arch), *_compilers_for(arch), "ziglang")
        raise LinkerError(f"no linker for {arch} was found", help=_how_to_install(arch),
                          expected="one of " + ", ".join(names))
    raise LinkerError("the objects could not be linked", notes=complaints,
                      help=_how_to_install(arch))


def _how_to_install(arch: str) -> str:
    """What to type for a linker; the ones of this machine do not link for a foreign one."""
    if arch == machine():
        packages = "`apt install binutils` (or any C compiler)"
    else:
        cross = f"binutils-{arch.replace('_', '-')}-linux-gnu"
        packages = f"`apt install lld` or `apt install {cross}`"
    return f"install one: {packages}, or `pip install ziglang` (as in weft[linker])"


def _linkers_for(arch: str) -> tuple[str, ...]:
    return (*(_LINKERS if arch == machine() else _CROSS_LINKERS), f"{arch}-linux-gnu-ld")


def _compilers_for(arch: str) -> tuple[str, ...]:
    return _COMPILERS if arch == machine() else (f"{arch}-linux-gnu-gcc",)


def find_linkers(arch: str) -> tuple[Linker, ...]:
    """The installed linkers for an architecture, in the order in which they are tried."""
    return tuple(_search(arch, _OPTIONS))


def _search(arch: str, options: tuple[str, ...]) -> Iterator[Linker]:
    emulation = ("-m", _EMULATION[arch]) if arch in _EMULATION else ()
    for name in _linkers_for(arch):
        found = shutil.which(name)
        if found:
            yield Linker((found,), (*emulation, *options))
    for name in _compilers_for(arch):
        found = shutil.which(name)
        if found:
            yield Linker((found,), _compiler_options(options))
    if importlib.util.find_spec("ziglang") is not None:
        # The compiler driver: not every release offers ld.lld itself.
        target = ("-target", f"{arch}-linux-gnu")
        command = (sys.executable, "-m", "ziglang", "cc")
        yield Linker(command, (*target, *_compiler_options(options)))


def _compiler_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options for a C compiler that passes them to its linker."""
    kind, *rest = options
    words = " ".join(rest).replace("-z ", "-z,").split()
    return (kind, "-nostdlib", *(f"-Wl,{word}" for word in words))
