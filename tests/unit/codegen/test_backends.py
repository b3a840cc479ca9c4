"""Back ends by target kind: a user's own runs models, and limits are checked with a reason."""

from __future__ import annotations

import gc
import importlib
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft import op, te
from weft.codegen import BACKENDS, CPU_BACKEND, Backend, backend_of, register_backend
from weft.codegen.llvm.build import build_object
from weft.compiler.report.page import html_report
from weft.compiler.stages import stages_of
from weft.ir import Function, Tuple, const, var
from weft.ir.python.builder import while_loop
from weft.runtime.arena import ArenaPool
from weft.runtime.call_sizes import fixed_sizes
from weft.runtime.device import HOST, HOST_MEMORY, Device, MemorySpace
from weft.runtime.devices.cpu.frame import Frame
from weft.runtime.launchers import LAUNCHERS, register_launcher
from weft.runtime.library import LOADERS, register_loader
from weft.strategy import Implementation, strategy
from weft.strategy.registry import DEFAULT_SCHEDULES, STRATEGIES
from weft.support.errors import (
    ArtifactError,
    LoweringError,
    OptionError,
    RegistryError,
    TargetError,
)
from weft.target import TARGET_KINDS, CpuTarget, Target, register_target_kind
from weft.tir.check_limits import check_limits
from weft.tir.limits import Limits
from weft.tir.transform.pipeline import lower_prim_func

MAIN = "examples.toy_target.__main__"


@pytest.fixture(scope="module")
def toy():
    """The example; its registrations end with the tests of this file."""
    pytest.importorskip("onnx")
    main = importlib.import_module(MAIN)
    package = importlib.import_module("examples.toy_target")
    library = importlib.import_module("examples.toy_target.library")
    memory = importlib.import_module("examples.toy_target.memory").MEMORY
    yield SimpleNamespace(
        compare=main.compare, onnx_model=main.onnx_model, MLP=main.MLP, memory=memory,
        ToyBackend=package.ToyBackend, ToyTarget=package.ToyTarget,
        ToyLibrary=library.ToyLibrary, section=library.section)
    for registry in (TARGET_KINDS, BACKENDS, LOADERS, LAUNCHERS, DEFAULT_SCHEDULES):
        if "toy" in registry.loaded():
            registry.remove("toy")
    for name in [name for name in sys.modules if name.startswith("examples.toy_target")]:
        del sys.modules[name]


def test_models_of_the_example_give_the_results_of_the_cpu(toy, capsys):
    """Compiled, from an artifact, and from the artifact in a process with the plug-in alone."""
    toy.compare("perceptron", weft.parse(toy.MLP))
    toy.compare("convolution", toy.onnx_model())
    assert capsys.readouterr().out.count("give the results of the CPU") == 2


def test_kernels_of_the_example_work_in_the_memory_of_its_device(toy, monkeypatch):
    """Inputs, constants, temporaries and outputs: none is memory of the host."""
    seen, kernel = [], toy.ToyLibrary.kernel

    def watched(self, symbol, *arguments):
        run = kernel(self, symbol, *arguments)
        return lambda *addresses: (seen.extend(map(toy.memory.holds, addresses)), run(*addresses))

    monkeypatch.setattr(toy.ToyLibrary, "kernel", watched)
    held = toy.memory.nbytes
    module = weft.compile(toy.onnx_model(), target="toy")
    module(np.ones((1, 3, 8, 8), np.float32))
    assert len(seen) > 6
    assert all(seen)
    assert toy.memory.nbytes > held
    del module
    gc.collect()
    assert toy.memory.nbytes == held


def test_the_state_of_the_example_is_on_its_device(toy):
    text = """def @main(%x: Tensor[(4), float32], %s: Tensor[(4), float32]) {
      %t = add(%x, %s);
      (multiply(%t, %t), %t)
    }"""
    module = weft.compile(weft.parse(text), target="toy", state={"output1": "s"})
    x = np.arange(4, dtype=np.float32)
    for count in (1, 2, 3):
        np.testing.assert_array_equal(module(x), (count * x) ** 2)
    assert toy.memory.holds(module.state["s"].ctypes.data)


