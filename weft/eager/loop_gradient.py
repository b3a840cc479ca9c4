"""The gradient of a loop of known length: a loop in the other direction.

It carries the gradients of the carried values and the sums of the gradients of what the body reads
from outside; its parts are the gradients of the slices. The forward loop stacks the carried values
before each step, so that no step runs twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.eager.loop import Loop, copied_graph, loop_signature, placeholder, zeros_of
from weft.eager.node import RECORDED, Node, Signature, call_signature, field_signature
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

# (results, their gradients, inputs) -> the gradients of the inputs, ``None`` for zero.
Differentiate = Callable[[Sequence[Node], Sequence[Node], Sequence[Node]], "list[Node | None]"]


@dataclass(frozen=True, eq=False, slots=True)
class ReverseLoop:
    """The loop of the gradients, and where its operands and results belong in the forward loop.

    ``summed`` are the operands from outside with a gradient, ``flowing`` the carried values that
    have one, ``slices`` the scanned operands with one. ``read`` says which of the saved values, the
    scanned operands and the gradients of parts, and ``fixed`` which operands from outside the body
    reads.
    """

    loop: Loop
    flowing: tuple[int, ...]
    summed: tuple[int, ...]
    slices: tuple[int, ...]
    read: tuple[int, ...]
    fixed: tuple[int, ...]

    def gradients(self, node: Node, arriving: Sequence[Node | None], *, records: bool
                  ) -> list[Node | None]:
        """The gradients of the operands of the forward loop ``node``."""
        forward: Loop = node.sig.attrs
        count, first = forward.carried, len(forward.results) - forward.saved
        saved = [_made(field_signature(node.sig.out, first + i), (node,), node, records=records)
                 for i in range(count)]
        scanned = [*saved, *node.args[count:count + forward.scanned],
                   *[g for g in arriving[count:] if g is not None]]
        carried = [arriving[i] or zeros_of(node.args[i].sig.out) for i in self.flowing]
        carried += [zeros_of(node.args[i].sig.out) for i in self.summed]
        args = (*carried, *[scanned[i] for i in self.read], *[node.args[i] for i in self.fixed])
        sig = loop_signature(self.loop, args, records=records)
        whole = _made(sig, args, node, records=records)
        found: list[Node | None] = [None] * len(node.args)
        for number, i in enumerate((*self.flowing, *self.summed, *self.slices)):
            found[i] = _made(field_signature(sig.out, number), (whole,), node, records=records)
        return [one if arg.grad is not None else None
                for arg, one in zip(node.args, found, strict=True)]


def reverse_of(node: Node, wanted: Sequence[bool], arriving: Sequence[bool],
               differentiate: Differentiate) -> ReverseLoop:
    """The loop of the gradients of the operands ``wanted``.

    Raises ``InvalidInputError`` for a loop whose number of steps only run time knows.
    """
    forward: Loop = node.sig.attrs
    if forward.length is None:
        raise InvalidInputError(
            "a while_loop has no gradient: how many steps it takes is known only at run time",
            where=node.span, help="use weft.scan with a fixed number of steps")
    count, scanned = forward.carried, forward.scanned
    inner = [placeholder(p.sig.out, flows=p.grad is not None) for p in forward.parameters]
    results = copied_graph(forward.results, dict(zip(forward.parameters, inner, strict=True)))
    flowing = tuple([i for i in range(count) if inner[i].grad is not None])
    summed = tuple([i for i in range(count + scanned, len(inner)) if wanted[i]])
    slices = tuple([i for i in range(count, count + scanned) if wanted[i]])
    parts = [i for i in range(count, len(results)) if arriving[i]]
    given = [placeholder(results[i].sig.out, flows=True) for i in (*flowing, *parts)]
    found = differentiate([results[i] for i in (*flowing, *parts)], given,
                          [inner[i] for i in (*flowing, *summed, *slices)])
    following = [g or zeros_of(inner[i].sig.out) for i, g in zip(
        (*flowing, *summed, *slices), found, strict=True)]
    sums = []
    for number, i in enumerate(summed, len(flowing)):
        total = placeholder(inner[i].sig.out, flows=True)
        sums.append(total)
        if found[number] is None:
            following[number] = total
        else:
            operands = (total, following[number])
            following[number] = _made(call_signature("add", {}, None, operands), operands, node,
                                      records=True)
    inputs = [*inner[:count + scanned], *given[len(flowing):]]
    needed = _reached(following)
    read = tuple([i for i, one in enumerate(inputs) if one in needed])
    fixed = tuple([i for i in range(count + scanned, len(inner)) if inner[i] in needed])
    carried = (*given[:len(flowing)], *sums)
    parameters = (*carried, *[inputs[i] for i in read], *[inner[i] for i in fixed])
    loop = Loop(parameters, tuple(following), len(carried), len(read), forward.length,
                not forward.reverse)
    return ReverseLoop(loop, flowing, summed, slices, read, fixed)


def _reached(results: Sequence[Node]) -> set[Node]:
    seen, stack = set[Node](), list(results)
    while stack:
        one = stack.pop()
        if one not in seen:
            seen.add(one)
            stack += one.args
    return seen


def _made(sig: Signature, args: tuple[Node, ...], like: Node, *, records: bool) -> Node:
    made = Node(sig, args, None, like.site)
    if records and any(arg.grad is not None for arg in args) and sig.differentiable:
        made.grad = RECORDED
    return made
