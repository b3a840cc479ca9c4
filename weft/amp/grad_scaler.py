"""GradScaler: a factor of the loss that keeps narrow gradients from becoming zero."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from weft.eager.grad_mode import no_grad
from weft.eager.record import apply
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError, WeftError


class Steps(Protocol):
    """What a ``GradScaler`` needs of an optimizer."""

    param_groups: Any
    state: Any

    def step(self) -> Any: ...


class GradScaler:
    """Dynamic loss scaling with torch's methods (Micikevicius et al. 2017).

        scaler.scale(loss).backward()
        scaler.step(optimizer)      # divides the gradients; no change if one is not finite
        scaler.update()

    The scale, and whether a step counts, are tensors: the whole may be a part of a compiled step.
    """

    # A compiled function sees all that it reads.
    _not_watched: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self, device: str = "cpu", init_scale: float = 65536.0, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:
        if growth_factor <= 1 or not 0 < backoff_factor < 1:
            raise InvalidInputError("GradScaler: a factor is out of range",
                                    expected="growth_factor > 1 and 0 < backoff_factor < 1",
                                    got=f"{growth_factor}, {backoff_factor}")
        self.device, self.growth_factor, self.backoff_factor = (
            device, growth_factor, backoff_factor)
        self.growth_interval, self.enabled = growth_interval, enabled
        self._scale = Tensor(np.float32(init_scale))
        self._growth = Tensor(np.int32(0))
        self._found: dict[int, Tensor] = {}  # optimizer -> whether a gradient is not finite

    def scale(self, outputs: Any) -> Any:
        """The loss (or a list of losses) times the scale."""
        if not self.enabled:
            return outputs
        if isinstance(outputs, list | tuple):
            return type(outputs)(self.scale(x) for x in outputs)
        return outputs * self._scale.detach().to(outputs.dtype)

    def unscale_(self, optimizer: Steps) -> None:
        """Divide the gradients by the scale, before they are clipped, say."""
        if not self.enabled:
            return
        if id(optimizer) in self._found:
            raise WeftError("unscale_() was called already since the last update()")
        inverse = 1.0 / self._scale.to("float64")
        found = Tensor(np.bool_(False))
        with no_grad():
            for parameter in _parameters(optimizer):
                if parameter.grad is None:
                    continue
                gradient = parameter.grad.detach()
                gradient = gradient * inverse.to(gradient.dtype)
                parameter.grad = gradient
                is_bad = apply("logical_not", apply("all", apply("isfinite", gradient)))
                found = apply("logical_or", found, is_bad)
        self._found[id(optimizer)] = found

    def step(self, optimizer: Steps, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()``, whose changes are undone if a gradient is not finite."""
        if not self.enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        found = self._found[id(optimizer)]
        with no_grad():
            before = [(t, Tensor(t)) for t in _tensors(optimizer)]
        result = optimizer.step(*args, **kwargs)
        with no_grad():
            for tensor, old in before:
                tensor.copy_(apply("where", found, old, tensor.detach()))
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale: less after a gradient that was not finite, more after many steps."""
        if not self.enabled:
            return
        if new_scale is not None:
            self._scale.copy_(Tensor(np.float32(new_scale)) if isinstance(new_scale, float | int)
                              else new_scale)
        elif not self._found:
            raise WeftError("update() without a step", help="call step() or unscale_() first")
        else:
            self._adapt()
        self._found.clear()

    def _adapt(self) -> None:
        found = None
        for each in self._found.values():
            found = each if found is None else apply("logical_or", found, each)
        with no_grad():
            count = self._growth + 1
            is_grown = count >= self.growth_interval
            grown = self._scale * self.growth_factor
            kept = apply("where", is_grown, grown, self._scale.detach())
            kept = apply("where", apply("isfinite", kept), kept, self._scale.detach())
            scale = apply("where", found, self._scale * self.backoff_factor, kept)
            stop = apply("logical_or", found, is_grown)
            zero = Tensor(np.int32(0))
            self._growth.copy_(apply("where", stop, zero, count.to("int32")))
            self._scale.copy_(scale)

    def get_scale(self) -> float:
        """The present scale."""
        return float(self._scale.item()) if self.enabled else 1.0

    def is_enabled(self) -> bool:
        return self.enabled

    def state_dict(self) -> dict[str, Any]:
        """In torch's form."""
        return {"scale": self.get_scale(), "growth_factor": self.growth_factor,
                "backoff_factor": self.backoff_factor, "growth_interval": self.growth_interval,
                "_growth_tracker": int(self._growth.item())} if self.enabled else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        if not self.enabled:
            return
        self._scale.fill_(float(state_dict["scale"]))
        self._growth.fill_(int(state_dict["_growth_tracker"]))
        self.growth_factor = state_dict["growth_factor"]
        self.backoff_factor = state_dict["backoff_factor"]
        self.growth_interval = state_dict["growth_interval"]


def _parameters(optimizer: Steps) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _tensors(optimizer: Any) -> list[Tensor]:
    """The parameters and all tensors of the state, each once."""
    found = {id(p): p for p in _parameters(optimizer)}
    states = (*optimizer.state.values(), *getattr(optimizer, "_new_state", {}).values())
    for state in states:
        found.update({id(t): t for t in state.values() if isinstance(t, Tensor)})
    return list(found.values())
