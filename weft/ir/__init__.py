"""The typed functional IR.

Data structures: ``expr`` (nodes), ``types``, ``shape`` (dimensions), ``dtype``, ``attrs``
(attribute records), ``op`` and ``traits`` (operator records), ``module``, ``span`` (source
locations), ``prelude``. Walks over them: ``visitor``, ``analysis``, ``structural`` (equality and
hashes), ``verify``, ``drawing``, ``dynamic`` (data-dependent shapes). Passes: ``passes``
and ``instruments``.

Sub-packages: ``typing`` infers types, ``text`` parses and prints, ``json`` reads and writes files,
``python`` builds programs from Python, ``rewrite`` holds patterns and the rule driver.

The names below are those that other packages import often: ``from weft.ir import Call, Function``,
or ``from weft import ir`` and ``ir.Call`` for many of them.
"""

from typing import TYPE_CHECKING

from weft.ir.analysis import known_type
from weft.ir.attrs import NO_ATTRS, Attrs, NoAttrs, attr, one_of, size_from, sizes_from
from weft.ir.contents import Seeks
from weft.ir.dtype import DType, bool_, float32, float64, int32, int64
from weft.ir.dynamic import Bounds
from weft.ir.expr import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    TypeData,
    Var,
    const,
    install_printer,
    var,
)
from weft.ir.instruments import (
    DumpInstrument,
    ExplainInstrument,
    PrintInstrument,
    TimingInstrument,
    VerifyInstrument,
)
from weft.ir.module import IRModule, input_names, output_names
from weft.ir.op import (
    OPS,
    BatchingRule,
    Case,
    GradientRule,
    Op,
    OpPattern,
    define_op,
    get_op,
    op_case,
)
from weft.ir.passes import (
    FACTS,
    PASSES,
    Fact,
    FunctionPass,
    Pass,
    PassContext,
    Sequential,
    parse_pipeline,
    register_fact,
    register_pass,
    run_pass,
)
from weft.ir.prelude import Prelude, import_prelude, prelude
from weft.ir.python import builder
from weft.ir.python.builder import ScopeBuilder
from weft.ir.rewrite.driver import apply_rules
from weft.ir.rewrite.rules import NoMatch, Rule, RuleSet, rule
from weft.ir.shape import (
    ANY,
    AnyDim,
    Dim,
    KnownDim,
    Shape,
    SymDim,
    as_dim,
    as_shape,
    bounds_of,
    dim_add,
    dim_floordiv,
    dim_max,
    dim_min,
    dim_mul,
    dim_product,
    dim_sub,
    dims_equal,
    may_be_at_least,
    may_be_equal,
    may_be_multiple,
    substitute_dim,
)
from weft.ir.span import Span
from weft.ir.structural import assert_structural_equal, structural_equal, structural_hash
from weft.ir.substitution import has_symbols
from weft.ir.symbol import SizeRange, name_of, range_of, size_of_dim, symbol_text, typical_size
from weft.ir.text.parser import parse, parse_expr, parse_type
from weft.ir.text.printer import as_text
from weft.ir.traits import (
    COMMUTATIVE,
    CONTINUOUS,
    CONVOLUTION,
    COPIES_ELEMENTS,
    MATMUL,
    SENSITIVE,
    ZERO_GRADIENT,
    Commutativity,
    Family,
    Homogeneity,
    Linearity,
    MixedPrecision,
    NarrowFloatCompute,
    OpTraits,
    in_family,
    linear,
    multilinear,
)
from weft.ir.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    component_types,
    has_any,
    holds_float,
    is_static,
    rewrite_type,
)
from weft.ir.typing.infer import infer_expr, infer_type
from weft.ir.typing.relation import Relation, RelationContext
from weft.ir.typing.relations import (
    broadcast_dims,
    identity_relation,
    normalize_axes,
    normalize_axis,
)
from weft.ir.verify import verify_expr, verify_module
from weft.ir.virtual_device import ANYWHERE, VirtualDevice
from weft.ir.visitor import (
    Routine,
    binders,
    children,
    count_uses,
    free_vars,
    pattern_vars,
    post_order,
    rebuild,
    replace_children,
    rewrite_post_order,
    run_routine,
    substitute,
)
from weft.support.deprecation import renamed_attributes

install_printer(as_text)
builder.install_operators()

__all__ = [
    "ANY", "ANYWHERE", "COMMUTATIVE", "CONTINUOUS", "CONVOLUTION", "COPIES_ELEMENTS", "FACTS",
    "MATMUL", "NO_ATTRS", "OPS", "PASSES", "SENSITIVE", "ZERO_GRADIENT", "AnyDim", "Attrs",
    "BatchingRule", "Bounds", "Call", "Case", "Clause", "Commutativity", "Constant", "Constructor",
    "DType", "Dim", "DumpInstrument", "ExplainInstrument", "Expr", "Fact", "Family", "FuncType",
    "Function", "FunctionPass", "GlobalTypeVar", "GlobalVar", "GradientRule", "Homogeneity",
    "IRModule", "If", "IncompleteType", "KnownDim", "Let", "Linearity", "Match", "MixedPrecision",
    "NarrowFloatCompute", "NoAttrs", "NoMatch", "Op", "OpPattern", "OpTraits", "Pass",
    "PassContext", "Pattern", "PatternConstructor", "PatternTuple", "PatternVar", "PatternWildcard",
    "Prelude", "PrintInstrument", "RefCreate", "RefRead", "RefType", "RefWrite", "Relation",
    "RelationContext", "Routine", "Rule", "RuleSet", "ScopeBuilder", "Seeks", "Sequential", "Shape",
    "SizeRange", "Span", "SymDim", "TensorType", "TimingInstrument", "Tuple", "TupleGetItem",
    "TupleType", "Type", "TypeCall", "TypeData", "TypeVar", "Var", "VerifyInstrument",
    "VirtualDevice", "apply_rules", "as_dim", "as_shape", "as_text", "assert_structural_equal",
    "attr", "binders", "bool_", "bounds_of", "broadcast_dims", "children", "component_types",
    "const", "count_uses", "define_op", "dim_add", "dim_floordiv", "dim_max", "dim_min", "dim_mul",
    "dim_product", "dim_sub", "dims_equal", "float32", "float64", "free_vars", "get_op", "has_any",
    "has_symbols", "holds_float", "identity_relation", "import_prelude", "in_family", "infer_expr",
    "infer_type", "input_names", "int32", "int64", "is_static", "known_type", "linear",
    "may_be_at_least", "may_be_equal", "may_be_multiple", "multilinear", "name_of",
    "normalize_axes", "normalize_axis", "one_of", "op_case", "output_names", "parse", "parse_expr",
    "parse_pipeline", "parse_type", "pattern_vars", "post_order", "prelude", "range_of", "rebuild",
    "register_fact", "register_pass", "replace_children", "rewrite_post_order", "rewrite_type",
    "rule", "run_pass", "run_routine", "size_from", "size_of_dim", "sizes_from", "structural_equal",
    "structural_hash", "substitute", "substitute_dim", "symbol_text", "typical_size", "var",
    "verify_expr", "verify_module",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_attributes(__name__, {"case": "op_case"})
