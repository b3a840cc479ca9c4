"""The block in which the text of a program binds each shared node.

Text is a tree of blocks (bodies of functions, branches, clauses), but a program is a DAG. A node
that several blocks use is bound once, in the innermost block that contains all its uses.
"""

from __future__ import annotations

from dataclasses import field

from weft.ir.expr import Expr, Function, If, Let, Match
from weft.ir.visitor import children, evaluated, post_order
from weft.support.dataclass import dataclass


@dataclass(eq=False, slots=True)
class Block:
    """``statements`` are the printed statements, ``result`` the printed last expression."""

    parent: Block | None = None
    depth: int = 0
    statements: list[list[object]] = field(default_factory=list)
    result: list[object] = field(default_factory=list)

    def inner(self) -> Block:
        return Block(self, self.depth + 1)


def common_block(a: Block, b: Block) -> Block:
    """The innermost block that contains both."""
    while a is not b:
        if a.depth >= b.depth:
            a = a.parent or a
        else:
            b = b.parent or b
    return a


class BlockPlan:
    """For every node: its block, its number of uses, and whether it is the result of a block."""

    def __init__(self, root: Expr) -> None:
        self.top = Block()
        self.home: dict[int, Block] = {id(root): self.top}
        self.uses: dict[int, int] = {id(root): 1}
        self.tail: set[int] = {id(root)}
        self.let_values: set[int] = set()
        self.inner: dict[tuple[int, int], Block] = {}
        order = list(post_order(root))
        for node in order:
            for part in evaluated(node):
                self.uses[id(part)] = self.uses.get(id(part), 0) + 1
        for node in reversed(order):  # users before their operands
            self._place_operands(node)

    def _place_operands(self, node: Expr) -> None:
        home = self.home.get(id(node), self.top)
        if isinstance(node, Function):
            self._place_result(node.body, self._open(node, 0, home))
        elif isinstance(node, If):
            self._place(node.cond, home)
            self._place_result(node.true_branch, self._open(node, 0, home))
            self._place_result(node.false_branch, self._open(node, 1, home))
        elif isinstance(node, Match):
            self._place(node.data, home)
            for index, clause in enumerate(node.clauses):
                self._place_result(clause.rhs, self._open(node, index, home))
        elif isinstance(node, Let):
            block = home if id(node) in self.tail else self._open(node, 0, home)
            self._place(node.value, block)
            if self.uses[id(node.value)] == 1:
                self.let_values.add(id(node.value))
            self._place_result(node.body, block)
        else:
            for child in children(node):
                self._place(child, home)

    def _open(self, node: Expr, index: int, home: Block) -> Block:
        block = home.inner()
        self.inner[id(node), index] = block
        return block

    def _place(self, node: Expr, block: Block) -> None:
        known = self.home.get(id(node))
        self.home[id(node)] = block if known is None else common_block(known, block)

    def _place_result(self, node: Expr, block: Block) -> None:
        self._place(node, block)
        if self.uses[id(node)] == 1:
            self.tail.add(id(node))

    def block_of_let(self, let: Let) -> Block:
        """The block in which the let is a statement."""
        if id(let) in self.tail:
            return self.home[id(let)]
        return self.inner[id(let), 0]

    def standalone(self, node: Expr) -> bool:
        """Whether ``node`` is written inline, as the result of a block or the value of a let."""
        return id(node) in self.tail or (id(node) in self.let_values and not isinstance(node, Let))
