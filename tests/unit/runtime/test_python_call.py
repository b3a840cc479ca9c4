"""The builtin that calls ``weft_main``: what it takes, what it declines, what it leaves behind."""

from __future__ import annotations

import functools
import gc
import pickle
import random
import sys
import threading
import weakref
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.unit.runtime.programs import SIZE, expected, manifest, module, sample
from weft.runtime.arena import ArenaPool
from weft.runtime.buffers import check_apart
from weft.runtime.call_sizes import fixed_sizes
from weft.runtime.devices.cpu import main_function, numpy_layout
from weft.runtime.devices.cpu.python_call import NO_ARENA, PythonCall, is_short
from weft.runtime.executable import Executable
from weft.runtime.manifest import BackJump, Manifest, TensorSpec
from weft.support.errors import InternalError, InvalidInputError


@pytest.fixture(scope="module")
def mod() -> Executable:
    return module()


def short(manifest: Manifest) -> bool:
    return is_short(manifest, fixed_sizes(manifest))


def quick(mod: Executable, *args: object) -> object:
    assert mod.launch_for(()).call is not None
    return mod.launch_for(()).call.quick(*args)


class Derived(np.ndarray):
    pass


def test_it_takes_exactly_what_is_declared(mod: Executable) -> None:
    results = quick(mod, sample())
    assert isinstance(results, list)
    np.testing.assert_array_equal(results[0], expected(sample()))


@pytest.mark.parametrize(
    "args",
    [
        (), (sample(), sample(), sample()), (None,), (1.0,), (sample().tolist(),),
        (sample().astype(np.float64),), (sample().view(np.int32),), (sample()[:-1],),
        (sample().reshape(1, SIZE),), (np.float32(1),), (np.zeros(2 * SIZE, np.float32)[::2],),
        (np.frombuffer(b"\0" * (4 * SIZE + 1), np.uint8)[1:].view(np.float32),),
        (sample().view(Derived),), (sample().astype(">f4"),),
    ],
)  # fmt: skip
def test_it_declines_what_needs_another_look(mod: Executable, args: tuple) -> None:
    assert quick(mod, *args) is None


@pytest.mark.parametrize("releases", [False, True])
def test_it_writes_to_given_outputs(mod: Executable, releases: bool) -> None:
    call = PythonCall(mod.launcher.template, fixed_sizes(mod.manifest),
                      mod.launch_for(()).makers, ArenaPool(), releases=releases)
    x, y = sample(), np.zeros(SIZE, np.float32)
    before = sys.getrefcount(y)
    assert [call.quick(x, y) for _ in range(50)] == [0] * 50
    np.testing.assert_array_equal(y, expected(x))
    assert sys.getrefcount(y) == before


def _locked() -> np.ndarray:
    y = sample()
    y.flags.writeable = False
    return y


@pytest.mark.parametrize("out", [
    None, [1.0], _locked(), sample().astype(np.float64), sample().view(np.int32), sample()[:-1],
    sample().reshape(1, SIZE), np.zeros(2 * SIZE, np.float32)[::2], sample().view(Derived),
])  # fmt: skip
def test_it_declines_outputs_that_need_another_look(mod: Executable, out: object) -> None:
    assert quick(mod, sample(), out) is None


def test_it_declines_what_shares_memory(mod: Executable) -> None:
    """As the check in Python, for every distance of two inputs and two outputs in one block."""
    spec = TensorSpec("t", "float32", (4,))
    sizes = replace(fixed_sizes(mod.manifest), inputs=(spec, spec), outputs=(spec, spec))
    makers = [functools.partial(np.empty, 4, np.float32)] * 2
    arenas = ArenaPool()
    call = PythonCall(mod.launcher.template, sizes, makers, arenas, releases=False)
    arenas.take(sizes.arena_bytes)  # so that no call runs
    two = replace(mod.manifest, inputs=(spec, spec), outputs=(spec, spec))
    block, rng = np.zeros(24, np.float32), random.Random(0)
    seen = set()
    for _ in range(400):
        a, b, c, d = (block[at:at + 4] for at in rng.choices(range(21), k=4))
        try:
            check_apart(two, (a, b), (c, d))
        except InvalidInputError:
            assert call.quick(a, b, c, d) is None
            seen.add(False)
        else:
            assert call.quick(a, b, c, d) == NO_ARENA  # it would run
            seen.add(True)
    assert seen == {False, True}


def test_it_takes_no_keywords(mod: Executable) -> None:
    with pytest.raises(TypeError, match="keyword"):
        mod.launch_for(()).call.quick(x=sample())


@pytest.mark.filterwarnings("ignore:input 'x' is copied:weft.FallbackWarning")
def test_what_it_declines_is_converted_or_refused(mod: Executable) -> None:
    x = sample()
    twin = pickle.loads(pickle.dumps(x))  # its dtype is not NumPy's own object
    odd = np.zeros(4 * SIZE + 1, np.uint8)[1:].view(np.float32)
    odd[:] = x
    for given in (x.view(Derived), twin, odd, x.tolist(), np.repeat(x, 2)[::2], x.astype(">f4")):
        np.testing.assert_array_equal(mod(given), expected(x))
        (y,) = mod.run(None, {"x": given})
        assert type(y) is np.ndarray
    with pytest.raises(InvalidInputError, match="wrong shape"):
        mod(x[1:])
    with pytest.raises(InvalidInputError, match="wrong dtype"):
        mod(x.astype(np.float64))


