"""The hooks of an operator are there in a process that has imported nothing but the operator.

Each module of operators is imported alone, in a process forked from one that has the layers below,
and what its records hold is compared with the whole catalogue.
"""

import json
import subprocess
import sys

import pytest

from weft.ir import ANY, TensorType, infer_expr, var
from weft.ir import op as op_module
from weft.ir.op import OPS
from weft.ir.typing.relations import same_type_as
from weft.op.index import OPERATORS
from weft.support.errors import RegistryError, TypeInferenceError

_CODE = """
import importlib, json, os, sys
import weft.te
from weft.ir.op import OPS
import weft.op
from weft.op.index import OPERATORS

def show(names):
    for name in names:
        record = OPS.get(name)
        hooks = {t: record.hook(t) for t in record.hooks}
        places = {t: f"{h.__module__}:{h.__qualname__}" if hasattr(h, "__qualname__")
                  else type(h).__name__ for t, h in sorted(hooks.items())}
        print(json.dumps([name, places]), flush=True)

def forked(work):
    child = os.fork()
    if not child:
        work()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def everything(modules):
    for module in OPERATORS:
        importlib.import_module(module)
    show(n for m in modules for n in OPERATORS[m].split())

assert not OPS.loaded()
for module in sys.argv[1:]:
    forked(lambda: show(OPERATORS[module].split()))
forked(lambda: everything(sys.argv[1:]))
"""


def hooks_of(modules):
    """By operator: its hooks after its module alone was imported, and after all were."""
    done = subprocess.run([sys.executable, "-c", _CODE, *modules], capture_output=True, text=True,
                          check=False)
    assert not done.returncode, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    half = len(rows) // 2
    return dict(rows[:half]), dict(rows[half:])


def test_an_operator_alone_has_all_its_hooks():
    alone, together = hooks_of(sorted(OPERATORS))
    assert len(alone) > 300
    assert alone == together
    assert alone["nn.attention"]["gradient"].endswith(":attention_gradient")


def test_a_hook_at_a_distance_is_refused():
    """A process that loads the operator would not have it."""
    record = OPS.get("nn.attention")
    with pytest.raises(RegistryError) as caught:
        exec("record.bounds(print)", {"__name__": "weft.op.elsewhere", "record": record})
    assert caught.value.expected == "weft.op.nn.attention"
    assert caught.value.got == "weft.op.elsewhere"
    assert "refer(bounds=" in caught.value.help
    assert record.hook("bounds") is None


def test_users_add_hooks_to_operators_of_their_own_and_of_weft():
    own = op_module.define_op("test.hooked", relation=same_type_as(0))(_compute)
    builtin = OPS.get("nn.attention")
    try:
        own.refer(gradient=f"{__name__}:_gradient")
        assert own.gradient_rule is _gradient
        with pytest.raises(RegistryError, match="registered twice"):
            own.gradient(_gradient)
        builtin.bounds(_gradient)
        assert builtin.hook("bounds") is _gradient
    finally:
        OPS.remove("test.hooked")
        builtin.hooks.pop("bounds", None)
        builtin.origins.pop("bounds", None)


def _compute(x, attrs):
    """The argument."""
    return x


def _gradient(call, y, dy):
    return [dy]


def test_the_relation_runs_once_for_equal_calls_of_known_sizes():
    ran = []

    def relation(ctx):
        ran.append(ctx.args)
        return same_type_as(0)(ctx)

    own = op_module.define_op("test.counted", relation=relation)(_compute)
    try:
        for shape, runs in (((2, 3), 1), ((2, 3), 1), ((4,), 2), ((ANY, 3), 3), ((ANY, 3), 4)):
            x = var("x", shape)
            assert infer_expr(own(x)).checked_type == x.checked_type
            assert len(ran) == runs, shape
    finally:
        OPS.remove("test.counted")


def test_a_relation_that_gives_a_negative_size_is_an_error_of_the_call():
    def shorter(ctx):
        x = ctx.tensor(0)
        ctx.output(TensorType((x.shape[0] - 4,), x.dtype))
        return True

    own = op_module.define_op("test.shorter", relation=shorter)(_compute)
    try:
        assert infer_expr(own(var("x", (4,)))).checked_type == TensorType.of((0,))
        with pytest.raises(TypeInferenceError, match="negative size") as caught:
            infer_expr(own(var("x", (3,))))
        assert str(caught.value.got) == "Tensor[(-1,), float32]"
    finally:
        OPS.remove("test.shorter")


def test_cases_of_a_function_are_made_when_they_are_asked_for():
    made = []

    def cases():
        made.append("made")
        return [op_module.op_case((2,)), op_module.op_case((3,))]

    own = op_module.define_op("test.cases", relation=same_type_as(0))(_compute)
    try:
        own.spec(lambda x: x, op_module.op_case((1,)), cases)
        assert own.reference is not None
        assert made == []
        assert [one.inputs for one in own.cases] == [((1,),), ((2,),), ((3,),)]
        assert own.cases is own.cases
        assert made == ["made"]
    finally:
        OPS.remove("test.cases")
