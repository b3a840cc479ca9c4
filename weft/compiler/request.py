"""``CompileRequest``: the arguments of a call of ``weft.compile``, as they were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

from weft.support.config import knobs, unknown_option
from weft.support.dataclass import dataclass

if TYPE_CHECKING:
    from weft.compiler.device_options import DevicesLike, PlacementLike
    from weft.compiler.extensions import PassesLike, RulesLike, TirPassesLike
    from weft.compiler.options import SpecializeLike, TargetLike
    from weft.compiler.sources import ModelLike


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """See ``weft.compile`` for the fields; nothing is checked yet."""

    model: ModelLike
    target: TargetLike = None
    inputs: Mapping[str, Sequence[object]] | None = None
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None
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
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = knobs()
        for name in self.knobs:
            if name not in settings:
                options = (f.name for f in fields(self) if f.name not in ("model", "knobs"))
                raise unknown_option(name, (*options, *settings))
