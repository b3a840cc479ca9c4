"""Each pass shows a program before and after in its docstring; here they are run."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from weft import te
from weft.tir import expr as x
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var, const
from weft.tir.func import PrimFunc
from weft.tir.instruction import Instruction
from weft.tir.intrinsics import intrinsic
from weft.tir.printer import as_text
from weft.tir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
    seq,
)
from weft.tir.transform.gpu.merge_guards import merge_guards
from weft.tir.transform.gpu.peel_vector_guards import peel_vector_guards
from weft.tir.transform.gpu.unroll_registers import unroll_registers
from weft.tir.transform.pipeline import TIR_PIPELINE, TirPass
from weft.tir.transform.remove_no_op import remove_no_op

_OPERATORS = {
    ast.Add: x.add, ast.Sub: x.sub, ast.Mult: x.mul, ast.Div: x.div, ast.FloorDiv: x.floordiv,
    ast.Mod: x.floormod,
}  # fmt: skip
_COMPARISONS = {ast.Lt: x.LT, ast.LtE: x.LE, ast.Gt: x.GT, ast.GtE: x.GE, ast.Eq: x.EQ}

# Loops with a note: written ``name(extent, value)`` once the comment is taken apart.
ANNOTATIONS = ("horizontal_reduce", "interleave", "transpose", "tensorize")


def define_fma16() -> Instruction:
    a, b = te.placeholder((1,), name="a"), te.placeholder((16,), name="b")
    k = te.reduce_axis(1, "k")
    c = te.compute((16,), lambda i: te.sum(a[k] * b[i], axis=k), name="c")
    return te.instruction("fma16", [a, b], c, lambda *_: "")


FMA16 = define_fma16()


class Reader:
    """Reads the text of a small program back. Names are typed by how they are used: ``A[..]`` is a
    float32 buffer, ``i`` the int64 variable of the loop around it.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Var] = {}
        self.buffers: dict[str, Buffer] = {}
        self.parameters: list[Buffer] = []

    def function(self, text: str) -> PrimFunc:
        body = self.block(ast.parse(text).body)
        return PrimFunc("f", tuple(self.parameters), body)

    def block(self, nodes: list[ast.stmt]) -> Stmt:
        if nodes and self.is_allocation(nodes[0]):
            assert isinstance(nodes[0], ast.Assign)
            buffer = self.allocation(nodes[0])
            return Allocate(buffer, self.block(nodes[1:]))
        match nodes:
            case [ast.Expr(value=ast.Call(func=ast.Name(id="attr"), args=[key, value])), *rest]:
                return AttrStmt(ast.literal_eval(key), ast.literal_eval(value), self.block(rest))
        if not nodes:
            return seq([])
        return seq([self.stmt(nodes[0]), self.block(nodes[1:])])

    def is_allocation(self, node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and (isinstance(node.value.func, ast.Name) and node.value.func.id == "allocate")
        )

    def allocation(self, node: ast.Assign) -> Buffer:
        (target,) = node.targets
        assert isinstance(target, ast.Name)
        assert isinstance(node.value, ast.Call)
        shape, *scope = node.value.args
        assert isinstance(shape, ast.Subscript)
        sizes = shape.slice.elts if isinstance(shape.slice, ast.Tuple) else [shape.slice]
        kind = "local" if scope else "global"
        made = Buffer(target.id, tuple(map(self.expr, sizes)), x.float32, kind)
        self.buffers[target.id] = made
        return made

    def stmt(self, node: ast.stmt) -> Stmt:
        match node:
            case ast.For(
                target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id=kind), args=args)
            ):
                var = self.variables.setdefault(name, Var(name))
                if kind in ANNOTATIONS:
                    return self.annotated(kind, var, args, node.body)
                span = [self.expr(a) for a in args]
                start = span[0] if len(span) == 2 else const(0)
                kinds = ForKind.SERIAL if kind == "range" else ForKind(kind)
                return For(var, start, span[-1] - start, kinds, self.block(node.body))
            case ast.If():
                other = self.block(node.orelse) if node.orelse else None
                return IfThenElse(self.expr(node.test), self.block(node.body), other)
            case ast.Assign(targets=[ast.Subscript() as target]):
                buffer, indices = self.access(target)
                return BufferStore(buffer, self.expr(node.value), indices)
            case ast.Pass():
                return SeqStmt(())
        raise AssertionError(ast.dump(node))

    def annotated(self, key: str, var: Var, args: list[ast.expr], body: list[ast.stmt]) -> For:
        extent, value = args
        note = value.id if isinstance(value, ast.Name) else x.int_value(self.expr(value))
        extent_ = self.expr(extent)
        return For(var, const(0), extent_, ForKind.SERIAL, self.block(body), None, {key: note})

    def access(self, node: ast.Subscript) -> tuple[Buffer, tuple[PrimExpr, ...]]:
        assert isinstance(node.value, ast.Name)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        name = node.value.id
        if name not in self.buffers:
            made = Buffer(name, (const(1024), *(const(8) for _ in items[1:])), x.float32)
            self.buffers[name] = made
            self.parameters.append(made)
        return self.buffers[name], tuple(map(self.expr, items))

    def expr(self, node: ast.expr) -> PrimExpr:
        match node:
            case ast.Constant(value=value):
                return x.as_prim(value)
            case ast.Name(id=name):
                return self.variables[name]
            case ast.Subscript():
                return self.access(node)[0].load(*self.access(node)[1])
            case ast.BinOp():
                return _OPERATORS[type(node.op)](self.expr(node.left), self.expr(node.right))
            case ast.Compare(ops=[operator], comparators=[other]):
                return x.compare(
                    _COMPARISONS[type(operator)], self.expr(node.left), self.expr(other)
                )
            case ast.Call(
                func=ast.Name(id="ramp"), args=[base, stride, ast.Constant(value=int(n))]
            ):
                return x.Ramp(self.expr(base), self.expr(stride), n)
            case ast.Call(func=ast.Name(id="broadcast"), args=[value, ast.Constant(value=int(n))]):
                return x.Broadcast(self.expr(value), n)
            case ast.Call(func=ast.Name(id=name), args=args):
                return intrinsic(name, *map(self.expr, args))
        raise AssertionError(ast.dump(node))


# Those passes for GPUs whose examples have no bound loops.
GPU_PASSES: tuple[TirPass, ...] = (merge_guards, peel_vector_guards, unroll_registers)


@pytest.mark.parametrize("apply", [*TIR_PIPELINE, *GPU_PASSES], ids=lambda p: p.__name__)
def test_before_becomes_after(apply: TirPass) -> None:
    text = inspect.getdoc(apply)  # without the indentation, which Python 3.13 leaves out itself
    assert text is not None
    _, _, example = text.partition("\n\n")
    before, after = example.split("\n=>\n")
    before = re.sub(r"range\((.*)\):  # (\w+) = (\w+)", r"\2(\1, \3):", before)
    func = Reader().function(before.replace(" local]", "], local").replace("] local", "], 'local'"))
    done = apply(func)
    if apply.__name__ == "loop_partition":
        done = remove_no_op(done)  # the part where the guard is false is empty
    body = as_text(done).splitlines()[1:]  # without the signature
    assert "\n".join(line.removeprefix("    ") for line in body) == after.rstrip()
