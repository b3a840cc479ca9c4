"""What TensorFlow's ``simple_placer_test`` checks, case by case.

Its operators run on CPUs, GPUs or both, and so do those here (``Op.runs_on``); its devices are
``cpu:0`` to ``cpu:9`` and ``gpu:0`` to ``gpu:9``, here ``sim`` instead of ``gpu``. A reference
connection, which ties an assignment to its variable, is a colocation group: values of weft are not
written. Unlike TensorFlow's inputs, those of ``main`` are on no device, so ``TestInput`` is a
generator that runs on CPUs alone.

Cases without a place: ``TestAssignedDevicePreserved``, ``TestAssignedGpuDeviceToCpuDevice``,
``TestUnknownAssignedDevice``, ``TestMalformedAssignedDevice`` and ``TestNonUniqueAssignedDevice``,
as expressions have no assigned device beside the one that they ask for (what a program that was
placed has are copies, whose devices ``test_placed_programs_keep_their_devices`` covers); and
``TestUnknownColocatedNode`` and ``TestMalformedColocatedNode``, as groups have names and are not
nodes (``weft.graph`` checks the nodes that ``colocate_with`` takes).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft import op, te
from weft.ir import OPS, Call, Expr, Function, IRModule, Op, Tuple, define_op, infer_type, var
from weft.ir.typing.relations import identity_relation
from weft.op.batching import leading
from weft.support.errors import TargetError
from weft.transform import PlanDevices
from weft.transform.placement.virtual_devices import virtual_devices

DEVICES = tuple(f"sim:{n}" for n in range(10)) + tuple(f"cpu:{n}" for n in range(10))
NO_DEVICE = "no device of the program runs"
EXPLICIT = "could not satisfy explicit device specification"


@pytest.fixture(scope="module", autouse=True)
def _operators() -> Iterator[None]:
    made = []
    for name, kinds in (("both", ("cpu", "sim")), ("cpu", ("cpu",)), ("gpu", ("sim",)),
                        ("none", ())):
        def compute(x: te.Tensor, _attrs: object) -> te.Tensor:
            """``x``."""
            return te.compute(x.shape, lambda *i: x[i])

        made.append(define_op(f"test.{name}", relation=identity_relation, inputs=("x",))(compute))
        made[-1].batching(leading)
        made[-1].runs_on(*kinds)
    yield
    for one in made:
        OPS.remove(one.name)


def node(kind: str, value: Expr | None = None, device: str = "", group: str = "") -> Call:
    """A node of TensorFlow: an operator alone on a device or in a group."""
    zeros = op.zeros(shape=(2,), dtype="float32") if value is None else None
    call = OPS.get(f"test.{kind}")(op.annotation.on_device(value) if zeros is None else zeros)
    return op.annotation.on_device(call, device=device, colocate=group)


def place(*results: Expr, devices: tuple[str, ...] = DEVICES, soft: bool = False
          ) -> list[tuple[str, str]]:
    """The operators of ``test`` in order, with their devices after planning."""
    mod = infer_type(IRModule.from_expr(Function((), Tuple(results))))
    planned = PlanDevices(devices=devices, soft=soft)(mod)
    return [(call.op.name.removeprefix("test."), str(device) or devices[0])
            for call, device in virtual_devices(planned).items()
            if isinstance(call, Call) and isinstance(call.op, Op)
            and call.op.name.startswith("test.")]


def test_no_constraints() -> None:
    source = node("cpu")
    assert place(node("both", source), node("both", source)) == [
        ("cpu", "cpu:0"), ("both", "sim:0"), ("both", "sim:0")]


def test_device_type_constraints() -> None:
    source = node("cpu")
    assert place(node("cpu", source, group="a"), node("both", source, group="a"),
                 node("gpu", source, group="b"), node("both", source, group="b")) == [
        ("cpu", "cpu:0"), ("cpu", "cpu:0"), ("both", "cpu:0"), ("gpu", "sim:0"),
        ("both", "sim:0")]


def test_partial_spec() -> None:
    assert place(node("cpu", device="/job:localhost"),
                 node("both", device="/job:localhost")) == [("cpu", "cpu:0"), ("both", "sim:0")]
    assert place(node("both", device="cpu"), node("cpu", device=":3")) == [
        ("both", "cpu:0"), ("cpu", "cpu:3")]


def test_partial_spec_gpu_to_cpu() -> None:
    assert place(node("cpu", device="sim:0"), node("both", device="sim:0"), soft=True) == [
        ("cpu", "cpu:0"), ("both", "sim:0")]


@pytest.mark.parametrize(("variable", "assign", "device"), [
    ("both", "both", "sim:0"), ("both", "cpu", "cpu:0"), ("both", "gpu", "sim:0"),
    ("cpu", "both", "cpu:0"), ("cpu", "cpu", "cpu:0"), ("cpu", "gpu", None),
    ("gpu", "both", "sim:0"), ("gpu", "cpu", None), ("gpu", "gpu", "sim:0")])
def test_reference_connection(variable: str, assign: str, device: str | None) -> None:
    source = node("cpu")
    pairs = [one for n in range(10) for one in (node(variable, source, group=f"g{n}"),
                                                node(assign, source, group=f"g{n}"))]
    if device is None:
        with pytest.raises(TargetError, match="no kind of device runs both"):
            place(*pairs)
        return
    assert [found for _, found in place(*pairs)][1:] == [device] * 20


def test_colocated_chain() -> None:
    last = node("cpu")
    for number in range(100):
        chain = number // 10
        last = node("both", last, group=f"chain{chain}",
                    device=f"sim:{chain}" if number % 10 == 4 else "")
    assert [device for _, device in place(last)][1:] == [f"sim:{n // 10}" for n in range(100)]


def test_colocated_chain_with_long_range_colocations() -> None:
    last = node("cpu")
    for number in range(100):
        last = node("both", last, group=f"chain{number % 10}",
                    device=f"sim:{number % 10}" if number >= 90 else "")
    assert [device for _, device in place(last)][1:] == [f"sim:{n % 10}" for n in range(100)]


def test_colocation_and_reference_connections() -> None:
    """Groups of groups: a node in two groups joins them."""
    source = node("cpu")
    results = []
    for number in range(30):
        value = node("both", source).args[0]
        results += [op.annotation.on_device(value, colocate=f"a{number % 6}"),
                    op.annotation.on_device(value, colocate=f"b{number % 3}")]
    results.append(node("both", source, group="a5", device="sim:7"))
    found = [device for _, device in place(*results)][1:]
    joined = [n for n in range(30) if n % 3 == 2]  # a5 with a2 by b2
    assert all(found[n] == "sim:7" for n in joined)
    assert {found[n] for n in range(30) if n not in joined} == {"sim:0"}


def test_empty_device_set() -> None:
    with pytest.raises(TargetError, match=NO_DEVICE):
        place(node("none"), devices=())
    with pytest.raises(TargetError, match=NO_DEVICE):
        place(node("none"))


def test_heterogeneous_device_set_failure() -> None:
    with pytest.raises(TargetError, match="cannot colocate") as error:
        place(node("gpu", group="g"), node("both", group="g", device="cpu:1"),
              devices=("sim:0", "cpu:1"))
    assert "test.gpu" in str(error.value)


@pytest.mark.parametrize("device", ["tpu", "cpu:77", "tpu:0"])
def test_unknown_device(device: str) -> None:
    with pytest.raises(TargetError, match=f"{EXPLICIT} '{device}'"):
        place(node("cpu", device="") if device == "tpu" else node("both"),
              op.annotation.on_device(op.zeros(shape=(2,)), device=device))


def test_unknown_merged_device() -> None:
    inner = op.annotation.on_device(op.zeros(shape=(2,)), device="cpu", colocate="g")
    outer = op.annotation.on_device(op.ones(shape=(2,)), device=":99", colocate="g")
    with pytest.raises(TargetError, match=f"{EXPLICIT} 'cpu:99'"):
        place(inner, outer)


def test_no_kernels_registered() -> None:
    with pytest.raises(TargetError, match=f"{NO_DEVICE} test.none"):
        place(node("none"))


def test_no_devices_registered() -> None:
    with pytest.raises(TargetError, match=f"{NO_DEVICE} test.gpu"):
        place(node("gpu"), devices=("cpu:0",))


def test_malformed_device_specification() -> None:
    with pytest.raises(TargetError, match="unreadable name of a device"):
        place(node("both"), devices=("/foo:bar",))
    with pytest.raises(Exception, match="device"):
        node("both", device="/foo:bar")


def test_nonexistent_gpu() -> None:
    assert place(node("both", device="sim:11"), soft=True) == [("both", "sim:0")]
    with pytest.raises(TargetError, match=f"{EXPLICIT} 'sim:11'"):
        place(node("both", device="sim:11"))


def test_unsupported_device() -> None:
    with pytest.raises(TargetError, match=f"{EXPLICIT} 'cpu:0' of test.gpu"):
        place(node("gpu", device="cpu:0"))
    assert place(node("gpu", device="cpu:0"), soft=True) == [("gpu", "sim:0")]


def test_device_type_constraints_allow_soft_placement() -> None:
    gpu, cpu = node("gpu", group="a"), node("cpu", group="b")
    assert place(node("both", gpu, group="a", device="cpu:0"),
                 node("both", cpu, group="b", device="sim:0"), soft=True) == [
        ("gpu", "sim:0"), ("both", "sim:0"), ("cpu", "cpu:0"), ("both", "cpu:0")]


def test_unsatisfiable_constraint_with_reference_connections() -> None:
    with pytest.raises(TargetError, match="cannot colocate") as error:
        place(node("gpu", group="g"), node("cpu", group="g"))
    assert "test.gpu and test.cpu" in str(error.value)


def test_unsatisfiable_constraint_with_colocated_nodes() -> None:
    first = node("cpu", group="a")
    with pytest.raises(TargetError, match="cannot colocate"):
        place(node("gpu", node("both", first, group="a"), group="a"))


def test_heuristic_generator_follows_its_consumers() -> None:
    """Heuristic A of the placer: a node without inputs goes with its consumers on one device."""
    made = node("both")
    assert place(node("both", made, device="sim:3"), node("both", made, device="sim:3"))[0] == (
        "both", "sim:3")
    assert place(node("both", made, device="sim:3"), node("both", made, device="sim:4"))[0] == (
        "both", "sim:0")


def test_heuristic_metadata_goes_with_its_input() -> None:
    """Heuristic B of the placer."""
    value = node("both", device="sim:5")
    shape = op.annotation.on_device(op.shape_of(op.annotation.on_device(value)))
    mod = infer_type(IRModule.from_expr(Function((), shape)))
    devices = {call.op.name: str(device) for call, device in
               virtual_devices(PlanDevices(devices=DEVICES)(mod)).items()
               if isinstance(call, Call) and isinstance(call.op, Op)}
    assert devices["shape_of"] == "sim:5"
    assert "device_copy" in devices  # of the result, which says where the region is


def test_placed_programs_keep_their_devices() -> None:
    x = var("x", (2,))
    mod = infer_type(IRModule.from_expr(Function((x,), op.tanh(
        op.annotation.on_device(op.exp(x), device="sim:3")))))
    once = PlanDevices(devices=DEVICES)(mod)
    assert str(PlanDevices(devices=DEVICES)(once)) == str(once)
