"""``Target``: the machine that code is generated for, as a value.

Two targets are equal when they would give the same code, so a target serves as a cache key. Its
text form parses back: ``llvm -mtriple=… -mcpu=… -mattr=+avx2,… -l1=… -l2=… -l3=…``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.ir.dtype import DType
from weft.runtime import cpu as host_cpu
from weft.support.errors import TargetError
from weft.target.cpus import named_cpus, named_features, with_implied, without

_KIB = 1024
# What code can be generated for: 64-bit little-endian machines, in ELF objects.
ARCHITECTURES = ("aarch64", "riscv64", "x86_64")
# Systems, as triples name them, whose objects are not ELF.
_OTHER_OBJECTS = ("aix", "cygwin", "darwin", "driverkit", "emscripten", "ios", "macos", "macosx",
                  "mingw32", "tvos", "uefi", "wasi", "watchos", "win32", "windows", "xros")


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU: LLVM triple and CPU name, enabled ``features`` (sorted), cache sizes in bytes."""

    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    l1_bytes: int = 32 * _KIB
    l2_bytes: int = 512 * _KIB
    l3_bytes: int = 8192 * _KIB

    @staticmethod
    def host() -> Target:
        """The machine at hand, with the instruction sets that its kernel reports."""
        # llvmlite is loaded here, not above: naming another CPU must not cost its import.
        from llvmlite import binding

        return Target(
            triple=default_triple(),
            cpu=binding.get_host_cpu_name(),
            features=tuple(sorted(host_cpu.host_features())),
            l1_bytes=host_cpu.cache_bytes(1, 32 * _KIB),
            l2_bytes=host_cpu.cache_bytes(2, 512 * _KIB),
            l3_bytes=host_cpu.cache_bytes(3, 8192 * _KIB),
        )

    @staticmethod
    def of(value: Target | str | None) -> Target:
        """A target, its text (``"cpu"``, ``"llvm -mcpu=haswell"``), or the host for ``None``."""
        if value is None:
            return Target.host()
        if isinstance(value, str):
            return parse_target(value)
        if not isinstance(value, Target):
            raise TargetError("this is no target", got=repr(value), expected="a Target or its text")
        return value

    @property
    def kind(self) -> str:
        return "cpu"

    @property
    def arch(self) -> str:
        return self.triple.partition("-")[0]

    def has(self, feature: str) -> bool:
        """Whether an instruction set (LLVM's name) may be used."""
        return feature in self.features

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register."""
        if self.arch == "x86_64":
            return 512 if self.has("avx512f") else 256 if self.has("avx") else 128
        return 128

    @property
    def vector_registers(self) -> int:
        """How many vector registers code may use."""
        if self.arch == "x86_64":
            return 32 if self.has("avx512f") else 16
        return 32

    def lanes(self, dtype: DType | str) -> int:
        """Elements of ``dtype`` in one vector register."""
        return self.vector_bits // max(8, DType.of(dtype).bits)

    def __str__(self) -> str:
        parts = ["llvm", f"-mtriple={self.triple}", f"-mcpu={self.cpu}"]
        lacking = [f"-{name}" for name in _implied_by_cpu(self) if name not in self.features]
        words = lacking + [f"+{name}" for name in self.features]
        if words:
            parts.append("-mattr=" + ",".join(words))
        parts += [f"-l1={self.l1_bytes}", f"-l2={self.l2_bytes}", f"-l3={self.l3_bytes}"]
        return " ".join(parts)


def default_triple() -> str:
    """The triple of this machine's Linux (objects are ELF everywhere)."""
    return f"{host_cpu.machine()}-unknown-linux-gnu"


