"""The arguments of ``weft.compile`` beside the model: as they are given, and checked.

Of weft, this module imports ``weft.support`` alone, so that a warm start does not need the
compiler; ``CompileRequest.check`` imports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

from weft.support.config import config, knobs, unknown_option
from weft.support.dataclass import dataclass
from weft.support.fallback import recording

if TYPE_CHECKING:
    from weft.compiler.device_options import DevicesLike, PlacementLike
    from weft.compiler.extensions import PassesLike, RulesLike, TirPassesLike
    from weft.compiler.options import CompileOptions, SpecializeLike, TargetLike


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """See ``weft.compile`` for the fields. Only the names of ``knobs`` are checked.

    Raises ``OptionError`` for an unknown one.
    """

    target: TargetLike = None
    inputs: Mapping[str, Sequence[object]] | None = None
    opt_level: int = 3
    passes: PassesLike = ()
    rules: RulesLike = ()
    tir_passes: TirPassesLike = ()
    codegens: Sequence[str] = ()
    specialize: SpecializeLike = None
    state: Mapping[str, str] | None = None
    outputs: Sequence[str] | None = None
    devices: DevicesLike = None
    placement: PlacementLike = None
    soft_placement: bool = False
    strict: bool = False
    tier: str = "full"
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = knobs()
        for name in self.knobs:
            if name not in settings:
                options = (f.name for f in fields(self) if f.name != "knobs")
                raise unknown_option(name, (*options, "example_inputs", *settings))

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Apply the knobs, and collect changes of plan, which ``strict`` refuses, in a block."""
        with config(**self.knobs), recording(strict=self.strict):
            yield

    def threads(self) -> int | None:
        """The threads of the calls of the executable, if the knobs give them, in ``settings``."""
        return config.override("threads") if "threads" in self.knobs else None

    def check(self) -> CheckedRequest:
        """The options of the compilation, in ``settings``.

        Raises ``OptionError``, ``TargetError`` and ``PassError``, before any work.
        """
        from weft.compiler.extensions import Extensions
        from weft.compiler.options import CompileOptions
        from weft.support.plugins import load_plugins

        load_plugins()
        extensions = Extensions.make(self.passes, self.rules, self.tir_passes)
        options = CompileOptions.make(
            self.target, self.opt_level, self.inputs, self.codegens, extensions, self.specialize,
            self.state, self.outputs, self.devices, self.placement,
            soft_placement=self.soft_placement, tier=self.tier)
        _check_positions(options)
        return CheckedRequest(options, self.knobs, self.threads())


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """The options of a compilation, the settings that it runs under, and ``threads`` of calls."""

    options: CompileOptions
    knobs: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def settings(self) -> AbstractContextManager[object]:
        """Apply the knobs in a block."""
        return config(**self.knobs)


def _check_positions(options: CompileOptions) -> None:
    """Raise ``OptionError`` for passes of the user at positions that name unknown passes."""
    extensions = options.extensions
    if extensions.passes or options.codegens:
        from weft.compiler.pipeline import phases_of

        phases_of(options)
    if extensions.tir_passes:
        from weft.codegen import backend_of
        from weft.tir.transform.registered import with_insertions

        with_insertions(backend_of(options.target).loop_passes, extensions.tir_passes)
