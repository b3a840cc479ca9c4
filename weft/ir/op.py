"""Operator records: everything the IR knows about an operator.

``define_op`` makes the record from the compute function. Its traits (``ir.traits``) tell passes
what they may assume. Further interpretations (gradient, layout, reference, ..) are hooks, which
methods of ``Op`` register.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from weft.ir.attrs import Attrs, NoAttrs
from weft.ir.expr import Call, Constant, Expr, Tuple, const
from weft.ir.shape import Dim
from weft.ir.span import Span
from weft.ir.traits import Homogeneity, MixedPrecision, NarrowFloatCompute, OpTraits
from weft.ir.typing.relation import Relation
from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError, InternalError, RegistryError
from weft.support.interpreter import interrupts_held
from weft.support.registry import Origin, Registry


class OpPattern(enum.IntEnum):
    """How an operator may fuse, in order of increasing restriction (Relay's ``TOpPattern``)."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


# (typed call, its result y, the gradient dy of y) -> the gradient for each argument.
GradientRule: TypeAlias = "Callable[[Call, Expr, Expr], Sequence[Expr]]"

# (typed call, its result y, the tangent of each argument or None for zero) -> the tangent of y.
JvpRule: TypeAlias = "Callable[[Call, Expr, Sequence[Expr | None]], Expr | None]"

# (attributes, number of inputs) -> the number of results.
ResultCount: TypeAlias = "Callable[[Any, int], int]"

# (typed call, its arguments with the batch as axis 0 of those that are batched, which are batched,
# the size of the batch) -> the result with the batch as axis 0 (of each tensor in it), or None
# where the rule does not cover these arguments.
BatchingRule: TypeAlias = "Callable[[Call, Sequence[Expr], Sequence[bool], Dim], Expr | None]"


# typed call -> ((operand, dimension) ..), ((result, dimension) ..) of each axis that can be cut.
CutAxes: TypeAlias = (
    "Callable[[Call], Iterable[tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]]]")


@dataclass(frozen=True, slots=True)
class Case:
    """One generic test of an operator: input shapes (or arrays) and attribute values.

    ``low``/``high`` bound the random inputs, ``dtypes`` names one dtype per input (the last one
    repeats), and ``rtol``/``atol`` override the default tolerances of the dtype.
    """

    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]
    dtypes: tuple[str, ...] = ("float32",)
    low: float = -1.0
    high: float = 1.0
    rtol: float | None = None
    atol: float | None = None


def op_case(
    *inputs: Any,
    dtypes: Sequence[str] | str = "float32",
    low: float = -1.0,
    high: float = 1.0,
    rtol: float | None = None,
    atol: float | None = None,
    **attrs: Any,
) -> Case:
    """``op_case((3, 5), axis=1)``: one input of shape (3, 5), attribute ``axis`` = 1."""
    names = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
    return Case(inputs, attrs, names, low, high, rtol, atol)


@dataclass(frozen=True, slots=True)
class HookPlace:
    """Where a hook is defined whose module is imported when the hook is first asked for."""

    module: str
    name: str

    def load(self) -> Any:
        with interrupts_held():
            return getattr(importlib.import_module(self.module), self.name)


