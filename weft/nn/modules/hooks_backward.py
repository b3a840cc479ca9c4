"""Hooks of modules in ``backward``: they see the gradients of the results and of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.eager.function import Function
from weft.eager.tensor import Tensor
from weft.nn.modules.hooks import EVERY

Hook = Callable[..., Any]


class _Passed(Function):
    """Tensors unchanged, whose gradients go through ``change``, all together."""

    @staticmethod
    def forward(ctx: Any, change: Callable[[tuple[Any, ...]], Any], *tensors: Tensor) -> Any:
        ctx.change = change
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return (None, *ctx.change(gradients))


class Watch:
    """The gradients of one call of a module."""

    def __init__(self, module: Any, before: Sequence[Hook], after: Sequence[Hook]) -> None:
        self.module, self.before, self.after = module, before, after
        self.grad_output: tuple[Any, ...] = ()

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, whose gradients the hooks see."""
        return _through(args, self._at_inputs)

    def outputs(self, result: Any) -> Any:
        """The result, whose gradients the hooks see."""
        if isinstance(result, tuple):
            return _through(result, self._at_outputs)
        return _through((result,), self._at_outputs)[0]

    def _at_outputs(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.before:
            changed = hook(self.module, gradients)
            if changed is not None:
                gradients = changed if isinstance(changed, tuple) else (changed,)
        self.grad_output = gradients
        return gradients

    def _at_inputs(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.after:
            changed = hook(self.module, gradients, self.grad_output)
            if changed is not None:
                gradients = changed if isinstance(changed, tuple) else (changed,)
        return gradients


def watched_call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``module(*args, **kwargs)`` with the hooks of ``backward``."""
    watch = Watch(module, (*EVERY.backward_pre.values(), *module._backward_pre_hooks.values()),
                  (*EVERY.backward.values(), *module._backward_hooks.values()))
    inputs = watch.inputs(args)
    result = module._run_forward_hooks(inputs, kwargs, module.forward(*inputs, **kwargs))
    return watch.outputs(result)


def _through(values: tuple[Any, ...], change: Callable[..., Any]) -> tuple[Any, ...]:
    """``values`` with the gradients of their tensors passed through ``change``."""
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
    if not places:
        return values
    passed = _Passed.apply(change, *(values[i] for i in places))
    found = list(values)
    for place, tensor in zip(places, passed if isinstance(passed, tuple) else (passed,),
                             strict=True):
        found[place] = tensor
    return tuple(found)
