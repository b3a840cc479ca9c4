"""``CpuTarget``: a CPU that LLVM generates code for.

Its text form is ``llvm -mtriple=… -mcpu=… -mattr=+avx2,… -machine=… -l1=… -l2=… -l3=…``.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import ClassVar

from weft.ir.dtype import DType
from weft.runtime.devices.cpu import host as host_cpu
from weft.support.cache import open_cache
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.support.plugins import library_version
from weft.support.suggestion import did_you_mean
from weft.target.architectures import Platform, arch_of, platform_of
from weft.target.cpus import named_cpus, named_features, with_implied, without
from weft.target.host_machine import host_machine
from weft.target.machine_tables import (
    describes,
    machine_names,
    machine_of,
    machine_of_cpu,
    machine_table,
)
from weft.target.target import Target, register_target_kind
from weft.target.topology import useful_l3

# The cores of a machine that is only named. Code for it may run in a small virtual machine, which
# counts on the shares of its own cores of L3.
USUAL_CORES = 2


@register_target_kind
@dataclass(frozen=True, slots=True)
class CpuTarget(Target):
    """A CPU: LLVM triple and CPU name, enabled ``features`` (sorted), cache sizes, machine.

    Sizes are the bytes of each cache that one core can count on; ``l3_bytes`` is 0 without L3.
    ``machine`` names a shipped machine or holds the values of a measured one
    (``weft.target.machine_tables.machine_of`` reads it). What is not given follows from the CPU.
    """

    kind: ClassVar[str] = "cpu"
    names: ClassVar[tuple[str, ...]] = ("llvm", "native")

    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    machine: str = ""
    l1_bytes: int = 0
    l2_bytes: int = 0
    l3_bytes: int = -1

    def __post_init__(self) -> None:
        # Frozen: the defaults of one field follow from others.
        if not self.machine:
            name = machine_of_cpu(self.cpu, self.arch, self.vector_bits)
            object.__setattr__(self, "machine", name)
        if self.l1_bytes and self.l2_bytes and self.l3_bytes >= 0:
            return
        machine = machine_of(self.machine)
        l3 = 0 if machine.l3 is None else useful_l3(machine.l3, machine.l3.bytes, USUAL_CORES)
        object.__setattr__(self, "l1_bytes", self.l1_bytes or machine.l1.bytes_per_core)
        object.__setattr__(self, "l2_bytes", self.l2_bytes or machine.l2.bytes_per_core)
        object.__setattr__(self, "l3_bytes", self.l3_bytes if self.l3_bytes >= 0 else l3)

    @staticmethod
    def host() -> CpuTarget:
        """The CPU of this machine, with the instruction sets that the kernel reports."""
        plain = CpuTarget(default_triple(), _host_cpu_name(),
                          tuple(sorted(host_cpu.host_features())))
        machine, l1, l2, l3 = host_machine(plain.cpu, plain.arch, plain.vector_bits)
        return CpuTarget(plain.triple, plain.cpu, plain.features, machine, l1, l2, l3)

    @classmethod
    def parse(cls, text: str) -> CpuTarget:
        """Read a CPU target from text.

        ``cpu``, ``llvm`` and ``native`` alone are the host. With ``-mcpu`` the features are those
        of that CPU; ``-mattr`` adds and removes features. Raises ``TargetError`` for anything
        unknown.
        """
        _, *words = shlex.split(text)
        options = dict(_option(word, text) for word in words)
        cpu = options.get("mcpu", "native")
        target = _base(options.get("mtriple", default_triple()), cpu)
        features = _apply_attributes(target, options.get("mattr", ""))
        if cpu == "native" and "machine" not in options:
            target = replace(target, features=features)
        else:
            machine = _machine(options.get("machine", ""), target.arch)
            target = CpuTarget(target.triple, target.cpu, features, machine)
        return replace(
            target,
            l1_bytes=_bytes(options, "l1", target.l1_bytes),
            l2_bytes=_bytes(options, "l2", target.l2_bytes),
            l3_bytes=_bytes(options, "l3", target.l3_bytes),
        )

    @property
    def arch(self) -> str:
        return arch_of(self.triple)

    @property
    def platform(self) -> Platform:
        """The machine and the system of the triple."""
        return platform_of(self.triple)

    @property
    def pointer_bits(self) -> int:
        """The size of an address."""
        return self.platform.pointer_bits

    def has(self, feature: str) -> bool:
        """Whether code may use an instruction set, given by LLVM's name."""
        return feature in self.features

    @property
    def has_fma(self) -> bool:
        """Whether the CPU has fused multiply-add instructions."""
        if self.arch in ("aarch64", "riscv64"):
            return self.arch == "aarch64" or self.has("d")
        return self.has("fma") or self.has("vfp4")

    @property
    def converts_half(self) -> bool:
        """Whether the CPU has instructions that convert between float16 and float32."""
        return self.has("f16c") or self.arch == "aarch64" or self.has("zvfhmin")

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register."""
        if self.arch == "x86_64":
            return 512 if self.has("avx512f") else 256 if self.has("avx") else 128
        return 128

    @property
    def vector_registers(self) -> int:
        """The number of vector registers."""
        if self.arch == "x86_64":
            return 32 if self.has("avx512f") else 16
        return 16 if self.arch in ("arm", "wasm32") else 32

    def lanes(self, dtype: DType | str) -> int:
        """Elements of ``dtype`` in one vector register."""
        return self.vector_bits // max(8, DType.of(dtype).bits)

    def __str__(self) -> str:
        parts = ["llvm", f"-mtriple={self.triple}", f"-mcpu={self.cpu}"]
        lacking = [f"-{name}" for name in _implied_by_cpu(self) if name not in self.features]
        words = lacking + [f"+{name}" for name in self.features]
        if words:
            parts.append("-mattr=" + ",".join(words))
        parts.append(f"-machine={self.machine}")
        parts += [f"-l1={self.l1_bytes}", f"-l2={self.l2_bytes}", f"-l3={self.l3_bytes}"]
        return " ".join(parts)


def _host_cpu_name() -> str:
    """LLVM's name of this CPU."""
    return _name_by_llvm(host_cpu.machine(), host_cpu.model_name(), host_cpu.host_features())


