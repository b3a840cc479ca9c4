"""Users' passes and rewrite rules in ``weft.compile``: positions, registration, caching, errors."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import weft
from weft import ir, op
from weft.compiler.cache import model_key
from weft.compiler.extensions import Extensions
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import phases_of, run_pipeline
from weft.frontend.source import open_source
from weft.ir.passes import INSERTED_PASSES, PASSES
from weft.ir.rewrite.pattern import any_
from weft.ir.rewrite.rules import REGISTERED_RULES, rule
from weft.ir.visitor import rewrite_post_order
from weft.support.errors import AttrsError, OptionError, PassError, RegistryError

pytestmark = pytest.mark.usefixtures("own_cache")

TEXT = "def @main(%x: Tensor[(4,), float32]) { tanh(exp(%x)) }"
X = np.linspace(-1, 1, 4, dtype=np.float32)


@dataclass(frozen=True)
class Swap(ir.FunctionPass):
    """Replaces one unary operator by another."""

    name: ClassVar[str] = "acme_swap"
    old: str = "tanh"
    new: str = "negative"

    def run(self, fn, ctx):
        def visit(node):
            if isinstance(node, ir.Call) and getattr(node.op, "name", "") == self.old:
                return ir.get_op(self.new)(*node.args)
            return node

        return rewrite_post_order(fn, visit)


@dataclass(frozen=True)
class Sees(ir.Pass):
    """Notes the operators of ``main``."""

    name: ClassVar[str] = "acme_sees"
    seen: ClassVar[list] = []

    def run_module(self, mod, ctx):
        self.seen.append(str(mod["main"].body))
        return mod


@rule(op.tanh(any_("x")))
def tanh_is_twice(x):
    """
    fn (%x: Tensor[(4,), float32]) { tanh(%x) }
    =>
    fn (%x: Tensor[(4,), float32]) { add(%x, %x) }
    """
    return op.add(x, x)


@pytest.fixture
def clean():
    """Removes what the test registers."""
    known = {registry: set(registry) for registry in (PASSES, INSERTED_PASSES, REGISTERED_RULES)}
    yield
    for registry, names in known.items():
        for name in set(registry) - names:
            registry.remove(name)


def compiled(**options):
    return weft.compile(weft.parse(TEXT), **options)


def names_of(phase, *insertions):
    options = CompileOptions.make(extensions=Extensions.make(insertions))
    (found,) = (p for p in phases_of(options) if p.name == phase)
    return [p.name for p in found.passes]


def test_a_pass_changes_what_is_computed():
    np.testing.assert_allclose(compiled(passes=[Swap()])(X), -np.exp(X), rtol=1e-6)


def test_a_pass_runs_at_the_end_of_the_optimized_phase():
    assert names_of("optimized", Swap())[-1] == "acme_swap"
    assert "acme_swap" not in names_of("canonical", Swap())


@pytest.mark.parametrize(("position", "neighbour", "offset"), [
    ({"after": "fuse_attention"}, "fuse_attention", 1),
    ({"before": "fuse_attention"}, "fuse_attention", -1),
    ({"after": "dead_code_elimination", "phase": "optimized"}, "dead_code_elimination", 1),
])
def test_positions(position, neighbour, offset):
    names = names_of("optimized", weft.pass_at(Swap(), **position))
    assert names[names.index("acme_swap") - offset] == neighbour


def test_after_means_the_last_and_before_the_first_of_several():
    names = names_of("optimized", weft.pass_at(Swap(), after="fold_constant"))
    assert names[names.index("acme_swap"):].count("fold_constant") == 0
    names = names_of("optimized", weft.pass_at(Swap(), before="fold_constant"))
    assert names[:names.index("acme_swap")].count("fold_constant") == 0


def test_a_phase_alone_means_its_end():
    assert names_of("lowered", weft.pass_at(Swap(), phase="lowered"))[-1] == "acme_swap"
    assert names_of("import", weft.pass_at(Swap(), phase="import")) == ["acme_swap"]


def test_passes_at_one_position_keep_their_order():
    names = names_of("lowered", weft.pass_at(Swap(), after="fuse_ops"),
                     weft.pass_at(Sees(), after="fuse_ops"))
    assert names[1:3] == ["acme_swap", "acme_sees"]


def test_a_position_may_name_another_users_pass():
    names = names_of("lowered", weft.pass_at(Swap(), after="fuse_ops"),
                     weft.pass_at(Sees(), before="acme_swap"))
    assert names[1:3] == ["acme_sees", "acme_swap"]


@pytest.mark.parametrize(("position", "what", "help_"), [
    ({"phase": "optimised"}, "unknown phase 'optimised'", "did you mean 'optimized'?"),
    ({"after": "fuse_op"}, "unknown pass 'fuse_op' in the pipeline", "'fuse_ops'"),
    ({"after": "fuse_ops", "phase": "canonical"}, "unknown pass 'fuse_ops' in the phase canonical",
     None),
    ({"after": "dead_code_elimination"}, "several phases contain the pass", "phase='canonical'"),
])
def test_unknown_positions(position, what, help_):
    with pytest.raises(OptionError, match=what) as found:
        compiled(passes=[weft.pass_at(Swap(), **position)])
    assert help_ is None or help_ in found.value.help


@pytest.mark.parametrize(("position", "what", "help_"), [
    ({"after": Swap}, "after is not a name", "write after='acme_swap'"),
    ({"before": 3}, "before is not a name", None),
    ({"phase": 1}, "phase is not a name", None),
])
def test_a_position_is_a_text(position, what, help_):
    with pytest.raises(OptionError, match=what) as found:
        weft.pass_at(Swap(), **position)
    assert found.value.help == help_


def test_after_and_before_exclude_each_other():
    with pytest.raises(OptionError, match="after and before exclude each other"):
        weft.pass_at(Swap(), after="fuse_ops", before="fuse_ops")


@pytest.mark.parametrize(("options", "what"), [
    ({"passes": [Swap]}, r"not a pass(.|\n)*write Swap\(\)"),
    ({"passes": [len]}, "not a pass"),
    ({"passes": "acme_swap"}, "passes is not a list"),
    ({"passes": Swap()}, "passes is not a list"),
    ({"rules": [Swap()]}, "not a rewrite rule"),
    ({"rules": tanh_is_twice}, "rules is not a list"),
])
def test_values_of_another_type_are_refused(options, what):
    with pytest.raises(OptionError, match=what):
        compiled(**options)


def test_a_pass_that_leaves_an_ill_typed_program_is_named():
    with pytest.raises(PassError, match="the pass acme_swap left an ill-typed program") as found:
        compiled(passes=[Swap(new="nn.global_max_pool2d")])
    assert "test_user_passes.py" in found.value.where


@pytest.mark.parametrize(("result", "what"), [
    (None, "the pass acme_bad returned NoneType"), (KeyError("gone"), "the pass acme_bad failed")])
def test_a_pass_that_fails_is_named(result, what):
    @dataclass(frozen=True)
    class Bad(ir.FunctionPass):
        name: ClassVar[str] = "acme_bad"

        def run(self, fn, ctx):
            if isinstance(result, Exception):
                raise result
            return result

    with pytest.raises(PassError, match=what) as found:
        compiled(passes=[Bad()])
    assert "test_user_passes.py" in found.value.where


def test_an_error_of_weft_in_a_pass_says_where():
    with pytest.raises(AttrsError, match="takes 2 arguments") as found:
        compiled(passes=[Swap(new="nn.dense")])
    assert "test_user_passes.py" in found.value.where
    assert "in the pass acme_swap" in found.value.notes


def test_a_pass_without_a_name_is_refused():
    @dataclass(frozen=True)
    class Nameless(ir.FunctionPass):
        pass

    with pytest.raises(PassError, match="Nameless does not define a name"):
        compiled(passes=[Nameless()])


def test_a_rule_joins_the_simplification():
    module = compiled(rules=[tanh_is_twice])
    np.testing.assert_allclose(module(X), 2 * np.exp(X), rtol=1e-6)
    assert "tanh" in compiled().as_text()


def test_rules_of_users_are_tried_before_weft_s_own():
    @rule(op.add(any_("x"), any_("y")), group="simplify")
    def sums_are_products(x, y):
        """
        fn (%x: Tensor[(4,), float32]) { add(%x, %x) }
        =>
        fn (%x: Tensor[(4,), float32]) { multiply(%x, %x) }
        """
        return op.multiply(x, y)

    mod = weft.parse("def @main(%x: Tensor[(4,), float32]) { add(%x, %x) }")
    np.testing.assert_allclose(weft.compile(mod, rules=[sums_are_products])(X), X * X)


def test_a_rule_of_an_unknown_group_is_refused():
    @rule(op.tanh(any_("x")), group="fusion")
    def tanh_is_gone(x):
        """Nothing."""
        return x

    with pytest.raises(OptionError, match="unknown group 'fusion' of the rule tanh_is_gone"):
        compiled(rules=[tanh_is_gone])
    with pytest.raises(OptionError, match="unknown group"):
        rule(op.tanh(any_("x")), group="fusion", register=True)(tanh_is_gone.function)


def test_a_rule_that_changes_a_type_is_named():
    @rule(op.tanh(any_("x")))
    def tanh_is_a_sum(x):
        """Nothing."""
        return op.sum(x)

    with pytest.raises(PassError, match=r"the rule tanh_is_a_sum .* changed the type"):
        compiled(rules=[tanh_is_a_sum])


def test_a_rule_that_fails_is_named():
    @rule(op.tanh(any_("x")))
    def tanh_fails(x):
        """Nothing."""
        raise KeyError(x)

    with pytest.raises(PassError, match=r"the rule tanh_fails .* failed"):
        compiled(rules=[tanh_fails])


def test_registered_passes_and_rules_take_part_in_every_compilation(clean):
    ir.register_pass(phase="optimized")(Swap)
    rule(tanh_is_twice.pattern, register=True)(tanh_is_twice.function)
    np.testing.assert_allclose(compiled()(X), 2 * np.exp(X), rtol=1e-6)
    REGISTERED_RULES.remove("tanh_is_twice")
    np.testing.assert_allclose(compiled()(X), -np.exp(X), rtol=1e-6)
    assert str(compiled().options.extensions) == "pass acme_swap (optimized)"


def test_registration_without_a_position_is_for_text_alone(clean):
    ir.register_pass(Swap)
    np.testing.assert_allclose(compiled()(X), np.tanh(np.exp(X)), rtol=1e-6)
    mod = ir.parse_pipeline("acme_swap{new=sqrt}")(weft.parse(TEXT))
    assert "sqrt" in str(mod)
    with pytest.raises(RegistryError, match="registered twice"):
        ir.register_pass(Swap)
    with pytest.raises(PassError, match="needs a position"):
        ir.register_pass()


@pytest.mark.parametrize(("name_in_use", "error"), [
    ("fold_constant", RegistryError), ("", PassError)])
def test_a_pass_that_is_refused_is_not_inserted(clean, name_in_use, error):
    @dataclass(frozen=True)
    class Refused(ir.FunctionPass):
        if name_in_use:
            name: ClassVar[str] = name_in_use

    with pytest.raises(error):
        ir.register_pass(phase="optimized")(Refused)
    assert name_in_use not in INSERTED_PASSES
    assert not compiled().options.extensions


def test_options_show_passes_and_rules_in_order():
    options = compiled(passes=[weft.pass_at(Swap(new="sqrt"), before="fold_scale_axis")],
                       rules=[tanh_is_twice]).options
    assert str(options.extensions).splitlines()[0] == (
        "pass acme_swap{new=sqrt} (before fold_scale_axis)")
    assert str(options.extensions).splitlines()[1].startswith(
        "rule tanh_is_twice (test_user_passes.py:")


def is_kept(model, options):
    """Whether the cache keeps the compiled model."""
    return not isinstance(model_key(open_source(model, None, options), options), str)


def test_a_model_with_users_passes_is_not_kept_whole(monkeypatch):
    options = CompileOptions.make(extensions=Extensions.make([Swap()]))
    assert is_kept(weft.parse(TEXT), CompileOptions.make())
    assert not is_kept(weft.parse(TEXT), options)
    first = compiled(passes=[Swap()])(X)
    monkeypatch.setattr(Swap, "run", lambda self, fn, ctx: fn)  # edited
    assert not np.allclose(first, compiled(passes=[Swap()])(X))


def test_dynamic_models_use_them_for_every_shape():
    mod = weft.parse("def @main(%x: Tensor[(n,), float32]) { tanh(%x) }")
    module = weft.compile(mod, passes=[Swap()])
    for size in (3, 5):
        np.testing.assert_allclose(module(X[:1].repeat(size)), -X[:1].repeat(size))


def test_stages_show_the_result_of_users_passes():
    module = compiled(passes=[Swap()])
    assert "negative" in module.as_text("optimized")
    assert "tanh" in module.as_text("canonical")


def test_a_pickled_model_leaves_its_passes_behind():
    @dataclass(frozen=True)
    class Local(Swap):
        name: ClassVar[str] = "acme_local"

    module = compiled(passes=[Local()])
    back = pickle.loads(pickle.dumps(module))
    np.testing.assert_array_equal(back(X), module(X))
    assert not back.options.extensions


def test_a_pass_that_changes_results_is_caught_and_named():
    with pytest.raises(PassError, match="the pass acme_swap changed what the program") as found:
        compiled(passes=[Swap()], verify=3)
    assert "test_user_passes.py" in found.value.where


def test_instruments_know_them(capsys):
    with weft.config(print_after="acme_swap"):
        compiled(passes=[Swap()])
    assert "// after acme_swap" in capsys.readouterr().err


def test_the_pass_sees_the_program_at_its_position():
    Sees.seen.clear()
    run_pipeline(weft.parse(TEXT), CompileOptions.make(extensions=Extensions.make(
        [weft.pass_at(Sees(), phase="import"), weft.pass_at(Sees(), after="fuse_ops")])))
    assert "primitive" not in Sees.seen[0]
    assert "primitive=True" in Sees.seen[1]
