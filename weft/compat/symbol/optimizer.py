"""Optimisers as nodes of a graph (``nnvm.compiler.optimizer``): updates that assign variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from weft.compat.symbol.gradients import gradients
from weft.compat.symbol.symbol import Entries, Group, Symbol, Variable, apply_operator, entries_of

# The learning rate at a step, which counts from 1.
Schedule: TypeAlias = "Callable[[Symbol], Symbol]"


def factor_schedule(base: float, step: int, factor: float) -> Schedule:
    """``base``, times ``factor`` after each ``step`` steps (NNVM's ``FactorScheduler``)."""
    return lambda count: factor ** apply_operator("floor", (count - 1.0) / step) * base


class Optimizer(ABC):
    """What optimisers share: the rate, rescaled and clipped gradients, and weight decay.

    ``learning_rate`` is a number, or a schedule of the step, which a variable ``<name>_t`` counts.
    The state of an optimiser is in variables of the graph, zeros at first.
    """

    def __init__(self, learning_rate: float | Schedule = 0.01, *, name: str = "",
                 rescale_grad: float = 1.0, clip_gradient: float | None = None, wd: float = 0.0
                 ) -> None:
        self.learning_rate = learning_rate
        self.name = name or type(self).__name__.lower()
        self.rescale_grad, self.clip_gradient, self.wd = rescale_grad, clip_gradient, wd

    def minimize(self, obj: Symbol, var: Entries | None = None) -> Symbol:
        """The updates of the variables ``var``, by default all that ``obj`` reads, as a group.

        Running the updates trains; ``Symbol.states`` keeps variables in a compiled module.
        """
        variables = obj.list_input_variables() if var is None else [
            Symbol((entry,)) for entry in entries_of(var)]
        updates = []
        count = self._count()
        for variable, gradient in zip(variables, gradients(obj, variables), strict=True):
            updates.append(self.updated(variable, self._prepared(gradient), count))
        return Group(updates)

    @abstractmethod
    def updated(self, variable: Symbol, gradient: Symbol, count: Symbol | None) -> Symbol:
        """The assignment of ``variable`` at step ``count``."""

    counts = False  # whether every optimiser of the class needs the number of the step

    def _count(self) -> Symbol | None:
        if not self.counts and not callable(self.learning_rate):
            return None
        before = Variable(f"{self.name}_t", shape=())
        return apply_operator("_assign", before, before + 1.0)

    def _prepared(self, gradient: Symbol) -> Symbol:
        scaled = gradient if self.rescale_grad == 1.0 else gradient * self.rescale_grad
        if self.clip_gradient is None:
            return scaled
        return apply_operator("clip", scaled, a_min=-self.clip_gradient, a_max=self.clip_gradient)

    def stepped(self, variable: Symbol, direction: Symbol, count: Symbol | None,
                correction: Symbol | None = None) -> Symbol:
        """The assignment of ``variable - rate * (direction + wd * variable)``."""
        rate: float | Symbol
        if callable(self.learning_rate):
            assert count is not None
            rate = self.learning_rate(count)
        else:
            rate = self.learning_rate
        scale = rate if correction is None else correction * rate
        whole = _scaled(direction, scale)
        if self.wd:
            whole = whole + _scaled(variable * self.wd, rate)
        return apply_operator("_assign", variable, variable - whole)


class SGD(Optimizer):
    """Gradient descent."""

    def updated(self, variable: Symbol, gradient: Symbol, count: Symbol | None) -> Symbol:
        """See ``Optimizer.updated``."""
        return self.stepped(variable, gradient, count)


class Adam(Optimizer):
    """Adam with the correction of both moments (Kingma and Ba 2015)."""

    counts = True

    def __init__(self, learning_rate: float | Schedule = 0.001, beta1: float = 0.9,
                 beta2: float = 0.999, epsilon: float = 1e-8, **options: float | str | None
                 ) -> None:
        super().__init__(learning_rate, **options)  # type: ignore[arg-type]
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def updated(self, variable: Symbol, gradient: Symbol, count: Symbol | None) -> Symbol:
        """See ``Optimizer.updated``."""
        assert count is not None
        mean = self._moment(variable, "m", gradient, self.beta1)
        square = self._moment(variable, "v", gradient * gradient, self.beta2)
        root = apply_operator("sqrt", 1.0 - self.beta2 ** count)
        direction = mean / (apply_operator("sqrt", square) + self.epsilon)
        return self.stepped(variable, direction, count, root / (1.0 - self.beta1 ** count))

    def _moment(self, variable: Symbol, kind: str, value: Symbol, beta: float) -> Symbol:
        before = Variable(f"{variable.name}_{self.name}_{kind}")
        return apply_operator("_assign", before, before * beta + value * (1.0 - beta))


def _scaled(value: Symbol, scale: float | Symbol) -> Symbol:
    """``value`` times a number, or a symbol without axes."""
    return apply_operator("broadcast_mul", value, scale) if isinstance(scale, Symbol) \
        else value * scale
