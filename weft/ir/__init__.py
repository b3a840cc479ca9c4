"""The typed functional IR.

In this folder stand the data structures: ``expr`` (nodes), ``types``, ``shape`` (dimensions),
``dtype``, ``attrs`` (attribute records), ``op`` and ``traits`` (operator records), ``module``,
``span`` (source locations), ``prelude``; what walks them: ``visitor``, ``analysis``, ``structural``
(equality and hashes), ``encode``, ``verify``, ``blocks``, ``drawing``, ``dynamic`` (data-dependent
shapes), ``trampoline``; and ``passes``, ``pass_pipeline`` and ``instruments``.

Sub-packages: ``typing`` infers types, ``text`` parses and prints, ``json`` reads and writes files,
``python`` builds programs from Python, ``rewrite`` holds patterns and the rule driver.
"""

from typing import TYPE_CHECKING

from weft.ir.attrs import NO_ATTRS, Attrs, NoAttrs, attr, one_of
from weft.ir.dtype import DType
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
from weft.ir.facts import FACTS, Fact, register_fact
from weft.ir.instruments import (
    DumpInstrument,
    ExplainInstrument,
    PrintInstrument,
    TimingInstrument,
    VerifyInstrument,
)
from weft.ir.module import IRModule
from weft.ir.op import OPS, Case, Op, OpPattern, define_op, get_op, op_case
from weft.ir.pass_pipeline import parse_pipeline
from weft.ir.passes import (
    PASSES,
    FunctionPass,
    Pass,
    PassContext,
    Sequential,
    register_pass,
    run_pass,
)
from weft.ir.prelude import Prelude, import_prelude, prelude
from weft.ir.python import builder
from weft.ir.python.builder import ScopeBuilder
from weft.ir.rewrite.driver import apply_rules
from weft.ir.rewrite.rules import NoMatch, Rule, RuleSet, rule
from weft.ir.shape import ANY, Dim, SymDim
from weft.ir.span import Span
from weft.ir.structural import assert_structural_equal, structural_equal, structural_hash
from weft.ir.text.parser import parse, parse_expr, parse_type
from weft.ir.text.printer import as_text
from weft.ir.traits import (
    Commutativity,
    Homogeneity,
    MixedPrecision,
    NarrowFloatCompute,
    OpTraits,
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
)
from weft.ir.typing.infer import infer_expr, infer_type
from weft.ir.verify import verify_expr, verify_module
from weft.support.deprecation import renamed_attributes

install_printer(as_text)
builder.install_operators()

__all__ = [
    "ANY",
    "FACTS",
    "NO_ATTRS",
    "OPS",
    "PASSES",
    "Attrs",
    "Call",
    "Case",
    "Clause",
    "Commutativity",
    "Constant",
    "Constructor",
    "DType",
    "Dim",
    "DumpInstrument",
    "ExplainInstrument",
    "Expr",
    "Fact",
    "FuncType",
    "Function",
    "FunctionPass",
    "GlobalTypeVar",
    "GlobalVar",
    "Homogeneity",
    "IRModule",
    "If",
    "IncompleteType",
    "Let",
    "Match",
    "MixedPrecision",
    "NarrowFloatCompute",
    "NoAttrs",
    "NoMatch",
    "Op",
    "OpPattern",
    "OpTraits",
    "Pass",
    "PassContext",
    "Pattern",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "Prelude",
    "PrintInstrument",
    "RefCreate",
    "RefRead",
    "RefType",
    "RefWrite",
    "Rule",
    "RuleSet",
    "ScopeBuilder",
    "Sequential",
    "Span",
    "SymDim",
    "TensorType",
    "TimingInstrument",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "TypeCall",
    "TypeData",
    "TypeVar",
    "Var",
    "VerifyInstrument",
    "apply_rules",
    "as_text",
    "assert_structural_equal",
    "attr",
    "const",
    "define_op",
    "get_op",
    "import_prelude",
    "infer_expr",
    "infer_type",
    "one_of",
    "op_case",
    "parse",
    "parse_expr",
    "parse_pipeline",
    "parse_type",
    "prelude",
    "register_fact",
    "register_pass",
    "rule",
    "run_pass",
    "structural_equal",
    "structural_hash",
    "var",
    "verify_expr",
    "verify_module",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_attributes(__name__, {"case": "op_case"})
