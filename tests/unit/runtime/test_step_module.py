"""Programs that the runtime launches: devices, streams and one arena per memory space."""

from __future__ import annotations

import numpy as np
import pytest

from weft.runtime import KernelCall, Manifest, TargetSpec, TensorSpec
from weft.runtime.arena import AlignedBlock, array_at
from weft.runtime.device import HOST, Device
from weft.runtime.executable import Executable
from weft.runtime.launchers import Code, open_launcher
from weft.runtime.library import HostLibrary, synchronous
from weft.runtime.manifest import ArenaSpec
from weft.runtime.vm.kernels import LoadedKernel, Scratch
from weft.runtime.vm.program import TensorForm, VmKernel
from weft.support.errors import ArtifactError

FLOAT = np.dtype(np.float32)
SIDE = Device("side", 1)


class Recording(HostLibrary):
    """Kernels that add one; it notes launches, allocations and waits."""

    def __init__(self):
        self.events = []

    def kernel(self, symbol, num_args, device=HOST, stream=0):
        def launch(source, target):
            self.events.append((symbol, str(device), stream))
            array_at(target, (4,), FLOAT)[:] = array_at(source, (4,), FLOAT) + 1

        return launch

    def allocate(self, nbytes, device, alignment):
        self.events.append(("allocate", str(device), nbytes, alignment))
        return AlignedBlock(nbytes)

    def synchronize(self):
        self.events.append("synchronize")


def manifest(**changes) -> Manifest:
    steps = (KernelCall("first", (("input", 0), ("side", 16)), device=SIDE, stream=2),
             KernelCall("second", (("side", 16), ("output", 0))))
    spec = TensorSpec("x", "float32", (4,))
    fields = {"inputs": (spec,), "outputs": (TensorSpec("y", "float32", (4,)),),
              "target": TargetSpec("x86_64-linux", "side", kind="side"), "arena_bytes": 0,
              "constants_bytes": 0, "steps": steps, "launched_by": "steps",
              "arenas": (ArenaSpec("side", 32, SIDE, 16),)}
    return Manifest(**{**fields, **changes})


def opened(described: Manifest, library: HostLibrary) -> Executable:
    return Executable(described, open_launcher(Code(described, lambda: library, b"")))


def test_each_memory_space_has_an_arena_and_each_launch_a_device():
    library = Recording()
    module = opened(manifest(), library)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(module(x), x + 2)
    assert library.events == [("allocate", "side:1", 32, 16), ("first", "side:1", 2),
                              ("second", "cpu:0", 0), "synchronize"]
    library.events.clear()
    run = module.bind(x)
    x += 1
    np.testing.assert_array_equal(run(), x + 2)
    assert library.events == [("first", "side:1", 2), ("second", "cpu:0", 0), "synchronize"]


class Deferred(HostLibrary):
    """Kernels that run when the host waits; a launch of ``failing`` raises."""

    def __init__(self):
        self.queue = []
        self.events = []

    def kernel(self, symbol, num_args, device=HOST, stream=0):
        def launch(*addresses):
            if symbol == "failing":
                raise RuntimeError("no launch")
            self.events.append(symbol)
            self.queue.append((symbol, addresses))

        return launch

    def synchronize(self):
        self.events.append(f"wait for {len(self.queue)}")
        for symbol, (source, target) in self.queue:
            values = array_at(source, (4,), FLOAT)
            if symbol == "is_positive":
                array_at(target, (), np.dtype(np.bool_))[...] = values.sum() > 0
            else:
                array_at(target, (4,), FLOAT)[:] = values if symbol == "copy" else -values
        self.queue.clear()


def test_branch_conditions_are_read_once_the_kernels_are_done():
    condition = ("arena", 0)
    steps = (KernelCall("is_positive", (("input", 0), condition)),
             KernelCall("copy", (("input", 0), ("output", 0)), guards=((condition, True),)),
             KernelCall("negate", (("input", 0), ("output", 0)), guards=((condition, False),)))
    library = Deferred()
    module = opened(manifest(steps=steps, arenas=(), arena_bytes=64), library)
    x = np.arange(4, dtype=np.float32)
    for value in (x, -x, x):
        np.testing.assert_array_equal(module(value), x)
    library.events.clear()
    assert [step.call.symbol for step in module.profile(-x, repeat=1).steps] == [
        "is_positive", "negate"]
    assert library.events[:2] == ["is_positive", "wait for 1"]  # a time includes the kernel


def test_a_frame_is_given_back_once_the_kernels_are_done():
    steps = (KernelCall("copy", (("input", 0), ("output", 0))), KernelCall("failing", ()))
    library = Deferred()
    module = opened(manifest(steps=steps, arenas=()), library)
    with pytest.raises(RuntimeError, match="no launch"):
        module(np.arange(4, dtype=np.float32))
    assert library.events == ["copy", "wait for 1"]
    assert not library.queue


def test_the_virtual_machine_waits_for_each_kernel():
    form = TensorForm("float32", (4,))
    facts = VmKernel("negate", 1, (form,), input_shapes=((4,),))
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(LoadedKernel(facts, Deferred())([x], Scratch())[0], -x)


def test_launches_on_the_host_do_not_wait():
    class Host(HostLibrary):
        def kernel(self, symbol, num_args, device=HOST, stream=0):
            return print

    assert synchronous(Host(), print) is print


def test_a_manifest_with_devices_comes_back_from_its_text():
    assert Manifest.from_json(manifest().to_json()) == manifest()


def test_a_manifest_for_the_host_has_no_fields_of_devices():
    plain = manifest(steps=(), arenas=(), launched_by="weft_main",
                     target=TargetSpec("x86_64-linux", "haswell")).to_json()
    for word in ("device", "stream", "arenas", "launched_by", "kind"):
        assert word not in plain


@pytest.mark.parametrize("changes", [
    {"arenas": ()},
    {"arenas": (ArenaSpec("side", 8, SIDE, 16),)},
    {"arenas": (ArenaSpec("side", 32, SIDE, 16), ArenaSpec("side", 64, SIDE, 16))},
    {"arenas": (ArenaSpec("side", 32, SIDE, 16), ArenaSpec("arena", 64, SIDE, 16))},
])
def test_contradictions_are_refused(changes):
    with pytest.raises(ArtifactError, match="damaged manifest"):
        Manifest.from_json(manifest(**changes).to_json())


def test_an_unknown_launcher_is_refused():
    described = Manifest.from_json(manifest(launched_by="magic").to_json())
    with pytest.raises(ArtifactError, match="no launcher is registered under the name 'magic'"):
        opened(described, Recording())
