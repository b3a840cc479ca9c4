"""Programs that the runtime launches: devices, streams and one arena per memory space."""

from __future__ import annotations

import numpy as np
import pytest

from weft.runtime import KernelCall, Manifest, TargetSpec, TensorSpec
from weft.runtime.arena import AlignedBlock, array_at
from weft.runtime.device import HOST, Device
from weft.runtime.library import HostLibrary
from weft.runtime.manifest import ArenaSpec
from weft.runtime.step_module import StepModule
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


def test_each_memory_space_has_an_arena_and_each_launch_a_device():
    library = Recording()
    module = StepModule(manifest(), library, b"")
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(module(x), x + 2)
    assert library.events == [("allocate", "side:1", 32, 16), ("first", "side:1", 2),
                              ("second", "cpu:0", 0), "synchronize"]
    library.events.clear()
    run = module.bind(x)
    x += 1
    np.testing.assert_array_equal(run(), x + 2)
    assert library.events == [("first", "side:1", 2), ("second", "cpu:0", 0), "synchronize"]


def test_a_manifest_with_devices_comes_back_from_its_text():
    assert Manifest.from_json(manifest().to_json()) == manifest()


def test_a_manifest_for_the_host_has_no_fields_of_devices():
    plain = manifest(steps=(), arenas=(), launched_by="weft_main",
                     target=TargetSpec("x86_64-linux", "haswell")).to_json()
    for word in ("device", "stream", "arenas", "launched_by", "kind"):
        assert word not in plain


@pytest.mark.parametrize("changes", [
    {"launched_by": "magic"},
    {"arenas": ()},
    {"arenas": (ArenaSpec("side", 8, SIDE, 16),)},
])
def test_contradictions_are_refused(changes):
    with pytest.raises(ArtifactError, match="damaged manifest"):
        Manifest.from_json(manifest(**changes).to_json())
