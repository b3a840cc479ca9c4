"""What TensorFlow's ``graph_partition_test`` checks, case by case.

Its partitions are graphs with ``_Send`` and ``_Recv`` nodes; here a partition is the kernels of a
device, and a copy of a link, with what it waits for, stands for each pair. Its inputs are nodes of
a device; here they are parameters of the program, from which ``A1`` and ``B1`` compute. Cases that
have no place, or another one:

- ``CrossDeviceLoopSimple``, ``CrossDeviceLoopSimple1`` and ``CrossDeviceLoopFull`` check the
  control loops that each partition gets, as its executors are independent. Here the host decides
  about branches and loops of all devices; what remains is that such loops run.
- ``SetIncarnation``: devices are those of one process, which do not restart.
- ``TopologicalSortNodesWithTimePriorityTest``: start times are those of the simulator; the cases
  are checked on the order of steps. ``WhileLoop`` has no place: steps in loops keep their order.

``should_cast`` of the partition options, which sends tensors with fewer bits, has no counterpart:
results would depend on where a program runs.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
from tests.unit.compiler.devices.placing import sims
from weft.compiler.program.devices.order import copies_early
from weft.compiler.program.program import BufferKind, BufferRef, Program, Step
from weft.graph import Graph
from weft.ir.visitor import post_order
from weft.runtime.device import Device

pytestmark = pytest.mark.usefixtures("cache_of_module")

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


class Nodes:
    """Nodes whose first letter is their device, as in the original: ``A1`` on sim:0."""

    def __init__(self):
        self.graph = Graph()
        self.x = self.graph.placeholder((2, 3), name="x")

    def input(self, name, after=()):
        return self.make("sin", name, self.x, after=after)

    def combine(self, name, a, b, after=()):
        return self.make("add", name, a, b, after=after)

    def make(self, op, name, *inputs, after=()):
        with self.graph.device(f"sim:{ord(name[0]) - ord('A')}"), \
                self.graph.control_dependencies(list(after)):
            return self.graph.call(op, *inputs, name=name)

    def compiled(self, *outputs):
        return weft.compile(self.graph, outputs=list(outputs), devices=sims(2))


def kernels(mod, device):
    """The operators of the kernels of a device, in order."""
    return [call.op for call in mod.manifest.steps
            if call.symbol != "device_copy" and str(call.device) == device]


def transfers(mod):
    """The copies between devices, as pairs of devices."""
    return [(str(call.source), str(call.device)) for call in mod.manifest.steps
            if call.symbol == "device_copy" and "cpu:0" not in (str(call.source), str(call.device))]


def runs_before(mod, first, second):
    """Whether call ``second`` cannot start before call ``first`` is done."""
    calls = mod.manifest.steps
    known = {}
    lasts = {}
    for at, call in enumerate(calls):
        lane = (call.source if call.symbol == "device_copy" else call.device), call.device
        before = {*call.waits, *([lasts[lane]] if lane in lasts else [])}
        known[at] = before.union(*(known[one] for one in before))
        lasts[lane] = at
    return first in known[second]


def number(mod, op, device):
    return next(at for at, call in enumerate(mod.manifest.steps)
                if call.op == op and str(call.device) == device)


def test_single_device():
    n = Nodes()
    a1 = n.input("A1")
    n.combine("A2", a1, a1)
    mod = n.compiled("A2")
    assert transfers(mod) == []
    assert not kernels(mod, "sim:1")
    np.testing.assert_allclose(mod(X), 2 * np.sin(X), rtol=1e-5)


def test_cross_device_data():
    n = Nodes()
    n.combine("B2", n.input("A1"), n.input("B1"))
    mod = n.compiled("B2")
    assert transfers(mod) == [("sim:0", "sim:1")]
    assert kernels(mod, "sim:0") == ["sin"]
    np.testing.assert_allclose(mod(X), 2 * np.sin(X), rtol=1e-5)


def test_cross_device_control():
    """A control edge moves no data, and is kept: the kernel waits for that of the other device."""
    n = Nodes()
    a1 = n.input("A1")
    b1 = n.input("B1")
    n.combine("B2", b1, b1, after=[a1])
    mod = n.compiled("B2", "A1")
    assert runs_before(mod, number(mod, "sin", "sim:0"), _last_kernel(mod, "sim:1"))
    for found, expected in zip(mod(X), (2 * np.sin(X), np.sin(X)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def _last_kernel(mod, device):
    return max(at for at, call in enumerate(mod.manifest.steps)
               if call.symbol != "device_copy" and str(call.device) == device)


def test_cross_device_data_multi_use():
    """Two nodes that read a tensor of another device read one copy."""
    n = Nodes()
    a1 = n.input("A1")
    n.combine("B2", a1, n.input("B1"))
    n.make("nn.softmax", "B3", a1)
    mod = n.compiled("B2", "B3")
    assert transfers(mod) == [("sim:0", "sim:1")]
    mod(X)


def test_cross_device_control_multi_use():
    n = Nodes()
    a1 = n.input("A1")
    b1 = n.input("B1")
    n.combine("B2", b1, b1, after=[a1])
    n.make("nn.softmax", "B3", n.x, after=[a1])
    mod = n.compiled("B2", "B3", "A1")
    first = number(mod, "sin", "sim:0")
    waiting = [at for at, call in enumerate(mod.manifest.steps)
               if str(call.device) == "sim:1" and runs_before(mod, first, at)]
    assert len(waiting) >= 2
    mod(X)


def test_cross_device_data_and_control():
    n = Nodes()
    a1 = n.input("A1")
    n.combine("B2", a1, n.input("B1"))
    n.make("nn.softmax", "B3", n.x, after=[a1])
    mod = n.compiled("B2", "B3")
    assert transfers(mod) == [("sim:0", "sim:1")]
    assert runs_before(mod, number(mod, "sin", "sim:0"), number(mod, "nn.softmax", "sim:1"))


@pytest.mark.parametrize("condition", ["cpu:0", "sim:0"])
def test_cross_device_loops(condition):
    """``while i1 < 10: i1 += i2`` with the sum on another device than the condition."""
    mod = weft.parse(f"""
    def @main(%i1: int32, %i2: int32) {{
      let %loop = fn (%a: int32, %b: int32) -> int32 {{
        if (annotation.on_device(less(%a, 10), device="{condition}")) {{
          let %c = annotation.on_device(%a, constrain_body=False);
          let %d = annotation.on_device(%b, constrain_body=False);
          %loop(annotation.on_device(add(%c, %d), device="sim:1"), %b)
        }} else {{ %a }}
      }};
      %loop(%i1, %i2)
    }}""")
    run = weft.compile(mod, devices=[*sims(2), "cpu"])
    assert {str(c.device) for c in run.manifest.steps if c.symbol != "device_copy"} >= {"sim:1"}
    for start, by in ((0, 3), (10, 1), (-5, 4)):
        expected = start
        while expected < 10:
            expected += by
        assert run(np.int32(start), np.int32(by)) == expected


def test_partition_incomplete_graph():
    """A node that lacks an input is an error, not a crash."""
    g = Graph()
    with pytest.raises(weft.WeftError), g.device("sim:0"):
        g.call("add", name="N")


def test_functions():
    """Each device gets the kernels of the functions that it calls, and no others.

    A function is on one device, so two devices call two functions.
    """
    mod = weft.parse("""
    def @twice(%x: Tensor[(2, 3), float32]) { tanh(add(%x, %x)) }
    def @other(%x: Tensor[(2, 3), float32]) { tanh(add(%x, %x)) }
    def @four(%x: Tensor[(2, 3), float32]) { nn.softmax(@other(@other(%x))) }
    def @main(%x: Tensor[(2, 3), float32]) {
      (annotation.on_device(@twice(%x), device="sim:0"),
       annotation.on_device(@four(%x), device="sim:1"))
    }""")
    made = weft.compile(mod, devices=sims(2))
    assert "softmax" not in " ".join(kernels(made, "sim:0"))
    assert "softmax" in " ".join(kernels(made, "sim:1"))
    reference = weft.compile(mod, devices=["sim:0"], soft_placement=True)
    for found, expected in zip(made(X), reference(X), strict=True):
        assert found.tobytes() == expected.tobytes()


def test_debug_information_stays_with_the_nodes():
    """After partitioning, every call of an operator still has the span of its node."""
    n = Nodes()
    n.combine("B2", n.input("A1"), n.input("B1"))
    mod = n.compiled("B2")
    lowered = mod.recompiler.stages.module_at("optimized")
    calls = [node for node in post_order(lowered["main"].body)
             if type(node).__name__ == "Call" and node.op.name in ("sin", "add")]
    assert calls
    assert all(node.span is not None for node in calls)


def _steps(sources):
    """Copies of inputs, then a kernel for each that reads them."""
    steps = []
    for at, source in enumerate(sources):
        target = BufferRef(BufferKind.TEMPORARY, at)
        steps.append(Step(0, (source, target), 1, device=Device("sim", 0), source=Device("cpu")))
    return steps


def test_order_without_dependencies():
    """Copies of inputs keep their order."""
    steps = _steps([BufferRef(BufferKind.INPUT, n) for n in range(20)])
    program = Program((), (), False, (), (8,) * 20, (), tuple(steps))
    assert copies_early(program).steps == program.steps


def test_order_with_dependencies():
    """A copy comes right behind the kernel that writes what it reads, and before its readers."""
    temporaries = [BufferRef(BufferKind.TEMPORARY, n) for n in range(8)]
    device = Device("sim", 0)
    kernels_ = [Step(0, (temporaries[n],), 1, device=device) for n in range(4)]
    copies = [Step(1, (temporaries[n], temporaries[n + 4]), 1, device=Device("sim", 1),
                   source=device) for n in range(4)]
    program = Program((), (), False, (), (8,) * 8, (), (*kernels_, *copies))
    order = copies_early(program).steps
    assert order == tuple(itertools.chain.from_iterable(zip(kernels_, copies, strict=True)))