class Operand:
    """An argument of operators other than an expression: a pattern, or a traced tensor.

    An operator with such an argument calls its ``applied`` instead of building a ``Call``.
    """

    __slots__ = ()

    def applied(self, op: Op, args: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """The result of ``op(*args, **attrs)``, where ``self`` is one of ``args``."""
        raise InternalError(f"operators do not apply to {type(self).__name__}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op(Expr):
    """A primitive operator. Call it to build a ``Call``: ``relu(x)``, ``softmax(x, axis=1)``.

    ``compute(*tensors, attrs)`` returns a tensor, or a tuple of tensors, of tensor expressions;
    an argument that is a tuple arrives as a tuple of tensors. ``inputs`` names the arguments;
    a leading ``*`` on the only name marks one argument that is a tuple of tensors. ``results`` is
    the number of tensors that a call gives, or computes it.
    """

    name: str
    inputs: tuple[str, ...] = ()
    attrs_type: type[Attrs] = NoAttrs
    relation: Relation | None = None
    pattern: OpPattern = OpPattern.OPAQUE
    compute: Callable[..., Any] | None = None
    doc: str = ""
    level: int = 10
    traits: OpTraits = OpTraits()
    results: int | ResultCount = 1
    hooks: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)  # of the hooks

    def __call__(self, *args: Any, span: Span | None = None, **attrs: Any) -> Any:
        """Build a call; numbers and arrays among ``args`` become constants."""
        if len(args) != len(self.inputs):
            raise AttrsError(
                f"{self.name} takes {len(self.inputs)} arguments",
                expected=", ".join(self.inputs),
                got=str(len(args)),
            )
        for arg in args:
            if isinstance(arg, Operand):
                return arg.applied(self, args, attrs)
        record = self.attrs_type.make(attrs)
        return Call(self, tuple(as_expr(a) for a in args), record, span=span or Span.of_caller())

    def num_results(self, attrs: Attrs, num_inputs: int) -> int:
        """How many tensors a call with these attributes and this number of tensors gives."""
        return self.results if isinstance(self.results, int) else self.results(attrs, num_inputs)

    def hook(self, table: str) -> Any:
        """The hook of this operator in ``table`` ("gradient", "layout", …), or ``None``."""
        found = self.hooks.get(table)
        if isinstance(found, HookPlace):
            found = self.hooks[table] = found.load()
        return found

    def refer(self, **places: str) -> None:
        """Name hooks that another module defines: ``refer(gradient="package.module:function")``.

        The module is imported when the hook is first asked for. This is how a hook stands outside
        of the module of an operator that loads lazily, whose other modules nothing imports. Hooks
        without a method here are named so; a value that is no function, such as a record, too:

        - ``permuted``: how a call takes data whose axes are in another order (``op.permuted``);
        - ``shape_value``: the integers that a call computes from shapes (``op.shape_values``);
        - ``on_devices``: a collective, given the operands of all devices of its group
          (``transform.sharding.unroll``);
        - ``reduced_form``: the call as reductions and elementwise operators (``op.reduced_forms``);
        - ``fast_form``: an approximation in float32 (``op.fast_math``);
        - ``weight_use``, ``column_factors``: constant matrices, and operands that scale columns
          (``op.nn.constant_weights``);
        - ``integer_form``, ``requantized_form``: the call on stored integers
          (``op.qnn.integer_forms``).
        """
        for table, place in places.items():
            self._add_hook(table, HookPlace(*place.split(":", 1)))

    @property
    def gradient_rule(self) -> GradientRule | None:
        """The registered gradient, or ``None``."""
        rule: GradientRule | None = self.hook("gradient")
        return rule

    def _add_hook(self, table: str, function: Any) -> Any:
        origin = Origin.of_caller()
        self._check_place(table, origin.module)
        before = self.origins.get(table)
        if table in self.hooks and (before is None or not origin.repeats(before)):
            raise RegistryError(f"{table} of operator {self.name!r} is registered twice")
        self.origins[table] = origin
        self.hooks[table] = function
        return function

    def _check_place(self, table: str, module: str) -> None:
        """Raise ``RegistryError`` for a hook that a process with this operator alone would miss."""
        home = OPS.indexed_module(self.name)
        if home is None or module == home or module.partition(".")[0] != home.partition(".")[0]:
            return  # users import the modules of their own hooks
        raise RegistryError(
            f"{table} of operator {self.name!r} is registered outside of its module",
            expected=home, got=module,
            help=f'name it in the module of the operator: refer({table}="{module}:FUNCTION")')

    def gradient(self, function: GradientRule) -> GradientRule:
        """Register ``(call, y, dy) -> one gradient per argument``."""
        self._add_hook("gradient", function)
        return function

    @property
    def jvp_rule(self) -> JvpRule | None:
        """The registered Jacobian-vector product, or ``None``."""
        rule: JvpRule | None = self.hook("jvp")
        return rule

    def jvp(self, function: JvpRule) -> JvpRule:
        """Register ``(call, y, tangents) -> the tangent of y``, the rule of forward mode.

        A tangent has the type of its argument; ``None`` stands for zero. Most operators need no
        rule: ``transform.autodiff.forward`` derives one from ``traits.linearity`` or from the
        gradient.
        """
        self._add_hook("jvp", function)
        return function

    @property
    def batching_rule(self) -> BatchingRule | None:
        """The registered rule of ``vmap``, or ``None``."""
        rule: BatchingRule | None = self.hook("batching")
        return rule

    def batching(self, function: BatchingRule) -> BatchingRule:
        """Register ``(call, args, is_batched, size) -> result``, the rule of ``vmap``.

        ``args`` are the arguments, with the batch as axis 0 where ``is_batched`` says so; ``call``
        is the call on one example. In the result the batch is axis 0 (of each tensor of a tuple).
        """
        self._add_hook("batching", function)
        return function

    def cut_axes(self, function: CutAxes) -> CutAxes:
        """Register which axes of operands and results can be cut together over devices.

        For operators whose loops are written by hand; the tensor expressions of others tell
        (``transform.sharding``). ``op.cut_axes`` has the usual rules.
        """
        self._add_hook("cut_axes", function)
        return function

    @property
    def no_gradient_reason(self) -> str | None:
        """Why mathematics gives this operator no useful derivative, or ``None``."""
        reason: str | None = self.hook("no_gradient")
        return reason

    def no_gradient(self, reason: str) -> None:
        """Record in one sentence why the operator has no derivative (``"argmax is an index"``).

        Differentiating through it is then an error that gives the reason.
        """
        self._add_hook("no_gradient", reason)

    def decomposition(self, function: Callable[[Call], Expr | None]) -> Any:
        """Register ``call -> Expr | None``: an equivalent in simpler operators, where preferable.

        The arguments of the call are typed. ``CanonicalizeOps`` applies it.
        """
        return self._add_hook("decomposition", function)

    def expansion(self, function: Callable[[Call], Expr | None]) -> Any:
        """Register ``call -> Expr | None``: an equivalent in operators that have gradients.

        Like a decomposition, but applied only for differentiation.
        """
        return self._add_hook("expansion", function)

    def layout(self, function: Callable[..., Any]) -> Any:
        """Register the layout inference of the operator (see ``transform.alter_op_layout``).

        ``convert_layout`` passes through operators with ``keep_layout`` or ``join_layouts`` too.
        """
        return self._add_hook("layout", function)

    def canonical_form(self, function: Callable[[Call], Expr | None]) -> Any:
        """Register ``call -> Expr | None``, the spelling that later passes and strategies expect.

        The arguments of the call are typed. ``CanonicalizeOps`` applies it, or else the
        decomposition; forward mode and ``vmap`` do not.
        """
        return self._add_hook("canonical_form", function)

    def inference_form(self, function: Callable[[Call], Expr]) -> Any:
        """Register ``call -> Expr``: what an operator of training computes in inference.

        The arguments of the call are typed. ``SimplifyInference`` applies it.
        """
        return self._add_hook("inference_form", function)

    def identity(self, function: Callable[[Call], Expr | None]) -> Any:
        """Register ``call -> Expr | None``: the operand that is the (first) result unchanged.

        For conditions other than equal types, which a trait states. ``EliminateIdentity`` asks it.
        """
        return self._add_hook("identity", function)

    def bounds(self, function: Callable[..., Any]) -> Any:
        """Register ``(attrs, argument types) -> Bounds`` (``ir.dynamic``) of dynamic results."""
        return self._add_hook("bounds", function)

    def static_form(self, form: Any) -> Any:
        """Register the ``StaticForm`` (``ir.dynamic``) of an operator with shape operands."""
        return self._add_hook("static_form", form)

    def bind_sizes(self, function: Callable[..., Any]) -> Any:
        """Register ``(attrs, result type) -> attrs``, applied where symbols become numbers.

        For attributes whose meaning depends on a size being symbolic; both arguments have the
        numbers already (``ir.substitution``).
        """
        return self._add_hook("bind_sizes", function)

    def runs_on(self, *kinds: str) -> None:
        """Say that only devices of these kinds (``"cpu"``, ``"cuda"``, ``"sim"``) run the operator.

        ``plan_devices`` keeps its calls on such a device, or raises ``TargetError``.
        """
        self._add_hook("device_kinds", frozenset(kinds))

    def spec(self, reference: Callable[..., Any], *cases: Case | Callable[[], Iterable[Case]]
             ) -> None:
        """Register the NumPy meaning ``reference(*arrays, **attrs)`` and the generic test cases.

        The reference also folds constants at compile time. A function among the cases makes some
        when they are first asked for: a compilation has no use for their arrays.
        """
        self._add_hook("reference", reference)
        self._add_hook("cases", cases)

    @property
    def reference(self) -> Callable[..., Any] | None:
        return self.hook("reference")  # type: ignore[no-any-return]

    @property
    def cases(self) -> tuple[Case, ...]:
        listed = self.hook("cases") or ()
        if any(map(callable, listed)):
            listed = self.hooks["cases"] = tuple(itertools.chain.from_iterable(
                item() if callable(item) else (item,) for item in listed))
        return listed

    def __reduce__(self) -> tuple[Any, ...]:
        return get_op, (self.name,)


OPS: Registry[Op] = Registry("operator")


def get_op(name: str) -> Op:
    """The record of the operator ``name``; ``RegistryError`` if there is none."""
    return OPS.get(name)


def as_expr(value: Any) -> Expr:
    """Expressions unchanged, sequences with expressions as tuples, other values as constants."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (tuple, list)) and any(isinstance(v, Expr) for v in value):
        return Tuple(tuple(as_expr(v) for v in value))
    constant: Constant = const(value)
    return constant


def define_op(
    name: str,
    *,
    attrs: type[Attrs] = NoAttrs,
    relation: Relation,
    pattern: OpPattern = OpPattern.OPAQUE,
    level: int = 10,
    inputs: Sequence[str] | None = None,
    traits: OpTraits = OpTraits(),
    results: int | ResultCount = 1,
) -> Callable[[Callable[..., Any]], Op]:
    """Make an operator from the decorated compute function, and register it.

    The parameters before ``attrs`` are the operator's inputs. ``traits`` tell passes what they may
    assume of it; ``results`` is the number of results. Raises ``RegistryError`` for a
    duplicate name, a missing docstring, or a trait that does not fit the inputs or attributes.
    """

    def wrap(compute: Callable[..., Any]) -> Op:
        doc = inspect.getdoc(compute)
        if not doc:
            raise RegistryError(
                f"missing docstring of operator {name!r}", help="say in one line what it computes"
            )
        names = tuple(inputs) if inputs is not None else _inputs_of(compute)
        _check_traits(name, names, attrs, traits)
        record = Op(name, names, attrs, relation, pattern, compute, doc, level, traits, results)
        return OPS.register(name, record)

    return wrap


def _check_traits(
    name: str, inputs: Sequence[str], attrs: type[Attrs], traits: OpTraits
) -> None:
    """Raise ``RegistryError`` if passes that rely on ``traits`` would fail on a call."""
    tensors = len(inputs) if not any(i.startswith("*") for i in inputs) else 0
    has_out_dtype = any(f.name == "out_dtype" for f in dataclasses.fields(attrs))
    # Each trait, whether it is declared, whether the record fits, and what would fit.
    needs = (
        ("commutative", traits.is_commutative, tensors == 2, "two inputs"),
        ("is_reshape", traits.is_reshape, tensors == 1 or (traits.is_annotation and tensors > 0),
         "one input"),
        ("updates_first", traits.updates_first, tensors > 0, "a tensor as first input"),
        ("is_identity_at_same_type", traits.is_identity_at_same_type, tensors > 0,
         "a tensor as first input"),
        ("homogeneity", traits.homogeneity is not Homogeneity.NONE, tensors > 0,
         "a tensor as first input"),
        ("mixed_precision", traits.mixed_precision is MixedPrecision.ALWAYS, has_out_dtype,
         "an attribute out_dtype"),
        ("narrow_floats", traits.narrow_floats is NarrowFloatCompute.ACCUMULATOR, has_out_dtype,
         "an attribute out_dtype"),
    )
    for trait, is_declared, fits, expected in needs:
        if is_declared and not fits:
            fields = ", ".join(f.name for f in dataclasses.fields(attrs)) or "none"
            raise RegistryError(
                f"trait {trait} does not fit operator {name!r}",
                expected=expected,
                got=f"inputs: {', '.join(inputs) or 'none'}; attributes: {fields}",
            )


def _inputs_of(compute: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(p for p in inspect.signature(compute).parameters if p != "attrs")