def test_without_it_everything_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_function, "call_template", lambda *_: None)
    plain = module()
    assert plain.launch_for(()).call is None
    np.testing.assert_array_equal(plain(sample()), module()(sample()))
    with pytest.raises(InternalError, match="status 3"):
        module(status=3)(sample())


def test_a_layout_that_is_not_known_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert numpy_layout.known_layout()
    monkeypatch.setattr(numpy_layout, "DTYPE", numpy_layout.DTYPE - 8)
    assert not numpy_layout.known_layout.__wrapped__()


def test_it_keeps_no_references(mod: Executable) -> None:
    x = sample()
    gone = weakref.ref(mod.launch_for(()).call.quick(x)[0])
    assert gone() is None
    before = sys.getrefcount(x), sys.getrefcount(x.dtype)
    for _ in range(100):
        mod.launch_for(()).call.quick(x)
        mod.launch_for(()).call.quick(None)
    assert (sys.getrefcount(x), sys.getrefcount(x.dtype)) == before


def test_none_is_counted(mod: Executable) -> None:
    """Where None can die (before Python 3.12), it must be passed with a new reference."""
    before = sys.getrefcount(None)
    held = [mod.launch_for(()).call.quick() for _ in range(1000)]
    assert sys.getrefcount(None) == before or sys.getrefcount(None) - before >= len(held)


def test_no_memory_for_results_is_an_error(mod: Executable) -> None:
    def fail() -> np.ndarray:
        raise MemoryError("none left")

    first = np.zeros(SIZE, np.float32)
    two = replace(mod.manifest, outputs=mod.manifest.outputs * 2)
    call = PythonCall(mod.launcher.template, fixed_sizes(two), [lambda: first, fail], ArenaPool(),
                      releases=False)
    for _ in range(3):
        with pytest.raises(MemoryError, match="none left"):
            call.quick(sample())
    del call
    gc.collect()
    assert sys.getrefcount(first) <= 3  # this name, the closure, the argument


def test_no_arena_is_free(mod: Executable) -> None:
    """A maker that calls the program again meets an arena in use, as a thread would."""
    makers = [functools.partial(np.empty, SIZE, np.float32)]
    arenas = ArenaPool()
    sizes = fixed_sizes(manifest())
    call = PythonCall(mod.launcher.template, sizes, makers, arenas, releases=False)
    in_use = arenas.take(sizes.arena_bytes)
    assert call.quick(sample()) == NO_ARENA
    (y,) = call.run([sample()])
    np.testing.assert_array_equal(y, expected(sample()))
    assert arenas.take(sizes.arena_bytes) not in (0, in_use)


def test_it_outlives_its_module() -> None:
    mod = module()
    builtin = mod.launch_for(()).call.quick
    del mod
    gc.collect()
    np.testing.assert_array_equal(builtin(sample())[0], expected(sample()))


def test_many_inputs_and_outputs_of_all_kinds() -> None:
    kinds = ["float32", "float64", "int8", "int64", "uint16", "bool", "float16", "bfloat16"]
    shapes = [(), (1,), (3, 5), (2, 3, 4), (0, 2), (1, 1, 1, 1), (7,), (2, 2)]
    params = ", ".join(f"%x{i}: Tensor[{s if len(s) != 1 else f'({s[0]})'}, {k}]"
                       for i, (k, s) in enumerate(zip(kinds, shapes, strict=True)))
    body = ", ".join(f"copy(%x{i})" for i in range(len(kinds)))
    mod = weft.compile(weft.parse(f"def @main({params}) {{ ({body}) }}"))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2, s).astype(ml_dtypes.bfloat16 if k == "bfloat16" else k)
              for k, s in zip(kinds, shapes, strict=True)]
    arrays = [np.asarray(a) for a in arrays]
    assert isinstance(quick(mod, *arrays), list)
    feeds = {spec.name: array for spec, array in zip(mod.inputs, arrays, strict=True)}
    for results in (mod(*arrays), mod.run(None, feeds), mod(**feeds)):
        for result, array in zip(results, arrays, strict=True):
            assert result.dtype == array.dtype
            np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("short", [True, False])
def test_threads_work_in_arenas_of_their_own(
    monkeypatch: pytest.MonkeyPatch, *, short: bool
) -> None:
    monkeypatch.setattr("weft.runtime.devices.cpu.main_function.is_short", lambda *_: short)
    mod = module()
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = sample(seed)
        wanted = expected(x)
        wrong.extend(seed for _ in range(300) if not np.array_equal(mod(x), wanted))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert len(mod.launcher.arenas._blocks) <= len(workers)


def test_short_calls_keep_the_lock() -> None:
    small = manifest()
    assert not short(small)  # 20 kB
    one, two = (replace(step, bytes_moved=400, flops=100) for step in small.steps)
    assert short(replace(small, steps=(one, two)))
    assert not short(replace(small, steps=(one, two), jumps=(BackJump(2, 0),)))
    foreign = replace(two, bytes_moved=0, flops=0)
    assert not short(replace(small, steps=(one, foreign)))
