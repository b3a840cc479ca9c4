"""The options of a compilation, as a value that caches key on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

from weft.codegen import Backend, backend_of
from weft.compiler.device_options import (
    DevicesLike,
    DeviceSpec,
    PlacementLike,
    PlacementSpec,
    device_of,
    devices_of,
    placement_of,
)
from weft.compiler.extensions import Extensions
from weft.compiler.first_calibration import calibrate_if_unknown
from weft.ir.symbol import SizeRange
from weft.runtime.device import HOST
from weft.runtime.manifest import Manifest
from weft.strategy.records import active_records
from weft.support.config import Config, config
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, TargetError
from weft.target import CpuTarget, Target

MAX_OPT_LEVEL = 3
TIERS = ("fast", "full")

# A target or its text, or one for each part of the machine: {"gpu": "cuda", "host": "cpu"}.
TargetLike: TypeAlias = "Target | str | Mapping[str, Target | str] | None"

# {"seq": [1, (2, 16)]}: a variant for each; [{"batch": 1, "seq": (1, 16)}]: one for both at once.
SpecializeLike: TypeAlias = "Mapping[str, Sequence[object]] | Sequence[Mapping[str, object]] | None"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """``inputs`` are the overridden shapes by input name, in the order given.

    ``winograd`` is the value of that setting when the options were made: whether convolutions may
    run by Winograd. ``codegens`` are the names of external code generators, in the order in which
    they choose regions. ``records`` is the digest of the measured records that kernels are chosen
    by, ``records_file`` the file that held them. ``extensions`` are the user's passes and rules.
    ``symbolic_sizes``: whether a model with dynamic shapes gets one program for all sizes.
    ``data_sizes``: whether sizes that data determines are symbols, not unknown.
    ``specialize`` are the sizes for which its kernels get variants: for each variant the names of
    symbols, or products of them (``"batch*seq"``), with their ranges; ``frequent`` are those for
    which it gets variants that give the same bits. ``state`` are outputs and the inputs that they
    are the next values of, by name. ``host`` is the target of the parts of a
    program that run on the host beside a device; ``None``: this machine's CPU. ``outputs`` are the
    tensors to compute, by the names of the model; ``None``: its outputs. ``devices`` are those that
    the program is spread over (none: the target's alone), ``placement`` says how (``None``: by the
    annotations of the program). With ``soft_placement``, what names another device runs on the
    first one. ``tier`` says whether the first code is all that there will be; it decides about no
    result, and is not part of a key. ``precision`` is the value of that setting.
    """

    target: Target
    opt_level: int = 3
    inputs: tuple[tuple[str, tuple[object, ...] | None], ...] = ()
    winograd: bool = True
    codegens: tuple[str, ...] = ()
    records: str = ""
    records_file: Path | None = None
    extensions: Extensions = field(default_factory=Extensions)
    symbolic_sizes: bool = True
    specialize: tuple[tuple[tuple[str, SizeRange], ...], ...] = ()
    state: tuple[tuple[str, str], ...] = ()
    data_sizes: bool = True
    host: Target | None = None
    outputs: tuple[str, ...] | None = None
    devices: tuple[DeviceSpec, ...] = ()
    placement: PlacementSpec = None
    soft_placement: bool = False
    tier: str = "full"
    precision: str = "fp32"
    frequent: tuple[tuple[tuple[str, SizeRange], ...], ...] = ()

    @staticmethod
    def make(
        target: TargetLike = None,
        opt_level: int = 3,
        inputs: Mapping[str, Sequence[object] | None] | None = None,
        codegens: Sequence[str] = (),
        extensions: Extensions | None = None,
        specialize: SpecializeLike = None,
        state: Mapping[str, str] | None = None,
        outputs: Sequence[str] | None = None,
        devices: DevicesLike = None,
        placement: PlacementLike = None,
        *,
        soft_placement: bool = False,
        tier: str = "full",
    ) -> CompileOptions:
        """Checked options; raises ``OptionError`` and ``TargetError``.

        ``extensions`` default to those registered.
        """
        known = isinstance(opt_level, int) and not isinstance(opt_level, bool)
        if not known or not 0 <= opt_level <= MAX_OPT_LEVEL:
            raise OptionError("opt_level cannot be used", expected=f"0 to {MAX_OPT_LEVEL}",
                              got=repr(opt_level))
        if tier not in TIERS:
            raise OptionError("tier cannot be used", expected=" or ".join(map(repr, TIERS)),
                              got=repr(tier))
        chosen, host = targets_of(config.target if target is None else target)
        on_devices = devices_of(devices, chosen)
        if placement is not None and not on_devices and backend_of(chosen).device == HOST:
            raise OptionError("placement is for programs on several devices",
                              expected='devices=["sim:0", "sim:1"], for example')
        if on_devices and codegens:
            raise OptionError("external code generators take programs for one device",
                              got=", ".join(map(str, on_devices)))
        return CompileOptions(chosen, opt_level, _shapes(inputs), config.winograd,
                              _names(codegens), active_records().digest, config.records,
                              Extensions.make() if extensions is None else extensions,
                              config.symbolic_sizes, _variants(specialize), _state(state),
                              data_sizes=not (on_devices and backend_of(chosen).device == HOST)
                              and _takes_data_sizes(chosen, codegens),
                              host=host, outputs=_outputs(outputs), devices=on_devices,
                              placement=placement_of(placement), soft_placement=soft_placement,
                              tier=tier, precision=config.precision)

    def target_of(self, manifest: Manifest) -> Target:
        """The target of a program: the host's for one that a device cannot run at all."""
        is_for_host = manifest.target.kind != self.target.kind
        return self.host_target if is_for_host else self.target

    @property
    def backend(self) -> Backend[Any]:
        """The back end of the program on its devices."""
        return backend_of(self.target).on_devices([device_of(one) for one in self.devices])

    @property
    def host_target(self) -> Target:
        """The target of what runs on the host."""
        return CpuTarget.host() if self.host is None else self.host

    @property
    def input_shapes(self) -> dict[str, tuple[object, ...] | None] | None:
        """``inputs`` as a dictionary; ``None`` if no shape is overridden."""
        return dict(self.inputs) or None

    def at(self, inputs: Mapping[str, Sequence[object]]) -> CompileOptions:
        """These options with the shapes of ``inputs`` overridden."""
        return dataclasses.replace(self, inputs=_shapes({**dict(self.inputs), **inputs}))

    @property
    def placement_names(self) -> dict[str, str]:
        """The devices that ``placement`` gives by the names of tensors."""
        return dict(self.placement) if isinstance(self.placement, tuple) else {}

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices that annotations may name, the default first; none: all, to no effect."""
        if self.devices:
            return tuple(map(str, self.devices))
        own = backend_of(self.target).device
        return () if own == HOST else (str(own), str(HOST))

    def settings(self) -> AbstractContextManager[Config]:
        """The settings that decide about code, as they were when the options were made.

        A compilation that continues later (stages as text, new shapes) runs under them.
        """
        return config(winograd=self.winograd, records=self.records_file,
                      precision=self.precision)

    def key_text(self) -> str:
        """Equal for options that give the same code; extensions are not part of it."""
        return "|".join(f"{name}={value}" for name, value in self.key_parts().items())

    def key_parts(self) -> dict[str, str]:
        """What decides about the code, as text by the name of the option."""
        names = ["target", "opt_level", "inputs", "winograd", "records", "symbolic_sizes",
                 "specialize", "state", "data_sizes", "outputs", "precision"]
        if self.devices or self.placement is not None:
            names += ["devices", "placement", "soft_placement"]
        names += ["frequent"] if self.frequent else []
        parts = {name: str(getattr(self, name)) for name in names}
        if self.host is not None or backend_of(self.target).device != HOST:
            parts["host"] = str(self.host_target)
        return parts


def targets_of(value: TargetLike) -> tuple[Target, Target | None]:
    """The target of a program, and that of its parts on the host, if ``value`` names it.

    ``TargetError`` for unknown targets, and for a mapping other than one device and ``host``.
    """
    if not isinstance(value, Mapping):
        if _is_host(value):
            calibrate_if_unknown()
        return Target.of(value), None
    others = {name: Target.of(one) for name, one in value.items() if name != "host"}
    if len(others) > 1:
        raise TargetError("a program runs on one device beside the host", got=", ".join(others),
                          expected='{"gpu": "cuda", "host": "cpu"}')
    host = Target.of(value.get("host"))
    if not isinstance(host, CpuTarget):
        raise TargetError("the host is a CPU", got=host, expected='"host": "cpu"')
    return next(iter(others.values()), host), host


def _is_host(value: Target | str | None) -> bool:
    """Whether a target, in any of its forms, is the CPU of this machine."""
    if not isinstance(value, str):
        return value is None
    kind, *_ = value.split() or [""]
    return kind in (CpuTarget.kind, *CpuTarget.names) and "-mcpu" not in value


def _takes_data_sizes(target: Target, codegens: Sequence[str]) -> bool:
    return config.symbolic_sizes and not codegens and backend_of(target).takes_sizes


def _names(codegens: Sequence[str]) -> tuple[str, ...]:
    if isinstance(codegens, str) or not all(isinstance(name, str) for name in codegens):
        raise OptionError("codegens cannot be used", got=repr(codegens),
                          expected='names of code generators: ["acc"]')
    return tuple(codegens)


def _outputs(outputs: Sequence[Any] | None) -> tuple[str, ...] | None:
    if outputs is None:
        return None
    # Tensors of a graph (``weft.graph``) are known by their names.
    given = () if isinstance(outputs, str) else tuple(
        one if isinstance(one, str) else getattr(one, "name", None) for one in outputs)
    names = tuple(name for name in given if isinstance(name, str))
    if isinstance(outputs, str) or len(names) < len(given):
        raise OptionError("outputs cannot be used", got=repr(outputs),
                          expected='names of tensors: ["layer3/relu"]')
    return names


def _state(state: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if state is None:
        return ()
    if not isinstance(state, Mapping) or not all(
            isinstance(name, str) for pair in state.items() for name in pair):
        raise OptionError("state cannot be used", got=repr(state),
                          expected='names of inputs by the output that is the next value: '
                                   '{"present": "past"}')
    return tuple(state.items())


def _variants(specialize: SpecializeLike) -> tuple[tuple[tuple[str, SizeRange], ...], ...]:
    if specialize is None:
        return ()
    if isinstance(specialize, Mapping) and all(map(_is_list, specialize.values())):
        return tuple(((str(name), _range(name, one)),)
                     for name, sizes in specialize.items() for one in sizes)
    together = [one for one in specialize if isinstance(one, Mapping)]
    if _is_list(specialize) and len(together) == len(specialize):
        return tuple(tuple((str(name), _range(name, size)) for name, size in one.items())
                     for one in together)
    raise OptionError("specialize cannot be used", got=repr(specialize),
                      expected='sizes by the name of a symbol: {"seq": [1, 128, (2, 16)]}, or '
                               'sizes that belong together: [{"batch": 1, "seq": (1, 16)}]')


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _range(name: object, value: object) -> SizeRange:
    ends = [end for end in (value if isinstance(value, tuple) else (value, value))
            if isinstance(end, int) and not isinstance(end, bool)]
    if len(ends) != 2 or not 0 <= ends[0] <= ends[1]:
        raise OptionError(f"specialize gives a wrong size for {name!r}", got=repr(value),
                          expected="a size, or a pair of sizes: the first and the last")
    return SizeRange(*ends)


def _shapes(
    inputs: Mapping[str, Sequence[object] | None] | None,
) -> tuple[tuple[str, tuple[object, ...] | None], ...]:
    if inputs is None:
        return ()
    if not isinstance(inputs, Mapping):
        raise OptionError("inputs cannot be used", got=repr(inputs),
                          expected='shapes by input name: {"x": (1, 3, 224, 224)}')
    shapes: list[tuple[str, tuple[object, ...] | None]] = []
    for name, shape in inputs.items():
        if shape is None:  # of an inner tensor: its own
            shapes.append((str(name), None))
            continue
        if isinstance(shape, (str, bytes)) or not hasattr(shape, "__iter__"):
            raise OptionError(f"the shape of input {name!r} cannot be used", got=repr(shape),
                              expected="a tuple of sizes, such as (1, 3, 224, 224)")
        shapes.append((str(name), tuple(shape)))
    return tuple(shapes)