@functools.lru_cache(maxsize=1)
def _name_by_llvm(arch: str, model: str, features: frozenset[str]) -> str:
    """The name of the host, of which this is known. The disk cache keeps it: asking loads LLVM."""
    cache = open_cache() if model else None
    known = f"{arch} {model} {sorted(features)}"
    key = sha256(f"CPU name {library_version('llvmlite')} {known}".encode()).hexdigest()
    found = None if cache is None else cache.get(key)
    if found is not None:
        return str(found, "utf-8")
    from llvmlite import binding

    name: str = binding.get_host_cpu_name()
    if cache is not None:
        cache.put(key, name.encode())
    return name


def default_triple() -> str:
    """The triple of this machine: Linux, since weft runs code there only."""
    return f"{host_cpu.machine()}-unknown-linux-gnu"


def _option(word: str, text: str) -> tuple[str, str]:
    key, equals, value = word.lstrip("-").partition("=")
    known = ("mtriple", "mcpu", "mattr", "machine", "l1", "l2", "l3")
    if not word.startswith("-") or not equals or key not in known:
        raise TargetError(
            f"unknown option {word!r} of target {text!r}",
            expected=" ".join(f"-{name}=…" for name in known),
            help=did_you_mean(key, known, shown="-{}=".format),
        )
    return key, value


def _bytes(options: Mapping[str, str], key: str, default: int) -> int:
    value = options.get(key)
    if value is None:
        return default
    if not value.isdecimal() or (int(value) == 0 and key != "l3"):
        raise TargetError(f"-{key}= of a target is not a positive number of bytes", got=value)
    return int(value)


def _machine(text: str, arch: str) -> str:
    """The option ``-machine=`` in its canonical form, empty if it is not given."""
    if not text:
        return ""
    if "=" in text:
        return str(machine_of(text))
    table = machine_table(text)
    if not describes(table, arch):
        raise TargetError(f"the machine {text!r} has another architecture", got=table.arch,
                          expected=", ".join(machine_names(arch)))
    return text


def _base(triple: str, cpu: str) -> CpuTarget:
    arch = platform_of(triple).arch
    if cpu == "native":
        host = CpuTarget.host()
        if arch == host.arch:
            return replace(host, triple=triple)
        raise TargetError("a target of another architecture needs a CPU name", got=triple,
                          help="add -mcpu=…")
    features = named_features(cpu, arch)
    if features is not None:
        return CpuTarget(triple, cpu, tuple(sorted(with_implied(frozenset(features)))))
    host = CpuTarget.host()
    if cpu == host.cpu and arch == host.arch:
        return CpuTarget(triple, cpu, host.features)
    raise TargetError(
        f"unknown CPU {cpu!r}",
        expected=", ".join(named_cpus(arch)),
        help=did_you_mean(cpu, named_cpus(arch),
                          "name one of these and add features with -mattr=+feature"),
    )


def _implied_by_cpu(target: CpuTarget) -> list[str]:
    """The features that LLVM enables for the name of the CPU of ``target``.

    For CPUs that only LLVM knows these are all known features, as any of them may be enabled.
    """
    listed = named_features(target.cpu, target.arch)
    if listed is None:
        return sorted(host_cpu.known_features(target.arch))
    return sorted(with_implied(frozenset(listed)))


def _apply_attributes(target: CpuTarget, text: str) -> tuple[str, ...]:
    features = frozenset(target.features)
    known = host_cpu.known_features(target.arch)
    for word in filter(None, text.split(",")):
        sign, name = word[0], word[1:]
        if sign not in "+-" or name not in known:
            raise TargetError(
                f"unknown feature {word!r} of {target.arch}",
                expected="+name or -name with name among " + ", ".join(sorted(known)),
                help=did_you_mean(name, known),
            )
        enabled = sign == "+"
        features = with_implied(features | {name}) if enabled else without(features, name)
    return tuple(sorted(features))
