"""Replace the regions of external code generators by the generated code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError, OptionError
from weft.support.fallback import Fallback, report
from weft.transform.analysis.graph import traits_of, type_of
from weft.transform.analysis.reference import evaluate
from weft.transform.external.codegen import (
    EXTERNAL_CODEGENS,
    ExternalCodegen,
    Generated,
    ObjectCode,
    PythonCode,
    Region,
    TensorCode,
)
from weft.transform.normal_form.alpha import fresh_function

# The hook of an operator that holds its ``ObjectCode`` or ``PythonCode``.
EXTERNAL_CODE = "external_code"


@ir.register_pass
@dataclass(frozen=True)
class GenerateExternal(ir.Pass):
    """Ask code generator ``compiler`` for replacements of its regions (``partition_graph``).

    A replacement that is a program is used as it is; code becomes an operator that is called.
    Either way the region becomes a function to be inlined. Regions with symbolic dimensions, and
    those that the generator declines, are left to weft. With a generator ``acc`` that simplifies:

    def @main(%x: Tensor[(4,), float32]) { @acc_main_0(%x) }
    def @acc_main_0(%a: Tensor[(4,), float32], compiler="acc") { nn.relu(nn.relu(%a)) }
    =>
    def @main(%x: Tensor[(4,), float32]) { @acc_main_0(%x) }
    def @acc_main_0(%a: Tensor[(4,), float32], inline=True) { nn.relu(%a) }
    """

    name: ClassVar[str] = "generate_external"
    opt_level: ClassVar[int] = 0
    compiler: str = ""

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        codegen = EXTERNAL_CODEGENS.get(self.compiler)
        if codegen.generate is None:
            raise OptionError(f"the code generator {self.compiler!r} cannot generate code",
                              help="give register_external_codegen a function generate=")
        mod = ir.infer_type(mod)
        changed = {name: _replacement(fn, codegen, codegen.generate, ctx.target)
                   for name, fn in mod.functions.items()
                   if fn.attrs.get("compiler") == self.compiler}
        return mod.with_functions(changed)


def _replacement(fn: ir.Function, codegen: ExternalCodegen,
                 generate: Callable[[Region], Generated], target: Any) -> ir.Function:
    plain = fn.replace(attrs={"inline": True}, checked_type=fn.checked_type)
    types = [type_of(e) for e in (*fn.params, fn.body)]
    if not all(map(ir.is_static, types)):
        return plain
    bare = fn.replace(attrs={}, checked_type=fn.checked_type)
    region = Region(f"{codegen.name}_{ir.structural_hash(bare)[:16]}", bare, target)
    generated = generate(region)
    if generated is None:
        report(_declined(codegen, bare))
        return plain
    if isinstance(generated, ir.IRModule):
        generated = _only_function(generated, region, codegen)
    if isinstance(generated, ir.Function):
        made = fresh_function(generated).replace(attrs={"inline": True})
        return _checked(made, region, codegen)
    if isinstance(generated, (ObjectCode, TensorCode, PythonCode)):
        return _call_of(_operator(generated, region), plain)
    raise CodegenError(f"the code generator {codegen.name!r} returned no valid code for a region",
                       expected="a Function, IRModule, ObjectCode, TensorCode, PythonCode, or None",
                       got=type(generated).__name__)


def _declined(codegen: ExternalCodegen, region: ir.Function) -> Fallback:
    operators = dict.fromkeys(node.op.name for node in ir.post_order(region.body)
                              if isinstance(node, ir.Call) and isinstance(node.op, ir.Op))
    return Fallback(
        f"weft compiles a region that was cut out for the code generator {codegen.name!r}: "
        f"{', '.join(operators)}", "the generator declines the region",
        "the region in weft's own kernels",
        f"take these operators out of what {codegen.name!r} supports, or let it generate them")


def _only_function(mod: ir.IRModule, region: Region, codegen: ExternalCodegen) -> ir.Function:
    if list(mod.functions) != ["main"]:
        raise CodegenError(
            f"the code generator {codegen.name!r} returned several functions for a region",
            expected="a module with main only", got=", ".join(mod.functions), where=region.name,
        )
    return mod["main"]


def _checked(fn: ir.Function, region: Region, codegen: ExternalCodegen) -> ir.Function:
    """``fn`` with its types, which must be those of the region."""
    mod = ir.infer_type(ir.IRModule({"main": fn}))
    ir.verify_module(mod)
    typed = mod["main"]
    wanted = [type_of(e) for e in (*region.function.params, region.function.body)]
    got = [type_of(e) for e in (*typed.params, typed.body)]
    if got != wanted:
        raise CodegenError(
            f"the code generator {codegen.name!r} returned a function of another type",
            where=region.name, expected=_signature(wanted), got=_signature(got),
        )
    return typed


def _signature(types: list[ir.Type]) -> str:
    return str(ir.FuncType(tuple(types[:-1]), types[-1]))


def _operator(code: ObjectCode | TensorCode | PythonCode, region: Region) -> ir.Op:
    """An operator for this one region."""
    fn = region.function
    meaning = ir.IRModule({"main": fn})
    has_effect = any(traits_of(node).has_effect for node in ir.post_order(fn.body))
    return external_operator(region.name, {p.name: type_of(p) for p in fn.params},
                             type_of(fn.body), code, lambda *given: evaluate(meaning, list(given)),
                             has_effect=has_effect)


def external_operator(name: str, params: Mapping[str, ir.Type], result: ir.Type,
                      code: ObjectCode | TensorCode | PythonCode,
                      reference: Callable[..., Any], *, has_effect: bool = False) -> ir.Op:
    """An operator of fixed types that is computed by ``code``.

    Only operators of equal types and code have equal names.
    """
    hooks: dict[str, Any] = {"reference": reference}
    if not isinstance(code, TensorCode):
        hooks[EXTERNAL_CODE] = code
    compute = _compute(code) if isinstance(code, TensorCode) else None
    return ir.Op(name, tuple(params), relation=_fixed_relation(list(params.values()), result),
                 pattern=ir.OpPattern.OPAQUE, compute=compute, hooks=hooks,
                 traits=ir.OpTraits(has_effect=has_effect),
                 doc="A region compiled by an external code generator.")


def _compute(code: TensorCode) -> Callable[..., Any]:
    def compute(*tensors: Any) -> Any:
        return code.compute(*tensors[:-1])  # without the attributes, which are empty

    return compute


def _fixed_relation(params: list[ir.Type], result: ir.Type) -> ir.Relation:
    def relation(ctx: ir.RelationContext) -> bool:
        for number, type_ in enumerate(params):
            ctx.unify_arg(number, type_)
        ctx.output(result)
        return True

    return relation


def _call_of(op: ir.Op, fn: ir.Function) -> ir.Function:
    fresh = fresh_function(fn)
    call = ir.Call(op, fresh.params, span=fn.body.span, checked_type=type_of(fn.body))
    return fresh.replace(body=call, checked_type=fn.checked_type)


def external_code_of(function: ir.Expr) -> ObjectCode | PythonCode | None:
    """The code of a kernel made by an external generator, ``None`` for other kernels."""
    body = function.body if isinstance(function, ir.Function) else None
    if isinstance(body, ir.Call) and isinstance(body.op, ir.Op):
        found: ObjectCode | PythonCode | None = body.op.hook(EXTERNAL_CODE)
        return found
    return None
