"""Linking objects into a shared library or one relocatable object, by an installed linker.

For ELF, linkers of the system are tried first, because the objects need no C library; then C
compilers, which call a linker; then the linkers in the ``ziglang`` package, which is an LLVM with
linkers for every format. For a foreign architecture or another format only linkers that support it
are tried.
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
from weft.target.architectures import Platform

# Reproducible output: no build id and no paths. The code needs no executable stack.
_ELF_OPTIONS = ("-shared", "--build-id=none", "-z", "noexecstack", "-z", "relro", "-z", "now",
                "-Bsymbolic", "--strip-debug")
_RELOCATABLE = ("-r", "--build-id=none", "--strip-debug")
_EMULATION = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv",
              "arm": "armelf_linux_eabi"}
_LINKERS = ("ld", "ld.lld", "ld.bfd", "ld.gold", "mold")
_COMPILERS = ("cc", "gcc", "clang")
# Of these only linkers for several architectures link for a foreign one.
_CROSS_LINKERS = ("ld.lld", "mold")
# As large as that of a thread elsewhere may get; the default of 64 kB is too small for kernels.
_WASM_STACK = ("-z", "stack-size=1048576")
_PACKAGES = {"arm": "arm-linux-gnueabihf"}  # other architectures: NAME-linux-gnu
_COFF_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Linker:
    """A command with its options; ``output`` is the option that names the result."""

    command: tuple[str, ...]
    options: tuple[str, ...]
    output: str = "-o"

    def __str__(self) -> str:
        return " ".join(self.command)

    def link(self, objects: Sequence[Path], output: Path) -> str | None:
        """Write ``output``; returns the linker's message if it fails."""
        named = (self.output, str(output)) if self.output == "-o" else (f"{self.output}{output}",)
        command = [*self.command, *self.options, *named, *map(str, objects)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  timeout=300, errors="replace", cwd=output.parent)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode == 0 and output.is_file():
            return None
        return (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"


def this_platform() -> Platform:
    """The machine that weft runs on, for which it emits ELF objects."""
    return Platform(machine(), "linux")


def link_shared(objects: Sequence[bytes], platform: Platform | None = None,
                exports: Sequence[str] = ()) -> bytes:
    """The shared library made of relocatable objects for ``platform`` (this machine's if None).

    ``exports`` are the functions that it offers; all global symbols if there are none. A library
    for WebAssembly is a module. Equal objects give equal bytes. Raises ``LinkerError`` if no linker
    is found or all fail, with the message of each.
    """
    given = platform or this_platform()
    return _link(objects, given, list(_shared_linkers(given, exports)))


def link_relocatable(objects: Sequence[bytes], platform: Platform | None = None) -> bytes:
    """One relocatable object of several, to be linked into a program; see ``link_shared``."""
    given = platform or this_platform()
    if given.object_format == "wasm":
        linkers = list(_of_package("wasm-ld", ("wasm-ld",), _RELOCATABLE[:1]))
    elif given.object_format == "elf":
        linkers = list(_elf_linkers(given, _RELOCATABLE))
    else:
        linkers = list(_of_package("", ("cc", "-target", f"{given.arch}-macos"), ("-r",)))
    return _link(objects, given, linkers)


def link_program(objects: Sequence[bytes], platform: Platform, entry: str = "_start") -> bytes:
    """A program that needs no C library; see ``link_shared``."""
    if platform.object_format == "wasm":
        options = ("--no-entry", f"--export={entry}", "--strip-all", *_WASM_STACK)
        return _link(objects, platform, list(_of_package("wasm-ld", ("wasm-ld",), options)))
    options = ("-static", "--build-id=none", f"--entry={entry}", "--strip-debug")
    return _link(objects, platform, list(_elf_linkers(platform, options)))


def _link(objects: Sequence[bytes], platform: Platform, linkers: Sequence[Linker]) -> bytes:
    complaints = []
    with tempfile.TemporaryDirectory(prefix="weft-link-") as folder:
        names = [Path(folder) / f"{number:05d}.o" for number in range(len(objects))]
        for name, code in zip(names, objects, strict=True):
            name.write_bytes(code)
        output = Path(folder) / "linked"
        # Relative names keep the random path of the folder out of the result.
        relative = [Path(name.name) for name in names]
        for linker in linkers:
            complaint = linker.link(relative, output)
            if complaint is None:
                return output.read_bytes()
            complaints.append(f"{linker}: {complaint[:500]}")
    if not complaints:
        raise LinkerError(f"no linker for {_described(platform)} was found",
                          help=_how_to_install(platform),
                          expected="one of " + ", ".join(_tried(platform)))
    raise LinkerError("the objects could not be linked", notes=complaints,
                      help=_how_to_install(platform))


def _described(platform: Platform) -> str:
    is_elf = platform.object_format == "elf"
    return platform.arch if is_elf else f"{platform.arch} {platform.system}".strip()


def _how_to_install(platform: Platform) -> str:
    """What to type for a linker; the ones of this machine do not link for a foreign one."""
    package = "`pip install 'weft[cross]'` (the linkers of ziglang)"
    if platform.object_format != "elf":
        return f"install one: {package}"
    if platform.arch == machine():
        return f"install one: `apt install binutils` (or any C compiler), or {package}"
    cross = f"binutils-{_prefix(platform).replace('_', '-')}"
    return f"install one: {package}, `apt install lld` or `apt install {cross}`"


def _tried(platform: Platform) -> tuple[str, ...]:
    if platform.object_format != "elf":
        return ("wasm-ld", "ziglang") if platform.object_format == "wasm" else ("ziglang",)
    return (*_linkers_for(platform), *_compilers_for(platform), "ziglang")


def _prefix(platform: Platform) -> str:
    return _PACKAGES.get(platform.arch, f"{platform.arch}-linux-gnu")


def _linkers_for(platform: Platform) -> tuple[str, ...]:
    own = _LINKERS if platform.arch == machine() else _CROSS_LINKERS
    return (*own, f"{_prefix(platform)}-ld")


def _compilers_for(platform: Platform) -> tuple[str, ...]:
    return _COMPILERS if platform.arch == machine() else (f"{_prefix(platform)}-gcc",)


def find_linkers(arch: str) -> tuple[Linker, ...]:
    """The installed linkers of ELF for an architecture, in the order in which they are tried."""
    return tuple(_elf_linkers(Platform(arch, "linux"), _ELF_OPTIONS))


def _shared_linkers(platform: Platform, exports: Sequence[str]) -> Iterator[Linker]:
    match platform.object_format:
        case "elf":
            yield from _elf_linkers(platform, _ELF_OPTIONS)
        case "wasm":
            named = [f"--export={name}" for name in exports] or ["--export-all"]
            # What runs a module puts arrays where its own memory ends.
            options = ("--no-entry", "--strip-debug", "--allow-undefined", "--export=__heap_base",
                       *_WASM_STACK, *named)
            yield from _of_package("wasm-ld", ("wasm-ld",), options)
        case "coff":
            named = [f"/export:{name}" for name in exports]
            options = ("/dll", "/noentry", "/nodefaultlib", "/Brepro", "/nologo",
                       f"/machine:{_COFF_MACHINES[platform.arch]}", *named)
            yield from _of_package("lld-link", ("lld-link",), options, "/out:")
        case _:
            yield from _of_package("", ("cc", "-target", f"{platform.arch}-macos"), (
                "-dynamiclib", "-nostdlib", "-Wl,-install_name,@rpath/model.dylib"))


def _of_package(program: str, words: tuple[str, ...], options: tuple[str, ...],
                output: str = "-o") -> Iterator[Linker]:
    """A linker of LLVM: as a program, else as a part of the ``ziglang`` package."""
    found = shutil.which(program) if program else None
    if found:
        yield Linker((found,), options, output)
    if importlib.util.find_spec("ziglang") is not None:
        yield Linker((sys.executable, "-m", "ziglang", *words), options, output)


def _elf_linkers(platform: Platform, options: tuple[str, ...]) -> Iterator[Linker]:
    emulation = ("-m", _EMULATION[platform.arch]) if platform.arch in _EMULATION else ()
    for name in _linkers_for(platform):
        found = shutil.which(name)
        if found:
            yield Linker((found,), (*emulation, *options))
    for name in _compilers_for(platform):
        found = shutil.which(name)
        if found:
            yield Linker((found,), _compiler_options(options))
    if importlib.util.find_spec("ziglang") is not None:
        yield Linker((sys.executable, "-m", "ziglang", "ld.lld"), (*emulation, *options))


def _compiler_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options for a C compiler that passes them to its linker."""
    kind, *rest = options
    words = " ".join(rest).replace("-z ", "-z,").split()
    return (kind, "-nostdlib", *(f"-Wl,{word}" for word in words))
