"""Weight normalization: a weight as direction and length (Salimans and Kingma 2016)."""

from __future__ import annotations

from typing import Any, TypeVar

from weft.eager.tensor import Tensor
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter

M = TypeVar("M", bound=Module)
_HANDLES = "_weight_norm_handles"


def norm_of(v: Tensor, dim: int | None) -> Tensor:
    """The norm of each slice along ``dim``, or of the whole."""
    square = v * v
    if dim is None:
        return square.sum().sqrt()
    axes = tuple(i for i in range(v.ndim) if i != dim % v.ndim)
    return square.sum(axes, keepdim=True).sqrt()


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Replace the parameter ``name`` by ``name_g`` (length) and ``name_v`` (direction).

    The weight is computed before each forward: ``g * v / |v|``.
    """
    weight = module.get_parameter(name)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(norm_of(weight.detach(), dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))

    def compute(owner: Module, _args: Any) -> None:
        setattr(owner, name, _computed(owner, name, dim))

    setattr(module, name, _computed(module, name, dim))
    handles = module.__dict__.setdefault(_HANDLES, {})
    handles[name] = (module.register_forward_pre_hook(compute), dim)
    return module


def _computed(module: Module, name: str, dim: int | None) -> Tensor:
    direction = module.get_parameter(f"{name}_v")
    return direction * (module.get_parameter(f"{name}_g") / norm_of(direction, dim))


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undo ``weight_norm``: the parameter ``name`` has the present value."""
    handles = module.__dict__.get(_HANDLES, {})
    if name not in handles:
        raise ModuleError(f"{type(module).__name__}.{name} has no weight norm")
    handle, dim = handles.pop(name)
    weight = _computed(module, name, dim).detach()
    handle.remove()
    delattr(module, name)
    for suffix in ("_g", "_v"):
        delattr(module, name + suffix)
    module.register_parameter(name, Parameter(weight))
    return module
