"""Optimisers as nodes of a graph, by TensorFlow's names (``tf.train``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compat.graph.graph import Graph
from weft.compat.graph.node import Node, Tensor
from weft.compat.graphdef.state import VARIABLES
from weft.support.errors import InvalidModelError

GradientAndVariable = tuple[Tensor | None, Tensor]


class Optimizer(ABC):
    """``minimize`` makes a node that updates variables when it runs.

    ``learning_rate`` is a number or a tensor. The state of an optimiser (its slots) is in variables
    of the graph, named after those of the model.
    """

    def __init__(self, learning_rate: float | Tensor, name: str = "") -> None:
        self.learning_rate: Any = learning_rate
        self.name = name or type(self).__name__.removesuffix("Optimizer")

    def minimize(self, loss: Tensor, global_step: Tensor | None = None,
                 var_list: Sequence[Tensor] | None = None) -> Node:
        """The node that takes one step. Raises ``InvalidModelError`` if no variable matters."""
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step)

    def compute_gradients(self, loss: Tensor, var_list: Sequence[Tensor] | None = None
                          ) -> list[GradientAndVariable]:
        """The gradient of each variable, ``None`` for those without influence on ``loss``.

        By default the variables are those of floating-point numbers of the graph.
        """
        graph = _graph_of(loss)
        variables = [Tensor(node, 0) for node in graph.op_nodes if node.op in VARIABLES
                     and Tensor(node, 0).dtype.is_float] if var_list is None else list(var_list)
        found = graph.gradients(loss, variables)
        return list(zip(found, variables, strict=True))

    def apply_gradients(self, grads_and_vars: Sequence[GradientAndVariable],
                        global_step: Tensor | None = None) -> Node:
        """The node that updates variables by gradients, and counts ``global_step``."""
        known = [(gradient, variable) for gradient, variable in grads_and_vars
                 if gradient is not None]
        if not known:
            raise InvalidModelError("no variable has a gradient",
                                    got=", ".join(v.name for _, v in grads_and_vars) or "none")
        graph = _graph_of(known[0][1])
        with graph.name_scope(self.name):
            self.begin(graph)
            updates = [self.update(graph, gradient, variable) for gradient, variable in known]
            if global_step is not None:
                with graph.control_dependencies(updates):
                    updates.append(graph.assign_add(global_step, 1))
            return graph.group(*updates, name="step")

    def begin(self, graph: Graph) -> None:  # noqa: B027 - most optimisers need nothing
        """Add what all updates of a step share."""

    @abstractmethod
    def update(self, graph: Graph, gradient: Tensor, variable: Tensor) -> Tensor:
        """The assignment of ``variable``."""

    def slot(self, graph: Graph, variable: Tensor, kind: str, value: float = 0.0) -> Tensor:
        """A variable like ``variable``, ``value`` at first."""
        shape = [size for size in variable.shape if isinstance(size, int)]  # all are: a variable
        return graph.variable(np.full(shape, value, variable.dtype.numpy),
                              name=f"{variable.node.name.rpartition('/')[2]}_{kind}")


class GradientDescentOptimizer(Optimizer):
    """variable - learning_rate * gradient"""

    def update(self, graph: Graph, gradient: Tensor, variable: Tensor) -> Tensor:
        """See ``Optimizer.update``."""
        return graph.assign_sub(variable, gradient * self.learning_rate)


class MomentumOptimizer(Optimizer):
    """Gradient descent along a sum of gradients that decays by ``momentum``."""

    def __init__(self, learning_rate: float | Tensor, momentum: float, *,
                 use_nesterov: bool = False, name: str = "") -> None:
        super().__init__(learning_rate, name)
        self.momentum, self.use_nesterov = momentum, use_nesterov

    def update(self, graph: Graph, gradient: Tensor, variable: Tensor) -> Tensor:
        """See ``Optimizer.update``."""
        before = self.slot(graph, variable, "Momentum")
        sum_ = graph.assign(before, before * self.momentum + gradient)
        way = gradient + sum_ * self.momentum if self.use_nesterov else sum_
        return graph.assign_sub(variable, way * self.learning_rate)


class AdagradOptimizer(Optimizer):
    """Gradient descent divided by the root of the sum of squares (Duchi et al. 2011)."""

    def __init__(self, learning_rate: float | Tensor, initial_accumulator_value: float = 0.1,
                 name: str = "") -> None:
        super().__init__(learning_rate, name)
        self.first = initial_accumulator_value

    def update(self, graph: Graph, gradient: Tensor, variable: Tensor) -> Tensor:
        """See ``Optimizer.update``."""
        before = self.slot(graph, variable, "Adagrad", self.first)
        squares = graph.assign_add(before, gradient * gradient)
        return graph.assign_sub(
            variable, gradient * self.learning_rate / graph.op.sqrt(squares))  # type: ignore[operator]


class AdamOptimizer(Optimizer):
    """Adam with the correction of both moments (Kingma and Ba 2015)."""

    def __init__(self, learning_rate: float | Tensor = 0.001, beta1: float = 0.9,
                 beta2: float = 0.999, epsilon: float = 1e-8, name: str = "") -> None:
        super().__init__(learning_rate, name)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self._rate: Any = None

    def begin(self, graph: Graph) -> None:
        """The rate of the step, from the powers of both factors."""
        powers = [graph.variable(np.float32(1), name=f"beta{i}_power") for i in (1, 2)]
        one, two = (graph.assign(power, power * beta)
                    for power, beta in zip(powers, (self.beta1, self.beta2), strict=True))
        root: Any = graph.op.sqrt(1.0 - two)
        self._rate = root * self.learning_rate / (1.0 - one)

    def update(self, graph: Graph, gradient: Tensor, variable: Tensor) -> Tensor:
        """See ``Optimizer.update``."""
        mean, square = self.slot(graph, variable, "m"), self.slot(graph, variable, "v")
        mean = graph.assign(mean, mean * self.beta1 + gradient * (1 - self.beta1))
        square = graph.assign(square, square * self.beta2
                              + gradient * gradient * (1 - self.beta2))
        root: Any = graph.op.sqrt(square)
        return graph.assign_sub(variable, self._rate * mean / (root + self.epsilon))


def _graph_of(tensor: Tensor) -> Graph:
    graph = tensor.graph
    assert isinstance(graph, Graph)
    return graph
