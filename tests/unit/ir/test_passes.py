"""The pass manager, pipelines as text, and instruments."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import ClassVar

import pytest

from weft import op
from weft.ir import (
    PASSES,
    DumpInstrument,
    ExplainInstrument,
    Function,
    FunctionPass,
    IRModule,
    Pass,
    PassContext,
    PrintInstrument,
    Sequential,
    TimingInstrument,
    VerifyInstrument,
    const,
    infer_type,
    parse,
    parse_pipeline,
    register_pass,
    var,
)
from weft.ir.expr import Constant
from weft.ir.rewrite.driver import apply_rules
from weft.ir.rewrite.pattern import any_
from weft.ir.rewrite.rules import NoMatch, RuleSet, rule
from weft.support.errors import PassError, RegistryError, WellFormedError


@register_pass
@dataclass(frozen=True)
class AppendOp(FunctionPass):
    """Applies one more operator to the result."""

    name: ClassVar[str] = "test_append_op"
    opt_level: ClassVar[int] = 2
    operator: str = "exp"
    times: int = 1
    skip: tuple[str, ...] = ()
    limit: float | None = None
    quiet: bool = False
    only: tuple[str, ...] | None = ()
    label: str | None = ""

    def run(self, fn: Function, ctx: PassContext) -> Function:
        body = fn.body
        for _ in range(self.times):
            body = op.exp(body) if self.operator == "exp" else op.tanh(body)
        return fn.replace(body=body)


@dataclass(frozen=True)
class Broken(Pass):
    """Does whatever ``how`` says that a pass must not."""

    name: ClassVar[str] = "test_broken"
    how: str = "crash"

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if self.how == "crash":
            raise KeyError("oops")
        fn = mod["main"]
        if self.how == "types":
            return mod.with_function("main", fn.replace(body=op.add(fn.body, const(1))))
        return mod.with_function("main", fn.replace(body=op.exp(var("loose", (2,)))))


TEXT = "def @main(%x: Tensor[(2,), float32]) { %x }"


@pytest.fixture
def mod() -> IRModule:
    return infer_type(parse(TEXT))


def test_a_pass_run_alone_takes_and_gives_typed_modules():
    after = AppendOp()(parse(TEXT))
    assert after["main"].checked_type is not None
    assert after["main"].body.op is op.exp


def test_kernels_are_left_alone():
    kernel = parse(TEXT.replace("float32])", "float32], primitive=True)"))
    assert AppendOp()(infer_type(kernel))["main"].body is infer_type(kernel)["main"].params[0]


def test_a_pipeline_runs_what_the_level_allows(mod):
    pipeline = Sequential((AppendOp(), AppendOp(operator="tanh")))
    assert pipeline(mod, PassContext(opt_level=1)) is mod
    body = pipeline(mod, PassContext(opt_level=2))["main"].body
    assert (body.op, body.args[0].op) == (op.tanh, op.exp)


@pytest.mark.parametrize(
    "text",
    [
        "test_append_op",
        "test_append_op{operator=tanh}",
        "test_append_op{times=3,quiet=true},test_append_op",
        "test_append_op{skip=(nn.dropout nn.lrn),limit=0.5}",
    ],
)
def test_pipelines_print_as_they_are_written(text):
    assert str(parse_pipeline(text)) == text
    assert parse_pipeline(str(parse_pipeline(text))) == parse_pipeline(text)


def test_spellings_of_options():
    (made,) = parse_pipeline(" test_append_op { skip=nn.lrn , quiet, limit=none } ").passes
    assert made == AppendOp(skip=("nn.lrn",), quiet=True)


def test_none_is_not_read_as_a_name():
    (made,) = parse_pipeline("test_append_op{only=none,label=none}").passes
    assert made == AppendOp(only=None, label=None)
    (made,) = parse_pipeline("test_append_op{only=(none),label=some}").passes
    assert made == AppendOp(only=("none",), label="some")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("test_append", RegistryError, "did you mean 'test_append_op'"),
        ("test_append_op{size=3}", PassError, "unknown option 'size'"),
        ("test_append_op{times=many}", PassError, "wrong type"),
        ("test_append_op{times=3", PassError, "column 1"),
        ("test_append_op;", PassError, "syntax error"),
    ],
)
def test_bad_pipelines(text, error, message):
    with pytest.raises(error, match=message):
        parse_pipeline(text)


def test_passes_are_registered_by_name():
    assert PASSES.get("test_append_op") is AppendOp
    with pytest.raises(PassError, match="does not define a name"):

        @register_pass
        @dataclass(frozen=True)
        class Nameless(Pass):
            name: ClassVar[str] = ""


@pytest.mark.parametrize(
    ("how", "message"), [("crash", "KeyError: 'oops'"), ("types", "left an ill-typed program")]
)
def test_a_failing_pass_is_named(mod, how, message):
    with pytest.raises(PassError, match="test_broken") as caught:
        Broken(how)(mod)
    assert message in caught.value.render()


def test_the_verifier_names_the_pass(mod):
    context = PassContext(instruments=(VerifyInstrument(),))
    Sequential((AppendOp(),))(mod, context)
    with pytest.raises(WellFormedError, match="after the pass test_broken"):
        Sequential((Broken("scope"),))(mod, context)


def test_the_verifier_compares(mod):
    seen = []
    verify = VerifyInstrument(compare=lambda before, after: seen.append((before, after)))
    after = Sequential((AppendOp(), AppendOp(times=0)))(mod, PassContext(instruments=(verify,)))
    assert seen == [(mod, after)]


def test_printing_says_where_nothing_changed(mod):
    stream = io.StringIO()
    printer = PrintInstrument(before=("test_append_op",), stream=stream)
    passes = (AppendOp(times=0), AppendOp())
    Sequential(passes)(mod, PassContext(instruments=(printer,)))
    text = stream.getvalue()
    assert "// after test_append_op{times=0}: unchanged\n// before test_append_op\n" in text
    assert text.endswith("exp(%x)\n}\n\n")


def test_printing_can_be_asked_of_one_pass(mod):
    stream = io.StringIO()
    printer = PrintInstrument(after=("another",), stream=stream)
    Sequential((AppendOp(),))(mod, PassContext(instruments=(printer,)))
    assert stream.getvalue() == ""


def test_dumps_are_numbered_in_order(mod, tmp_path):
    dump = DumpInstrument(tmp_path / "ir")
    Sequential((AppendOp(), AppendOp(times=0)))(mod, PassContext(instruments=(dump,)))
    files = sorted(p.name for p in (tmp_path / "ir").iterdir())
    assert files == ["00-input.ir", "01-test_append_op.ir", "02-test_append_op.ir"]
    assert "exp(%x)" in (tmp_path / "ir" / files[1]).read_text()
    assert "unchanged" in (tmp_path / "ir" / files[2]).read_text()


def test_timing_counts_runs(mod):
    timing = TimingInstrument()
    Sequential((AppendOp(), AppendOp()))(mod, PassContext(instruments=(timing,)))
    assert timing.runs == {"test_append_op": 2}
    assert timing.table().splitlines()[1].endswith("2  test_append_op")


@rule(op.exp(any_("x")))
def exp_of_a_constant(x):
    """Shows nothing; refuses."""
    return x if isinstance(x, Constant) else NoMatch("the operand is no constant")


@rule(op.tanh(any_("x")))
def tanh_is_dropped(x):
    """Shows nothing."""
    return x


@register_pass
@dataclass(frozen=True)
class Rewrite(FunctionPass):
    """Applies two rules."""

    name: ClassVar[str] = "test_rewrite"

    def run(self, fn: Function, ctx: PassContext) -> Function:
        stats = ctx.config.get("rewrite_stats")
        return apply_rules(fn, RuleSet(exp_of_a_constant, tanh_is_dropped), stats=stats)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("tanh_is_dropped",), ["tanh_is_dropped: tried 1, applied 1"]),
        (
            ("all",),
            [
                "exp_of_a_constant: tried 2, applied 0, refused 2: the operand is no constant (2)",
                "tanh_is_dropped: tried 1, applied 1",
            ],
        ),
        (("nothing",), []),
    ],
)
def test_rules_are_explained(names, expected):
    out = io.StringIO()
    explain = ExplainInstrument(names, stream=out)
    config = {"rewrite_stats": explain.stats}
    mod = infer_type(parse("def @main(%x: float32) { exp(tanh(exp(%x))) }"))
    ctx = PassContext(instruments=(explain,), config=config)
    Sequential((Rewrite(),))(mod, ctx)
    assert out.getvalue().splitlines() == [f"// test_rewrite: {line}" for line in expected]
    Sequential((AppendOp(),))(mod, ctx)
    assert len(out.getvalue().splitlines()) == len(expected)
