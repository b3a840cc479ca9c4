"""Placement by constraint: regions, borders, copies, and the errors of contradictions."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import op
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Op,
    Tuple,
    TupleGetItem,
    Var,
    as_text,
    infer_type,
    var,
)
from weft.ir.virtual_device import ANYWHERE, VirtualDevice
from weft.ir.visitor import post_order
from weft.support.errors import TargetError
from weft.transform import PlanDevices, check_same_values
from weft.transform.placement.virtual_devices import virtual_devices


def planned(text: str, **options: object) -> str:
    mod = PlanDevices(**options)(infer_type(weft.parse(text)))  # type: ignore[arg-type]
    return str(mod).split("\n", 1)[1]


def expected(text: str) -> str:
    return str(weft.parse(text)).split("\n", 1)[1]


X = "%x: Tensor[(4), float32]"


def test_a_region_reaches_back_to_inputs_and_other_annotations() -> None:
    assert planned(f"""def @main({X}) {{
        let %a = annotation.on_device(tanh(nn.relu(%x)), device="sim:1");
        let %b = annotation.on_device(multiply(exp(%a), %x), device="sim:2");
        negative(%b) }}""") == expected(f"""def @main({X}) {{
        let %a = tanh(nn.relu(device_copy(%x, destination="sim:1")));
        %0 = device_copy(%a, source="sim:1", destination="sim:2");
        let %b = multiply(exp(%0), device_copy(%x, destination="sim:2"));
        negative(device_copy(%b, source="sim:2")) }}""")


def test_regions_on_one_device_are_one() -> None:
    assert "device_copy(%0" not in planned(f"""def @main({X}) {{
        let %a = annotation.on_device(nn.relu(%x), device="sim:1");
        annotation.on_device(tanh(%a), device="sim:1") }}""")


def test_a_tensor_is_copied_once_for_each_destination() -> None:
    text = planned(f"""def @main({X}) {{
        let %a = annotation.on_device(nn.relu(%x), device="sim:1");
        let %b = annotation.on_device(add(tanh(%a), exp(%a)), device="sim:2");
        let %c = annotation.on_device(add(tanh(%a), exp(%x)), device="sim:3");
        let %d = annotation.on_device(add(abs(%a), exp(%x)), device="sim:3");
        (%b, %c, %d) }}""")
    assert text.count("device_copy(%0") == 0
    assert text.count('source="sim:1"') == 2
    assert text.count("device_copy(%x") == 2


def test_constants_and_results_are_where_they_are_needed() -> None:
    text = planned(f"""def @main({X}) {{
        let %one = annotation.on_device(1f, device="sim:3");
        let %a = annotation.on_device(add(%x, %one), device="sim:1");
        let %b = annotation.on_device(add(nn.relu(%x), 1f), device="sim:2", constrain_result=True);
        (%a, (%b, %one)) }}""")
    assert "sim:3" not in text
    assert 'source="sim:2"' not in text


def test_conditions_are_read_by_the_host() -> None:
    text = planned(f"""def @main({X}) {{
        let %a = annotation.on_device(less(sum(%x), 1f), device="sim:1", constrain_result=True);
        if (%a) {{ exp(%x) }} else {{ tanh(%x) }} }}""")
    assert text.count('destination="cpu:0"') == 1
    free = f"def @main({X}) {{ if (less(sum(%x), 1f)) {{ exp(%x) }} else {{ tanh(%x) }} }}"
    assert planned(free) == expected(free)


def test_functions_pass_devices_through_parameters_and_results() -> None:
    mod = infer_type(weft.parse(f"""
        def @double(%y: Tensor[(4), float32]) {{ add(%y, %y) }}
        def @main({X}) {{
          let %f = fn (%z: Tensor[(4), float32]) {{ negative(%z) }};
          annotation.on_device(%f(@double(nn.relu(%x))), device="sim:1") }}"""))
    devices = virtual_devices(mod)
    for node, device in devices.items():
        if isinstance(node, Call) and isinstance(node.op, Op) and "on_device" not in node.op.name:
            assert device == VirtualDevice("sim", 1), node.op.name


def test_partial_specifications_merge_and_take_the_first_device() -> None:
    text = f"""def @main({X}) {{
        let %a = annotation.on_device(nn.relu(%x), device="sim", constrain_result=True);
        annotation.on_device(tanh(%a), device=":2/global") }}"""
    assert 'destination="sim:2/global"' in planned(text)
    assert 'destination="sim:1"' in planned(
        f'def @main({X}) {{ annotation.on_device(tanh(%x), device="sim") }}',
        devices=("cpu:0", "sim:1", "sim:2"))


def test_groups_share_a_device() -> None:
    text = f"""def @main({X}) {{
        let %a = annotation.on_device(nn.relu(%x), colocate="g");
        let %b = annotation.on_device(tanh(%a), device="sim:2");
        let %c = annotation.on_device(exp(%b), colocate="g", device="WHERE");
        negative(%c) }}"""
    assert planned(text.replace("WHERE", "sim:1")).count('destination="sim:1"') == 2
    assert planned(text.replace("WHERE", "")).count('source="sim:2"') == 1
    on_default = planned(text.replace("WHERE", ""), devices=("cpu:0", "sim:2"))
    assert on_default.count('destination="cpu:0"') == 2


def on(value: str, device: str, more: str = "") -> str:
    return f'annotation.on_device({value}, device="{device}"{more})'


BOTH, GROUP = ", constrain_result=True", ', colocate="g"'
TWO = "one region of the program is on two devices"
SIMS = {"devices": ("sim:0", "sim:1")}


@pytest.mark.parametrize(("body", "options", "what"), [
    (on(on("exp(%x)", "sim:1", BOTH), "sim:2"), {}, TWO),
    (f"add({on('exp(%x)', 'sim:1', BOTH)}, {on('exp(%x)', 'sim:2', BOTH)})", {}, TWO),
    (f"add({on('exp(%x)', 'sim:1', GROUP)}, {on('exp(%x)', 'sim:2', GROUP)})", {},
     "cannot colocate"),
    (on("exp(%x)", "sim:7"), SIMS, "could not satisfy explicit device specification 'sim:7'"),
    (on("exp(%x)", "cuda"), SIMS, "could not satisfy explicit device specification 'cuda'"),
])
def test_contradictions_name_the_annotations(body: str, options: dict, what: str) -> None:
    with pytest.raises(TargetError) as error:
        planned(f"def @main({X}) {{ {body} }}", **options)
    assert what in error.value.what
    for device in ("sim:1", "sim:2") if "sim:1" in body else ("on_device",):
        assert device in str(error.value)
    assert "<text>:1" in str(error.value)


def test_soft_placement_takes_the_default_device() -> None:
    text = f'def @main({X}) {{ tanh(annotation.on_device(exp(%x), device="cuda:3")) }}'
    assert 'source="sim:0"' in planned(text, devices=("sim:0", "sim:1"), soft=True)


def test_names_of_devices_to_run_on_are_whole() -> None:
    with pytest.raises(TargetError, match="needs a kind and a number"):
        planned(f'def @main({X}) {{ annotation.on_device(exp(%x), device="sim") }}',
                devices=("sim",))


def test_long_chains() -> None:
    x = var("x", (2,))
    value: Expr = x
    for number in range(5_000):
        value = op.negative(value)
        if number % 100 == 0:
            value = op.annotation.on_device(value, device=f"sim:{number // 100 % 3}")
    result = PlanDevices()(infer_type(IRModule.from_expr(Function((x,), value))))
    copies = sum(isinstance(node, Call) and node.op is op.device_copy
                 for node in post_order(result["main"]))
    assert copies == 51


def random_program(seed: int) -> IRModule:
    """Calls of operators with annotations of random devices between them."""
    chance = random.Random(seed)
    params = [var("x", (3,)), var("y", (3,))]
    values: list[Expr] = list(params)
    for _ in range(chance.randrange(1, 14)):
        args = [chance.choice(values) for _ in range(2)]
        kind = chance.randrange(6)
        if kind == 0:
            made = op.add(*args)
        elif kind == 1:
            made = op.multiply(args[0], np.full(3, 0.5, np.float32))
        elif kind == 2:
            made = TupleGetItem(Tuple((op.tanh(args[0]), args[1])), chance.randrange(2))
        elif kind == 3:
            made = op.maximum(args[0], op.zeros(shape=(3,), dtype="float32"))
        else:
            made = op.annotation.on_device(
                args[0], device=chance.choice(["sim:0", "sim:1", "sim", "", "cpu:0"]),
                constrain_body=chance.random() < 0.7, constrain_result=chance.random() < 0.3)
        values.append(made)
    results = tuple(chance.sample(values, min(3, len(values))))
    return infer_type(IRModule.from_expr(Function(tuple(params), Tuple(results))))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**9))
def test_random_programs_are_consistent_after_planning(seed: int) -> None:
    mod = random_program(seed)
    try:
        result = PlanDevices()(mod)
    except TargetError as error:
        assert "two devices" in str(error)  # noqa: PT017 - random annotations may contradict
        return
    check_same_values(mod, result)
    assert str(PlanDevices()(result)) == str(result)
    devices = virtual_devices(result)
    for node, device in devices.items():
        if not isinstance(node, Call) or not isinstance(node.op, Op):
            continue
        assert node.op is not op.annotation.on_device
        if node.op is op.device_copy:
            assert str(device) == node.attrs.destination  # type: ignore[attr-defined]
            assert node.attrs.destination != node.attrs.source  # type: ignore[attr-defined]
            continue
        for arg in node.args:
            if not isinstance(arg, (Constant, Tuple)) and not (isinstance(arg, Var)
                                                               and device == ANYWHERE):
                assert devices[arg] == device, (str(node), str(device), str(devices[arg]))


def test_devices_are_printed_on_request() -> None:
    mod = PlanDevices()(infer_type(weft.parse(
        f'def @main({X}) {{ tanh(annotation.on_device(exp(%x), device="sim:1")) }}')))
    text = as_text(mod, devices=weft.virtual_devices(mod))
    assert "exp(%0); /* on sim:1 */" in text
    assert "tanh(%2) /* on" not in text
    assert str(weft.parse(text)) == str(mod)
    compiled = weft.compile(weft.parse(f"def @main({X}) {{ tanh(nn.relu(%x)) }}"),
                            devices=["sim:0", "sim:1"], placement={"nn.relu": "sim:1"})
    assert "/* on sim:1 */" in compiled.as_text("devices")
