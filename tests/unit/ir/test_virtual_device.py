"""Virtual devices: their texts, how they merge, and the operators that carry them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import op
from weft.ir import infer_type, var
from weft.ir.virtual_device import ANYWHERE, VirtualDevice
from weft.runtime.device import Device
from weft.support.errors import AttrsError, TargetError

parts = st.builds(
    VirtualDevice,
    kind=st.none() | st.sampled_from(["cpu", "cuda", "sim"]),
    index=st.none() | st.integers(0, 9),
    memory_scope=st.none() | st.sampled_from(["global", "shared"]))


@given(parts)
def test_texts_round_trip(device: VirtualDevice) -> None:
    assert VirtualDevice.parse(str(device)) == device


@pytest.mark.parametrize(("text", "device"), [
    ("", ANYWHERE),
    ("cuda", VirtualDevice("cuda")),
    ("sim:*", VirtualDevice("sim")),
    ("cpu:0/global", VirtualDevice("cpu", 0, "global")),
    ("/gpu:1", VirtualDevice("cuda", 1)),
    ("/CPU:*", VirtualDevice("cpu")),
    ("/device:GPU:2", VirtualDevice("cuda", 2)),
    ("/job:localhost/replica:0/task:0/device:SIM:3", VirtualDevice("sim", 3)),
    ("/job:localhost/task:*/cpu:0", VirtualDevice("cpu", 0)),
    ("/job:localhost", ANYWHERE),
])
def test_forms(text: str, device: VirtualDevice) -> None:
    assert VirtualDevice.parse(text) == device


@pytest.mark.parametrize("text", [
    "sim:x", "1:sim", "sim:1:2", "sim:-1", "/job:worker/gpu:0", "/task:1/cpu:0", "/gpu:1/gpu:2",
    "/device:GPU:x", "/device:8:0", "/gpu:0/", "a b"])
def test_texts_that_are_refused(text: str) -> None:
    with pytest.raises(TargetError):
        VirtualDevice.parse(text)


@given(parts, parts, parts)
def test_merging_is_what_all_say(a: VirtualDevice, b: VirtualDevice, c: VirtualDevice) -> None:
    assert a.merged(a) == a.merged(ANYWHERE) == a
    assert _merged(a, b) == _merged(b, a)
    ab, bc = _merged(a, b), _merged(b, c)
    left = None if ab is None else _merged(ab, c)
    right = None if bc is None else _merged(a, bc)
    assert left == right
    if ab is not None:
        for device in (Device("cpu"), Device("sim", 3), Device("cuda", 1)):
            assert ab.matches(device) == (a.matches(device) and b.matches(device))


def _merged(a: VirtualDevice, b: VirtualDevice) -> VirtualDevice | None:
    try:
        return a.merged(b)
    except TargetError:
        return None


def test_a_device_meets_its_own_specification() -> None:
    device = Device("sim", 2)
    assert VirtualDevice.of(device).matches(device)
    assert not VirtualDevice.of(device).matches(Device("sim", 1))


def test_annotations_are_checked_and_printed() -> None:
    with pytest.raises(AttrsError, match="device"):
        op.annotation.on_device(var("x", (2,)), device="sim:x")
    mod = weft.parse('def @main(%x: Tensor[(2), float32]) {'
                     ' device_copy(annotation.on_device(%x, device="sim:1", colocate="g"),'
                     ' destination="cpu:0") }')
    again = weft.parse(str(mod))
    assert str(again) == str(mod)
    assert 'device="sim:1"' in str(mod)


def test_the_gradient_of_an_annotation_goes_the_other_way() -> None:
    mod = weft.parse('def @main(%x: Tensor[(2), float32]) {'
                     ' sum(device_copy(annotation.on_device(tanh(%x), device="sim:1"),'
                     ' source="sim:1", destination="cpu:0")) }')
    text = str(weft.grad(mod))
    assert "constrain_body=False, constrain_result=True" in text
    assert 'source="cpu:0", destination="sim:1"' in text
    x = np.array([0.5, -1], np.float32)
    gradient = weft.compile(infer_type(weft.grad(mod)))(x)
    np.testing.assert_allclose(gradient[0] if isinstance(gradient, tuple) else gradient,
                               1 - np.tanh(x) ** 2, rtol=1e-5)
