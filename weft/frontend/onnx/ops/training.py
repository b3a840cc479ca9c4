"""Converters of optimizer steps: Adagrad, Adam, Momentum (ai.onnx.preview.training)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.registry import ConvertFunction, register
from weft.ir.expr import Expr
from weft.op.composites.terms import Term, TermEmitter

_DOMAIN = "ai.onnx.preview.training"
# Maps learning rate, step number and (tensor, gradient, *states) to the new tensor and states.
Step = Callable[[Node, Term, Term, Sequence[Term]], tuple[Term, ...]]


def _for_each_tensor(step: Step, states: int) -> ConvertFunction:
    """Inputs: learning rate, step number, all tensors, all gradients, then each kind of state."""

    def convert(node: Node) -> Sequence[Expr]:
        inputs = node.all_inputs()
        count, rest = divmod(len(inputs) - 2, states + 2)
        if count < 1 or rest:
            raise node.fail("wrong number of inputs",
                            expected=f"2 + {states + 2} for each tensor",
                            got=str(len(inputs)))  # fmt: skip
        groups = [inputs[2 + i * count : 2 + (i + 1) * count] for i in range(states + 2)]
        results = [_one(node, step, parts) for parts in zip(*groups, strict=True)]
        return [term.expr for kind in zip(*results, strict=True) for term in kind]

    return convert


def _one(node: Node, step: Step, parts: Sequence[Expr]) -> tuple[Term, ...]:
    dtype = parts[0].checked_type.dtype  # type: ignore[union-attr]
    rate, number = (Term(node, cast_to(node, node.input(i), dtype)) for i in (0, 1))
    return step(node, rate, number, [Term(node, part) for part in parts])


def _regularized(node: Node, x: Term, gradient: Term) -> Term:
    return node.attrs.number("norm_coefficient", 0.0) * x + gradient


def _adagrad(node: Node, rate: Term, number: Term, parts: Sequence[Term]) -> tuple[Term, ...]:
    x, gradient, squares = parts
    rate = rate / (1 + number * node.attrs.number("decay_factor", 0.0))
    gradient = _regularized(node, x, gradient)
    squares = squares + gradient * gradient
    scale = squares.apply("sqrt") + node.attrs.number("epsilon", 1e-6)
    return x - rate * gradient / scale, squares


def _adam(node: Node, rate: Term, number: Term, parts: Sequence[Term]) -> tuple[Term, ...]:
    """Adam step; the bias of the moments is corrected except at step 0."""
    x, gradient, mean, square = parts
    alpha, beta = node.attrs.number("alpha", 0.9), node.attrs.number("beta", 0.999)
    gradient = _regularized(node, x, gradient)
    mean = alpha * mean + (1 - alpha) * gradient
    square = beta * square + (1 - beta) * (gradient * gradient)
    scale = square.apply("sqrt") + node.attrs.number("epsilon", 1e-6)
    corrected = rate * (1 - _power(beta, number)).apply("sqrt") / (1 - _power(alpha, number))
    rate = (number > 0).apply("where", corrected, rate)
    kept = 1 - node.attrs.number("norm_coefficient_post", 0.0)
    return kept * (x - rate * (mean / scale)), mean, square


def _power(base: float, exponent: Term) -> Term:
    return TermEmitter(exponent.builder).call("power", base, exponent)


def _momentum(node: Node, rate: Term, number: Term, parts: Sequence[Term]) -> tuple[Term, ...]:
    """Momentum step; at step 0 the gradient is not scaled by ``beta``."""
    x, gradient, momentum = parts
    alpha, beta = node.attrs.number("alpha", 0.0), node.attrs.number("beta", 0.0)
    gradient = _regularized(node, x, gradient)
    share = (number > 0).apply("where", beta, 0 * number + 1)
    momentum = alpha * momentum + share * gradient
    mode = node.attrs.one_of("mode", "standard", ("standard", "nesterov"))
    ahead = gradient + alpha * momentum if mode == "nesterov" else momentum
    return x - rate * ahead, momentum


register(f"{_DOMAIN}::Adagrad", _for_each_tensor(_adagrad, 1), outputs=1 << 20,
         attributes=("decay_factor", "epsilon", "norm_coefficient"))  # fmt: skip
register(f"{_DOMAIN}::Adam", _for_each_tensor(_adam, 2), outputs=1 << 20,
         attributes=("alpha", "beta", "epsilon", "norm_coefficient",
                     "norm_coefficient_post"))  # fmt: skip
register(f"{_DOMAIN}::Momentum", _for_each_tensor(_momentum, 1), outputs=1 << 20,
         attributes=("alpha", "beta", "mode", "norm_coefficient"))  # fmt: skip