def test_the_parts_of_the_example_answer_for_its_kind(toy):
    target = toy.ToyTarget()
    assert type(backend_of(target).cost_model(target)).__name__ == "ToyCosts"
    assert weft.compile(weft.parse(toy.MLP), target="toy").manifest.launched_by == "toy"
    with pytest.raises(ArtifactError, match="not kernels for the toy device"):
        toy.ToyLibrary(b"\x7fELF, say")


def test_parts_are_registered_once_under_each_name(toy):
    with pytest.raises(RegistryError, match="loader 'toy' is registered twice"):
        register_loader("toy", "a:b")
    with pytest.raises(RegistryError, match="launcher 'steps' is registered twice"):
        register_launcher("steps", "a:b")
    with pytest.raises(RegistryError, match="unknown loader 'cuad'") as caught:
        LOADERS.get("cuad")
    assert "cuda" in caught.value.help
    with pytest.raises(RegistryError, match="unknown launcher 'step'") as caught:
        LAUNCHERS.get("step")
    assert "steps" in caught.value.help


def rounds() -> Function:
    """A loop with a branch-free body and two outputs."""
    n, x = var("n", (), "int32"), var("x", (2, 16))
    weights = np.random.default_rng(0).standard_normal((16, 16), np.float32)
    loop = while_loop(lambda i, _: op.less(i, n),
                      lambda i, s: (i + 1, op.nn.softmax(op.nn.dense(s, const(weights)))),
                      const(0), x)
    return Function((n, x), Tuple((loop[1], op.greater(x, const(0.0)))))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_loops_run_in_the_memory_of_the_device(toy, count):
    test_loops_are_launched_step_by_step(toy, count)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_loops_are_launched_step_by_step(toy_on_host, count):
    ours, cpu = weft.compile(rounds(), target="toy"), weft.compile(rounds())
    x = np.random.default_rng(1).standard_normal((2, 16), np.float32)
    for a, b in zip(ours(np.int32(count), x), cpu(np.int32(count), x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_module_of_another_target_has_the_whole_surface(toy):
    module = weft.compile(rounds(), target="toy")
    n, x = np.array(2, np.int32), np.ones((2, 16), np.float32)
    want = module(n, x)
    run = module.bind(n, x)
    assert all(np.array_equal(a, b) for a, b in zip(run(), want, strict=True))
    again = pickle.loads(pickle.dumps(module))
    assert np.array_equal(again(n, x)[0], want[0])
    assert np.array_equal(module.run(None, {"n": n, "x": x})[1], want[1])
    profile = module.profile(n, x, repeat=1)
    assert len(profile.steps) > 5
    assert "FMA peak" not in profile.table()
    assert module.manifest.launched_by == "toy"
    assert "for toy" in repr(module)


def test_the_stages_are_those_of_the_back_end(toy):
    module = weft.compile(weft.parse(toy.MLP), target="toy")
    assert "def weft_nn_dense" in module.as_text("toy")
    with pytest.raises(OptionError, match="unknown stage 'llvm'") as caught:
        module.as_text("llvm")
    assert "toy" in caught.value.expected


def test_every_stage_and_the_report_of_another_target(toy):
    module = weft.compile(weft.parse(toy.MLP), target="toy")
    names = stages_of(module.options.target)
    assert names[-2:] == ("tir", "toy")
    assert all(module.as_text(name) for name in names)
    page = html_report(module, title="toy")
    assert "<summary>toy</summary>" in page
    assert "<summary>llvm</summary>" not in page


def test_opcheck_runs_the_cases_on_another_target(toy):
    report = weft.opcheck("nn.softmax", target="toy")
    assert report.implementations == ("nn.softmax.toy.default",)


def test_kernels_are_dumped_in_the_texts_of_the_back_end(toy, tmp_path):
    weft.compile(weft.parse(toy.MLP), target="toy", dump_dir=tmp_path)
    suffixes = {path.suffix for path in tmp_path.rglob("k00-*")}
    assert suffixes == {".tir", ".toy"}


def test_code_of_a_users_back_end_is_not_cached(toy, tmp_path, monkeypatch):
    """The sources of the back end are not part of cache keys, so its code may change."""
    built = []
    build = toy.ToyBackend.build_kernel
    monkeypatch.setattr(toy.ToyBackend, "build_kernel",
                        lambda self, func, target: built.append(func) or build(self, func, target))
    for count in (3, 6):
        weft.compile(weft.parse(toy.MLP), target="toy", cache_dir=tmp_path, build_jobs=2)
        assert len(built) == count


class OnHost:
    """The back end of the example on the host, whose kernels the runtime launches."""

    device = HOST
    memory_spaces = (HOST_MEMORY,)
    launched_by = "steps"


@pytest.fixture
def toy_on_host(toy, monkeypatch):
    monkeypatch.setitem(BACKENDS._entries, "toy",
                        type("ToyOnHost", (OnHost, toy.ToyBackend), {})())
    return toy


def test_symbolic_dimensions_and_the_virtual_machine(toy_on_host):
    with pytest.warns(weft.FallbackWarning, match="kernels of toy targets need fixed sizes"):
        dynamic = weft.compile(weft.parse(
            "def @main(%x: Tensor[(n, 4), float32]) { nn.softmax(%x) }"), target="toy")
    np.testing.assert_allclose(dynamic(np.ones((3, 4), np.float32)), np.full((3, 4), 0.25))
    positive = weft.compile(weft.parse(
        "def @main(%x: Tensor[(4), float32]) { argwhere(greater(%x, 0f)) }"), target="toy")
    assert positive(np.float32([1, -1, 2, 0])).tolist() == [[0], [2]]


def test_a_strategy_for_another_kind_of_target(toy):
    @strategy("nn.relu", target="toy")
    def relu(call, target):
        yield Implementation("nn.relu.toy.mine", lambda ctx: None)

    try:
        program = weft.parse("def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }")
        assert "nn.relu.toy.mine" in weft.compile(program, target="toy").as_text("tir")
        assert "toy" not in weft.compile(program).as_text("tir")
    finally:
        STRATEGIES.remove("toy:nn.relu")


def test_features_that_a_back_end_lacks_are_refused(toy, tmp_path):
    module = weft.compile(weft.parse(toy.MLP), target="toy")
    with pytest.raises(TargetError, match="'toy' do not support a C object"):
        module.export(tmp_path / "net", format="c")
    with pytest.raises(TargetError, match="unknown option of target 'toy'"):
        weft.compile(weft.parse(toy.MLP), target="toy -fast")


def test_an_artifact_needs_the_loader_of_its_kind(toy, tmp_path, monkeypatch):
    path = tmp_path / "net.weft"
    weft.compile(weft.parse(toy.MLP), target="toy").export(path)
    monkeypatch.delitem(LOADERS._entries, "toy")
    with pytest.raises(ArtifactError, match="no loader is registered for targets of kind 'toy'"):
        weft.load(path)


def test_a_kind_without_a_back_end_is_refused():
    class Bare(Target):
        kind = "bare"

        def __str__(self):
            return "bare"

        @classmethod
        def parse(cls, text):
            return cls()

    register_target_kind(Bare)
    try:
        with pytest.raises(RegistryError, match="'bare' is registered twice"):
            register_target_kind(Bare)
        with pytest.raises(TargetError, match="no back end is registered") as caught:
            backend_of(Target.of("bare"))
        assert "cpu" in caught.value.expected
    finally:
        TARGET_KINDS.remove("bare")


def test_a_back_end_with_only_the_required_members_runs_models(toy, monkeypatch):
    class Least(Backend):
        kind = "toy"
        tir_passes = toy.ToyBackend.tir_passes

        def build_kernel(self, func, target):
            return str(func).encode()

        def load(self, objects, target):
            return toy.ToyLibrary(toy.section(objects))

    monkeypatch.setitem(BACKENDS._entries, "toy", Least())
    monkeypatch.delitem(LOADERS._entries, "toy")
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    model = weft.compile(weft.parse("def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }"),
                         target="toy")
    np.testing.assert_array_equal(model(x), np.maximum(x, 0))


def test_a_target_kind_needs_a_kind_and_names_that_are_free():
    class Named(Target):
        kind, names = "acc", ("llvm",)

        def __str__(self):
            return "acc"

        @classmethod
        def parse(cls, text):
            return cls()

    class Nameless(Target):
        pass

    with pytest.raises(RegistryError, match="'acc' uses a name of target kind 'cpu'") as caught:
        register_target_kind(Named)
    assert caught.value.got == "llvm"
    assert "acc" not in TARGET_KINDS
    with pytest.raises(RegistryError, match="Nameless does not define kind"):
        register_target_kind(Nameless)


def test_a_target_of_another_kind_is_not_a_cpu(toy):
    assert backend_of(CpuTarget.host()) is CPU_BACKEND
    with pytest.raises(TargetError, match="the target is of kind 'toy'"):
        CpuTarget.of("toy")
    with pytest.raises(RegistryError, match="'cpu' is registered twice"):
        register_backend(CPU_BACKEND)


def bound_to_threads():
    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: x[i] + 1.0, name="y")
    schedule = te.create_schedule(y)
    schedule[y].bind(y.op.axis[0], "threadIdx.x")
    return te.lower(schedule, [x, y], "threads")


def test_te_bind_is_refused_on_a_cpu():
    with pytest.raises(LoweringError, match=r"bound to threadIdx\.x is not supported on targets of "
                                            "kind 'cpu'") as caught:
        CPU_BACKEND.lower(bound_to_threads())
    assert caught.value.where == "threads"
    with pytest.raises(LoweringError, match=r"bound to threadIdx\.x"):
        build_object(lower_prim_func(bound_to_threads()), CpuTarget.host())


def test_a_strategy_that_binds_threads_is_refused_at_compilation():
    @strategy("nn.relu", target="cpu")
    def threads(call, target):
        def schedule(ctx):
            ctx.schedule[ctx.output].bind(ctx.output.op.axis[0], "threadIdx.x")

        yield Implementation("nn.relu.cpu.threads", schedule)

    try:
        with pytest.raises(LoweringError, match="not supported on targets of kind 'cpu'"):
            weft.compile(weft.parse("def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }"))
    finally:
        STRATEGIES.remove("cpu:nn.relu")


def test_a_back_end_may_support_threads(toy):
    class Threads(toy.ToyBackend):
        limits = Limits(thread_axes=("threadIdx.x",))

    func = Threads().lower(bound_to_threads())
    code = Threads().load([Threads().build_kernel(func, toy.ToyTarget())], toy.ToyTarget())
    x, y = np.arange(64, dtype=np.float32), np.empty(64, np.float32)
    code.kernel("threads", 2)(x.ctypes.data, y.ctypes.data)
    np.testing.assert_array_equal(y, x + 1)


def test_a_back_end_may_have_its_own_device_and_memory(toy, monkeypatch):
    side, allocated = Device("side", 2), []

    class Library(toy.ToyLibrary):
        def allocate(self, nbytes, device, alignment):
            allocated.append((nbytes, device, alignment))
            return super().allocate(nbytes, device, alignment)

    class Side(OnHost, toy.ToyBackend):
        device = side
        memory_spaces = (MemorySpace("side", side, 128),)

        def load(self, objects, target):
            return Library(self.link(objects, target))

    monkeypatch.setitem(BACKENDS._entries, "toy", Side())
    module = weft.compile(rounds(), target="toy")
    assert {step.device for step in module.manifest.steps} == {side}
    assert module.manifest.arena_bytes == 0
    x = np.random.default_rng(1).standard_normal((2, 16), np.float32)
    for a, b in zip(module(np.int32(3), x), weft.compile(rounds())(np.int32(3), x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    (arena,) = module.manifest.arenas
    assert allocated == [(arena.nbytes, side, 128)]
    assert arena.nbytes > 0


@pytest.mark.parametrize("spaces", [
    (MemorySpace(alignment=128),),
    (HOST_MEMORY, MemorySpace("input", Device("side"))),
    (MemorySpace("side", Device("side")), MemorySpace("side", Device("side", 1))),
])
def test_ambiguous_names_of_memory_spaces_are_refused(toy, spaces):
    class Ambiguous(toy.ToyBackend):
        kind = "ambiguous"
        memory_spaces = spaces

    with pytest.raises(RegistryError, match="ambiguous names of memory spaces of back end 'ambig"):
        register_backend(Ambiguous())
    assert "ambiguous" not in BACKENDS


def test_memory_of_the_host_may_have_a_larger_alignment(toy, monkeypatch):
    class Aligned(OnHost, toy.ToyBackend):
        memory_spaces = (MemorySpace("lines", alignment=4096),)

    monkeypatch.setitem(BACKENDS._entries, "toy", Aligned())
    model = weft.parse("def @main(%x: Tensor[(64), float32]) { nn.softmax(cumsum(%x)) }")
    module = weft.compile(model, target="toy")
    frame = Frame(module.manifest, module.library, ArenaPool(), fixed_sizes(module.manifest))
    assert frame.arenas["lines"].address % 4096 == 0
    x = np.linspace(0, 1, 64, dtype=np.float32)
    np.testing.assert_allclose(module(x), weft.compile(model)(x), rtol=1e-4)


RECURSIVE = """
def @f(%n: Tensor[(), int32], %x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  if (less(%n, 1)) { %x } else { nn.relu(@f(subtract(%n, 1), sin(%x))) }
}
def @main(%n: Tensor[(), int32], %x: Tensor[(4), float32]) { @f(%n, %x) }
"""


def test_the_virtual_machine_runs_on_the_host_only(toy_on_host, monkeypatch):
    class Side(toy_on_host.ToyBackend):
        device = Device("side")
        memory_spaces = (MemorySpace("side", device),)

    assert weft.compile(weft.parse(RECURSIVE), target="toy").manifest.vm is not None
    monkeypatch.setitem(BACKENDS._entries, "toy", Side())
    with pytest.raises(TargetError, match="programs for the virtual machine run on the host only"):
        weft.compile(weft.parse(RECURSIVE), target="toy")


def vectorized(lanes):
    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: x[i] + 1.0, name="y")
    schedule = te.create_schedule(y)
    _, inner = schedule[y].split(y.op.axis[0], factor=lanes)
    schedule[y].vectorize(inner)
    return te.lower(schedule, [x, y], "vectors")


def test_limits_of_vectors():
    check_limits(vectorized(8), Limits(max_lanes=8), "small")
    with pytest.raises(LoweringError, match="a vector of 16 lanes is not supported on targets of "
                                            "kind 'small'"):
        check_limits(vectorized(16), Limits(max_lanes=8), "small")


def staged():
    x = te.placeholder((64,), name="x")
    t = te.compute((64,), lambda i: x[i] + 1.0, name="t")
    y = te.compute((64,), lambda i: t[63 - i] * 2.0, name="y")
    return te.lower(te.create_schedule(y), [x, y], "staged")


def test_limits_of_memory():
    check_limits(staged(), Limits(max_alignment=64), "aligned")
    with pytest.raises(LoweringError, match="an alignment of 64 bytes is not supported"):
        check_limits(staged(), Limits(max_alignment=32), "aligned")
    with pytest.raises(LoweringError, match="global memory is not supported"):
        check_limits(staged(), Limits(scopes=("local",)), "registers")


def test_the_interface_says_what_it_lacks(toy):
    class Nothing(Backend):
        kind = "nothing"

        def build_kernel(self, func, target):
            return b""

        def load(self, objects, target):
            return toy.ToyLibrary(b"")

    backend, target = Nothing(), toy.ToyTarget()
    assert backend.build_main(None, target) is None
    assert backend.kernel_key(None, target) is None
    for call in (lambda: backend.link([], target),
                 lambda: backend.callback_kernel("f", 1, 2, target),
                 lambda: backend.check_object(b"", "f", "here")):
        with pytest.raises(TargetError, match="support"):
            call()
