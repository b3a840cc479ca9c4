"""What passes may assume of an operator, declared with its record.

A pass asks ``op.traits`` instead of keeping a table of operator names, so an operator that a user
defines takes part in the same rewrites as a built-in one. The default of every trait is the
assumption that is safe for any operator.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import fields, replace

from weft.support.dataclass import dataclass


class Commutativity(enum.Enum):
    """Whether the two operands of an operator may be exchanged."""

    NONE = "no"
    NUMERIC = "yes, except that the sign of a zero may differ"
    """Equal numbers, but a result of zero may have the other sign (``maximum`` of floats)."""
    BITWISE = "yes"


class Homogeneity(enum.Enum):
    """Whether scaling the argument scales the result: ``f(s * x) == s * f(x)``."""

    NONE = "no"
    POSITIVE = "for positive scales"
    ANY_SCALE = "for every scale"


class MixedPrecision(enum.Enum):
    """What ``to_mixed_precision`` does with a call (the lists of TVM's ``ToMixedPrecision``)."""

    FOLLOW = "16 bits if the operands have 16 bits"
    ALWAYS = "16 bits"
    NEVER = "32 bits"
    """Long sums, and functions that amplify the rounding errors of their operands."""


class Linearity(enum.Enum):
    """In which floating-point arguments an operator is linear."""

    NONE = "no"
    JOINT = "in all of them together"
    """``f(x + dx, y + dy) = f(x, y) + f(dx, dy)``: add, concatenate, reshape, sum, take."""
    EACH = "in each of them"
    """Linear in one argument while the others stay fixed: multiply, matmul, convolution."""


class Family(enum.Enum):
    """Operators that a target's strategies schedule alike, from the stages of their compute."""

    NONE = "none"
    REDUCTION = "reduction"
    """Reductions of axes, and elementwise stages before and after them: softmax, norms, sums."""
    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    """Convolutions, transposed ones, and their gradients with respect to the kernel."""
    MAX_POOL = "max pool"
    AVG_POOL = "average pool"
    SCAN = "scan"
    """Prefixes of an associative function along an axis, which the trait ``combine`` names."""
    SORT = "sort"
    RESAMPLING = "resampling"
    """Elements at positions that lookup tables hold, axis by axis."""
    FACTORIZATION = "factorization"
    """Loop programs over matrices, which update tiles of them in registers."""


class NarrowFloatCompute(enum.Enum):
    """In which type a kernel evaluates a call on floats of at most 16 bits."""

    AS_STORED = "as stored"
    """The operator compares, rounds or counts, so it needs its operands as the program rounds
    them."""
    FLOAT32 = "float32"
    """The operator is continuous, so the float32 result, rounded once, is the more accurate."""
    ACCUMULATOR = "float32 accumulator"
    """The strategies upcast the operands themselves; ``out_dtype`` may ask for float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTraits:
    """Properties of an operator that passes rely on. Give them to ``define_op(traits=...)``."""

    commutative: Commutativity = Commutativity.NONE
    """Whether two operands may be exchanged, in common subexpressions and in patterns."""

    is_reshape: bool = False
    """The result has the elements of the only argument (of an annotation: of the first) in the same
    row-major order. Such a call becomes an alias of that argument's memory and needs no kernel."""

    is_annotation: bool = False
    """The call marks a position in the program for passes. General rewrites keep it; only a pass
    that gives this annotation its meaning may remove it (``simplify_inference`` removes
    ``annotation.stop_gradient``)."""

    has_effect: bool = False
    """Evaluating the call has a side effect (it prints, checks, counts), so it happens as often as
    the program says: passes do not merge, fold, repeat or drop it, and keep the order that data,
    ``let`` and ``annotation.barrier`` give it."""

    copies_elements: bool = False
    """Every element of the result is an element of the first argument. Kernels move it in the
    type in which it arrives, and a tensor of zeros stays one."""

    updates_first: bool = False
    """The result is the first argument, of the same type, with some elements replaced. At the last
    use of that argument a kernel may write these elements alone, into its memory."""

    keeps_scale: bool = False
    """The operator moves elements of its only argument or selects the largest or smallest, so
    stored integers with one scale and zero point give the stored integers of the result."""

    takes_blocks: bool = False
    """The operator is defined for tensors whose elements are blocks of quantised numbers."""

    reads_shape_only: bool = False
    """No element of the argument is read: the result depends on its type."""

    family: Family = Family.NONE
    """The family of operators for which a target's strategies and decisions are registered; one
    registered for the operator itself takes precedence."""

    combine: str = ""
    """The associative function of a scan: a name of ``topi.scan.COMBINES``."""

    is_identity_at_same_type: bool = False
    """The result is the first argument itself wherever the two have the same type."""

    is_creation: bool = False
    """The call writes a tensor that attributes alone describe (``zeros``, ``arange``); constant
    folding evaluates it whatever its size, because models store weights this way."""

    is_expensive: bool = False
    """An elementwise operator whose evaluation costs more than to load its stored result, so
    ``recompute`` keeps it."""

    is_contraction: bool = False
    """A sum of products (matrix multiplication, convolution) that accumulates in a wider type."""

    homogeneity: Homogeneity = Homogeneity.NONE
    """Which scales pass from the result to the argument (``fold_scale_axis``). An operator that
    is not elementwise passes a scale per channel, and needs an attribute ``layout``."""

    has_zero_gradient: bool = False
    """The derivative is zero wherever it is defined (``floor``), or by intent
    (``annotation.stop_gradient``). A registered gradient rule takes precedence."""

    linearity: Linearity = Linearity.NONE
    """In which floating-point arguments the operator is linear; forward mode follows from it."""

    mixed_precision: MixedPrecision = MixedPrecision.FOLLOW
    """How ``to_mixed_precision`` types a call."""

    narrow_floats: NarrowFloatCompute = NarrowFloatCompute.AS_STORED
    """In which type ``compute_in_float32`` evaluates a call on 16-bit and 8-bit floats."""

    @property
    def is_commutative(self) -> bool:
        """Whether exchanged operands give equal numbers."""
        return self.commutative is not Commutativity.NONE

    @property
    def is_removable_reshape(self) -> bool:
        """Whether a rewrite may cancel or combine the call with other reshapes."""
        return self.is_reshape and not self.is_annotation

    def declared(self) -> Iterator[tuple[str, str]]:
        """The name and value of each trait that differs from its default."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                yield field.name, value.value if isinstance(value, enum.Enum) else "yes"


NO_TRAITS = OpTraits()


def linear(traits: OpTraits = NO_TRAITS) -> OpTraits:
    """``traits`` of an operator that is linear in all floating-point arguments together."""
    return replace(traits, linearity=Linearity.JOINT)


def multilinear(traits: OpTraits = NO_TRAITS) -> OpTraits:
    """``traits`` of an operator that is linear in each floating-point argument."""
    return replace(traits, linearity=Linearity.EACH)


def in_family(family: Family, traits: OpTraits = NO_TRAITS) -> OpTraits:
    """``traits`` of a member of a family."""
    return replace(traits, family=family)


# Combinations that several operators share.
CONTINUOUS = OpTraits(narrow_floats=NarrowFloatCompute.FLOAT32)
SENSITIVE = OpTraits(narrow_floats=NarrowFloatCompute.FLOAT32,
                     mixed_precision=MixedPrecision.NEVER)
CONVOLUTION = multilinear(OpTraits(narrow_floats=NarrowFloatCompute.FLOAT32, is_contraction=True,
                                   family=Family.CONVOLUTION))
MATMUL = multilinear(OpTraits(narrow_floats=NarrowFloatCompute.ACCUMULATOR, is_contraction=True,
                              mixed_precision=MixedPrecision.ALWAYS, family=Family.MATMUL))
RESHAPE = linear(OpTraits(is_reshape=True, copies_elements=True, is_identity_at_same_type=True,
                          keeps_scale=True))
FACTORIZATION = in_family(Family.FACTORIZATION)
COPIES_ELEMENTS = linear(OpTraits(copies_elements=True))
COMMUTATIVE = OpTraits(commutative=Commutativity.BITWISE)
ZERO_GRADIENT = OpTraits(has_zero_gradient=True)
