"""What a module must come back from: its own text, and its own JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from weft.ir import IRModule, as_text, parse, verify_module
from weft.ir.expr import Call, Constant
from weft.ir.json.format import load_json, save_json
from weft.ir.op import OPS, Op
from weft.ir.structural import assert_structural_equal
from weft.ir.visitor import post_order
from weft.support.errors import WeftError, WellFormedError

LARGEST = 120
LARGEST_CONSTANTS = 1 << 20


class Sampler:
    """Checks some of the modules that are made: the first, the fourth, the sixteenth, and so on.

    A module is checked when it is made and not kept, so that what a test says of memory holds.
    Failures are collected: raised there, a test that expects an error would take them for it.
    """

    def __init__(self, largest: int = LARGEST, ratio: int = 4) -> None:
        self.failures: list[WeftError | AssertionError] = []
        self._largest = largest
        self._ratio = ratio
        self._next = 1
        self._count = 0
        self._busy = False

    def made(self, mod: IRModule) -> None:
        """A module was made."""
        if self._busy:
            return  # by a check
        self._count += 1
        if self._count < self._next:
            return
        self._busy = True
        try:
            if is_small(mod, self._largest):
                check_round_trip(mod)
                self._next *= self._ratio
        except (WeftError, AssertionError) as failure:
            self.failures.append(failure)
        finally:
            self._busy = False


@contextmanager
def watching(sampler: Sampler) -> Iterator[None]:
    """Show ``sampler`` every module that is made."""
    make = IRModule.__init__

    def made(self: IRModule, *args: object, **kwargs: object) -> None:
        make(self, *args, **kwargs)  # type: ignore[arg-type]
        sampler.made(self)

    IRModule.__init__ = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        IRModule.__init__ = make  # type: ignore[method-assign]


def check_round_trip(mod: IRModule) -> None:
    """Text and JSON of ``mod`` give ``mod`` again; raises what differs."""
    try:
        assert_structural_equal(parse(as_text(mod)), mod)
        assert_structural_equal(load_json(save_json(mod)), mod)
    except (WeftError, AssertionError):
        if is_program(mod):
            raise


def is_program(mod: IRModule) -> bool:
    """Whether ``mod`` is well-formed and has operators that others know too.

    Tests break programs on purpose, and make operators that are not registered.
    """
    for function in mod.functions.values():
        for node in post_order(function):
            op = node.op if isinstance(node, Call) else node
            if isinstance(op, Op) and OPS.find(op.name) is not op:
                return False
    try:
        verify_module(mod, typed=False)
    except WellFormedError:
        return False
    return True


def is_small(mod: IRModule, largest: int) -> bool:
    """Whether the functions have at most ``largest`` nodes, and few bytes of constants."""
    nodes = itertools.chain.from_iterable(map(post_order, mod.functions.values()))
    some = list(itertools.islice(nodes, largest + 1))
    weights = sum(node.content.nbytes for node in some if isinstance(node, Constant))
    return len(some) <= largest and weights < LARGEST_CONSTANTS