def check_triple(triple: str) -> None:
    """Raise ``TargetError`` for a triple that no code can be generated for."""
    arch, *rest = triple.split("-")
    if arch not in ARCHITECTURES:
        raise TargetError(f"the triple {triple!r} names an unsupported architecture", got=arch,
                          expected=", ".join(ARCHITECTURES),
                          help=f"this machine is {default_triple()}")
    for word in rest:
        system = word.rstrip("0123456789.")
        if word in _OTHER_OBJECTS or system in _OTHER_OBJECTS:
            raise TargetError(f"the triple {triple!r} names an unsupported operating system",
                              got=word, expected="a system with ELF objects, such as linux-gnu",
                              help=f"this machine is {default_triple()}")
        if word.endswith(("x32", "ilp32")):
            raise TargetError(f"the triple {triple!r} names a 32-bit environment", got=word,
                              expected="64-bit pointers")


def parse_target(text: str) -> Target:
    """Read a target from text.

    ``cpu``, ``llvm`` and ``native`` alone are the host. With ``-mcpu`` the features are that
    CPU's; ``-mattr`` adds and removes some. Raises ``TargetError`` for anything unknown.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:  # quotes that do not match
        raise TargetError(f"unknown target {text!r}", got=error) from error
    if not words or words[0] not in ("cpu", "llvm", "native"):
        raise TargetError(
            f"unknown target {text!r}",
            expected="cpu, or llvm with -mcpu= -mattr= -mtriple= -l1= -l2= -l3=",
        )
    options = dict(_option(word, text) for word in words[1:])
    target = _base(options.pop("mtriple", default_triple()), options.pop("mcpu", "native"))
    attributes = options.pop("mattr", "")
    if attributes:
        features = _apply_attributes(target, attributes)
        target = replace(target, features=features)
    return replace(
        target,
        l1_bytes=_bytes(options, "l1", target.l1_bytes),
        l2_bytes=_bytes(options, "l2", target.l2_bytes),
        l3_bytes=_bytes(options, "l3", target.l3_bytes),
    )


def _option(word: str, text: str) -> tuple[str, str]:
    key, equals, value = word.lstrip("-").partition("=")
    known = ("mtriple", "mcpu", "mattr", "l1", "l2", "l3")
    if not word.startswith("-") or not equals or key not in known:
        raise TargetError(
            f"unknown option {word!r} of target {text!r}",
            expected=" ".join(f"-{name}=…" for name in known),
        )
    return key, value


def _bytes(options: Mapping[str, str], key: str, default: int) -> int:
    value = options.get(key)
    if value is None:
        return default
    if not value.isdecimal() or int(value) == 0:
        raise TargetError(f"-{key}= of a target is not a size", expected="bytes", got=value)
    return int(value)


def _base(triple: str, cpu: str) -> Target:
    check_triple(triple)
    arch = triple.partition("-")[0]
    if cpu == "native":
        host = Target.host()
        if arch == host.arch:
            return replace(host, triple=triple)
        raise TargetError("a foreign target needs its CPU's name", got=triple, help="add -mcpu=…")
    features = named_features(cpu, arch)
    if features is not None:
        return Target(triple, cpu, tuple(sorted(with_implied(frozenset(features)))))
    host = Target.host()
    if cpu == host.cpu and arch == host.arch:
        return Target(triple, cpu, host.features)
    raise TargetError(
        f"unknown CPU {cpu!r}",
        expected=", ".join(named_cpus(arch)),
        help="name one of these and add what it has with -mattr=+feature",
    )


def _implied_by_cpu(target: Target) -> list[str]:
    """What naming the CPU of ``target`` enables, or may enable where that depends on the host."""
    listed = named_features(target.cpu, target.arch)
    if listed is None:
        return sorted(host_cpu.known_features(target.arch))
    return sorted(with_implied(frozenset(listed)))


def _apply_attributes(target: Target, text: str) -> tuple[str, ...]:
    features = frozenset(target.features)
    known = host_cpu.known_features(target.arch)
    for word in filter(None, text.split(",")):
        sign, name = word[0], word[1:]
        if sign not in "+-" or name not in known:
            raise TargetError(
                f"unknown feature {word!r} of {target.arch}",
                expected="+name or -name with name among " + ", ".join(sorted(known)),
            )
        enabled = sign == "+"
        features = with_implied(features | {name}) if enabled else without(features, name)
    return tuple(sorted(features))
