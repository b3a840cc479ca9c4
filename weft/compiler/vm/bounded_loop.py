"""Bounded loops of a program for the virtual machine, each built as one kernel.

A function with the attribute ``bounded_loop`` calls itself in tail position alone and ends after a
bounded number of steps. As a first-order program it becomes machine code: the bytecode calls it as
it calls a kernel, with its constants as arguments and its arena as workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.codegen import backend_of
from weft.compiler.build.built_kernel import BuiltKernel, KernelFacts
from weft.compiler.build.cached_objects import loop_object
from weft.compiler.build.kernels import build_kernels
from weft.compiler.options import CompileOptions
from weft.compiler.program.in_place import updates_not_granted
from weft.compiler.program.launches import launch_program
from weft.compiler.program.lowering import lower_program, try_lower_program
from weft.compiler.program.memory_plan import plan_memory
from weft.compiler.program.ports import tensors_of
from weft.compiler.program.program import KernelSource
from weft.compiler.program.verify_memory import verify_memory
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    TensorType,
    Var,
    children,
    infer_type,
    is_static,
    post_order,
    replace_children,
)
from weft.ir.dynamic import result_types
from weft.runtime.device import HOST_MEMORY
from weft.runtime.sizes import evaluate
from weft.runtime.vm.program import TensorForm, VmKernel
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import is_primitive, type_of
from weft.transform.autodiff.reverse.loop_tape import BOUNDED
from weft.transform.normal_form.alpha import fresh_function

_NAME = "loop"


@dataclass(frozen=True, slots=True, eq=False)
class BoundedLoop:
    """A loop whose ``constants`` are further parameters of ``function``, which calls ``@loop``."""

    function: Function
    constants: tuple[np.ndarray, ...]


def is_bounded_loop(function: Function) -> bool:
    """Whether a function is that of a ``BoundedLoop``."""
    return bool(function.attrs.get(BOUNDED))


def bounded_loop(mod: IRModule, name: str) -> BoundedLoop | None:
    """The loop that a function of a ``lowered`` module is; ``None`` for other functions."""
    fn = mod[name]
    if not is_bounded_loop(fn) or not all(
            isinstance(type_of(p), TensorType) and is_static(type_of(p)) for p in fn.params):
        return None
    found: dict[Constant, Var] = {}
    for node in _outside_kernels(fn.body):
        if isinstance(node, Constant):
            found[node] = Var(f"constant{len(found)}", type_of(node))
        elif isinstance(node, GlobalVar) and node.name != name:
            return None
    loop = BoundedLoop(_with_parameters(fn, found), tuple(c.data for c in found))
    return loop if try_lower_program(_module_of(loop.function)) is not None else None


def _outside_kernels(body: Expr) -> list[Expr]:
    return list(post_order(body, enter=lambda node: not is_primitive(node)))


def _with_parameters(fn: Function, constants: dict[Constant, Var]) -> Function:
    """The function, named ``@loop``, that takes its constants."""
    added = tuple(constants.values())
    made: dict[Expr, Expr] = {}
    for node in _outside_kernels(fn.body):
        if isinstance(node, Constant):
            made[node] = constants[node]
        elif isinstance(node, GlobalVar):
            made[node] = GlobalVar(_NAME, span=node.span)
        elif isinstance(node, Call) and isinstance(node.op, GlobalVar):
            args = tuple([made[arg] for arg in node.args])
            made[node] = Call(made[node.op], (*args, *added), span=node.span,
                              checked_type=node.checked_type)
        elif is_primitive(node):
            made[node] = node
        else:
            made[node] = replace_children(node, [made[child] for child in children(node)])
    return Function((*fn.params, *added), made[fn.body], type_of(fn.body), attrs=fn.attrs,
                    span=fn.span, checked_type=None)


def _module_of(function: Function) -> IRModule:
    """A module whose ``main`` runs the loop."""
    params = tuple(Var(p.name, type_of(p)) for p in function.params)
    main = Function(params, Call(GlobalVar(_NAME), params), type_of(function.body))
    return infer_type(IRModule({"main": main, _NAME: fresh_function(function)}))


def build_bounded_loop(source: KernelSource, options: CompileOptions
                       ) -> tuple[VmKernel, tuple[BuiltKernel, ...], bytes]:
    """The loop as a kernel, the kernels that it calls, and the object code that calls them."""
    target = options.target
    backend = backend_of(target)
    refused: frozenset[str] = frozenset()
    while True:
        program = lower_program(_module_of(source.function), refused=refused)
        built = tuple(build_kernels(program.kernels, target, options.extensions.tir_passes))
        facts = [kernel.facts for kernel in built]
        missed = updates_not_granted(program, [known.in_place for known in facts])
        if not missed:
            break
        refused |= missed
    plan = plan_memory(program, {n: evaluate(f.workspace_bytes, {}) for n, f in enumerate(facts)},
                       {n: f.in_place for n, f in enumerate(facts) if f.in_place is not None},
                       (HOST_MEMORY,))
    launches = launch_program(program, plan, (), facts, (HOST_MEMORY,))
    verify_memory(program, launches, facts)
    inputs = [t for p in source.function.params for t in tensors_of(type_of(p))]
    kernel = VmKernel(
        source.name, len(inputs), _forms(result_types(source.function)), sum(plan.arena_bytes),
        "loop", source.text, *_work_of_step(facts),
        input_shapes=tuple(t.concrete_shape for t in inputs))
    return kernel, built, loop_object(backend, source.name, launches, target,
                                      has_workspace=kernel.workspace_bytes > 0)


def _forms(types: Sequence[TensorType]) -> tuple[TensorForm, ...]:
    return tuple(TensorForm(str(t.dtype), t.concrete_shape) for t in types)


def _work_of_step(facts: Sequence[KernelFacts]) -> tuple[int, int]:
    """The operations and the bytes moved of one step."""
    return (sum(evaluate(known.flops, {}) for known in facts),
            sum(evaluate(known.bytes_moved, {}) for known in facts))
