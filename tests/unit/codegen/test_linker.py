"""Finding linkers and linking."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.runtime.programs import C, expected, manifest, objects, opened, sample
from weft.codegen.elf.linker import find_linkers, link_shared
from weft.runtime.devices.cpu.host import machine
from weft.runtime.library import SharedLibrary
from weft.support.errors import LinkerError
from weft.target.architectures import Platform


def only(*programs: str) -> Callable[[str], str | None]:
    find = shutil.which
    return lambda name: find(name) if name in programs else None


def hide_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


@pytest.mark.parametrize("program", ["ld", "ld.lld", "ld.gold", "mold", "cc", "clang", "ziglang"])
def test_each_linker_makes_a_library_that_runs(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = shutil.which(program) is None
    if program == "ziglang":
        missing = importlib.util.find_spec("ziglang") is None
    else:
        hide_packages(monkeypatch)
    if missing:
        pytest.skip(f"{program} is not installed")
    monkeypatch.setattr(shutil, "which", only(program))
    library = SharedLibrary.from_bytes(link_shared(objects()))
    result = opened(manifest(), library, C)(sample())
    assert (result == expected(sample())).all()


def test_equal_objects_give_equal_bytes() -> None:
    assert link_shared(objects()) == link_shared(objects())


def test_no_linker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    hide_packages(monkeypatch)
    with pytest.raises(LinkerError, match="no linker for") as caught:
        link_shared(objects())
    assert "apt install binutils" in (caught.value.help or "")
    assert "pip install 'weft[cross]'" in (caught.value.help or "")


def test_for_a_foreign_architecture_help_names_linkers_that_link_for_it(monkeypatch) -> None:
    """The ones of this machine may be installed, and do not help."""
    monkeypatch.setattr(shutil, "which", only("ld"))
    hide_packages(monkeypatch)
    foreign = "riscv64" if machine() != "riscv64" else "aarch64"
    with pytest.raises(LinkerError, match=f"no linker for {foreign}") as caught:
        link_shared(objects(), Platform(foreign, "linux"))
    assert f"apt install binutils-{foreign}-linux-gnu" in (caught.value.help or "")
    assert "binutils`" not in (caught.value.help or "")
    assert "ld.lld" in (caught.value.expected or "")
    assert "ld.bfd" not in (caught.value.expected or "")


def test_what_every_linker_said_is_told() -> None:
    with pytest.raises(LinkerError, match="could not be linked") as caught:
        link_shared([b"this is no object"])
    assert len(caught.value.notes) == len(find_linkers(machine()))


def test_the_next_linker_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "ld"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    broken.chmod(0o755)
    find = shutil.which
    good = next(found for name in ("ld.bfd", "ld.gold", "ld.lld", "ld") if (found := find(name)))
    names = {"ld": str(broken), "ld.lld": good}
    monkeypatch.setattr(shutil, "which", names.get)
    hide_packages(monkeypatch)
    assert link_shared(objects()).startswith(b"\x7fELF")
    broken.write_text("")
    names["ld.lld"] = str(tmp_path / "gone")
    with pytest.raises(LinkerError) as caught:
        link_shared(objects())
    assert len(caught.value.notes) == 2


def test_another_architecture_needs_a_linker_that_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", only("ld", "cc"))
    hide_packages(monkeypatch)
    with pytest.raises(LinkerError, match="riscv64"):
        link_shared(objects(), Platform("riscv64", "linux"))
