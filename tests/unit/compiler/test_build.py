"""Kernels from the cache, from here, and from worker processes."""

import contextlib
import pickle
import sys

import numpy as np
import pytest

import weft
import weft.op
from weft import te
from weft.codegen import CPU_BACKEND
from weft.compiler.build import kernels as build
from weft.compiler.build import worker_pool, worker_process
from weft.compiler.build.built_kernel import BuiltKernel
from weft.compiler.build.kernels import build_kernels
from weft.compiler.extensions import is_self_contained
from weft.compiler.program.lowering import lower_program
from weft.ir import OPS, Attrs, OpPattern, define_op, infer_type, parse
from weft.ir.typing.relations import same_type_as
from weft.support import interpreter
from weft.support.errors import InternalError
from weft.target import CpuTarget, Target

TARGET = CpuTarget.host()
SIX_KERNELS = """
def @main(%x: Tensor[(4, 6), float32]) {
  %0 = exp(%x);
  %1 = negative(%0);
  %2 = nn.softmax(%1);
  %3 = tanh(%2);
  %4 = sqrt(%3);
  sum(%4, axis=(1,))
}"""


def kernels_of(text):
    return lower_program(infer_type(parse(text))).kernels


@pytest.fixture
def kernels():
    return kernels_of(SIX_KERNELS)


@pytest.mark.parametrize(("share", "count"), [(None, 64), (1.5, 2), (0.1, 1)])
def test_as_many_processes_build_as_the_container_grants(monkeypatch, share, count):
    monkeypatch.delenv("WEFT_BUILD_JOBS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr("weft.runtime.devices.cpu.host.cpu_quota", lambda _: share)
    assert build.job_count() == count
    with weft.config(build_jobs=5):
        assert build.job_count() == 5


def test_a_kernel_survives_the_way_to_disk():
    facts = weft.compiler.build.built_kernel.KernelFacts("sym", "op.cpu.x", 10, 20, 64)
    kernel = BuiltKernel(facts, b"\x7fELF")
    assert BuiltKernel.from_bytes(memoryview(kernel.to_bytes())) == kernel


def test_workers_build_the_same_code_as_this_process(kernels):
    with weft.config(no_cache=True, build_jobs=1):
        here = build_kernels(kernels, TARGET)
    with weft.config(no_cache=True, build_jobs=3):
        there = build_kernels(kernels, TARGET)
    assert here == there
    assert [k.facts.symbol for k in here] == [k.name for k in kernels]


def test_workers_compile_python_bodies(monkeypatch):
    """Those of weft's own operators: a worker finds them where this process does."""
    pytest.importorskip("numba")
    kernels = kernels_of("""
        def @main(%x: Tensor[(1, 3, 7, 8), float32], %r: Tensor[(3, 5), float32]) {
          %0 = vision.roi_pool(tanh(%x), %r, pooled_size=(2, 3));
          sum(nn.softmax(sqrt(%0)), axis=(1,))
        }""")
    sent = []
    build_there = worker_pool.Worker.build

    def record(worker, kernel, target):
        sent.append(kernel.text)
        return build_there(worker, kernel, target)

    monkeypatch.setattr(worker_pool.Worker, "build", record)
    monkeypatch.setattr(build, "_build_here", lambda *_: None)  # leave all to the workers
    with weft.config(no_cache=True, build_jobs=2):
        there = build_kernels(kernels, TARGET)
    assert any("roi_pool" in text for text in sent)
    monkeypatch.undo()
    with weft.config(no_cache=True, build_jobs=1):
        assert build_kernels(kernels, TARGET) == there


def test_the_second_build_comes_from_the_cache(kernels, tmp_path, monkeypatch):
    with weft.config(cache_dir=tmp_path, build_jobs=1):
        first = build_kernels(kernels, TARGET)
        monkeypatch.setattr("weft.compiler.build.kernel.build_kernel",
                            lambda *_: pytest.fail("built again"))
        assert build_kernels(kernels, TARGET) == first


def test_a_cache_entry_is_for_one_target(kernels, tmp_path, monkeypatch):
    with weft.config(cache_dir=tmp_path, build_jobs=1):
        build_kernels(kernels[:1], TARGET)
        monkeypatch.setattr("weft.compiler.build.kernel.build_kernel",
                            lambda *_: pytest.fail("built again"))
        with pytest.raises(pytest.fail.Exception):
            build_kernels(kernels[:1], Target.of("llvm -mcpu=x86-64-v2"))


def test_a_worker_that_dies_names_its_kernel(kernels, monkeypatch):
    monkeypatch.setattr(worker_process.sys, "executable", "/bin/false")
    worker = worker_pool.Worker()
    with pytest.raises(InternalError, match=kernels[0].name) as caught, worker:
        worker.build(kernels[0], TARGET)
    assert "WEFT_BUILD_JOBS=1" in caught.value.help


def test_an_error_in_a_worker_arrives_with_its_fields(kernels):
    broken = weft.compiler.program.program.KernelSource("broken", "0" * 64, 7, "nothing")
    with worker_pool.Worker() as worker, pytest.raises(InternalError, match="broken"):
        worker.build(broken, TARGET)


def test_workers_get_the_settings_of_the_call(kernels, monkeypatch):
    sent = []
    write_frame = worker_pool.write_frame

    def record(stream, value):
        sent.append(value[3])
        write_frame(stream, value)

    monkeypatch.setattr(worker_pool, "write_frame", record)
    with weft.config(no_cache=True, build_jobs=3, verify=2):
        build_kernels(kernels, TARGET)
    assert sent
    assert all(settings["verify"] == 2 for settings in sent)


@contextlib.contextmanager
def user_operator(compute):
    """The operator ``test.user`` with a compute that cannot be found in weft's sources."""
    def run(x, attrs):
        """An operator outside weft."""
        return compute(x)

    relation = same_type_as(0)
    define_op("test.user", attrs=Attrs, pattern=OpPattern.ELEMWISE, relation=relation)(run)
    try:
        yield kernels_of("def @main(%x: Tensor[(4,), float32]) { test.user(%x) }")
    finally:
        OPS.remove("test.user")


def test_what_a_user_defines_is_built_here_and_kept_by_what_it_computes(tmp_path, monkeypatch):
    def scaled(factor):
        return lambda x: te.compute(x.shape, lambda *i: x[i] * factor, name="scaled")

    with weft.config(cache_dir=tmp_path, build_jobs=4):
        with user_operator(scaled(2.0)) as kernels:
            assert not is_self_contained(kernels[0].function, TARGET)
            monkeypatch.setattr(worker_pool.Worker, "build", lambda *_: pytest.fail("sent away"))
            double = build_kernels(kernels, TARGET)
        with user_operator(scaled(3.0)) as kernels:
            assert build_kernels(kernels, TARGET) != double
        monkeypatch.setattr(type(CPU_BACKEND), "build_kernel",
                            lambda *_: pytest.fail("built again"))
        with user_operator(scaled(2.0)) as kernels:
            assert build_kernels(kernels, TARGET) == double


def test_python_bodies_are_kept_by_their_code(tmp_path, monkeypatch):
    pytest.importorskip("numba")

    def with_offset(offset):
        def body(x, y):
            for i in range(x.shape[0]):
                y[i] = x[i] + offset

        return lambda x: te.python_extern([x.shape], [x], body, [x.dtype])[0]

    with weft.config(cache_dir=tmp_path):
        with user_operator(with_offset(1.0)) as kernels:
            one = build_kernels(kernels, TARGET)
        with user_operator(with_offset(2.0)) as kernels:
            assert build_kernels(kernels, TARGET) != one
        monkeypatch.setattr("weft.codegen.llvm.python_bodies.link.compile_body",
                            lambda *_: pytest.fail("compiled again"))
        with user_operator(with_offset(1.0)) as kernels:
            assert build_kernels(kernels, TARGET) == one


def test_a_model_file_with_a_users_operator_is_not_taken_from_the_cache(tmp_path):
    """Nothing in the file says what the operator computes today."""
    path = tmp_path / "model.ir"
    path.write_text("def @main(%x: Tensor[(4,), float32]) { test.user(%x) }")
    x = np.ones(4, np.float32)
    with weft.config(cache_dir=tmp_path / "cache"):
        for factor in (2.0, 3.0):
            compute = lambda t, f=factor: te.compute(t.shape, lambda *i: t[i] * f)
            with user_operator(compute):
                np.testing.assert_array_equal(weft.compile(path)(x), x * np.float32(factor))


def test_functions_cross_process_boundaries(kernels):
    for kernel in kernels:
        again = pickle.loads(pickle.dumps(kernel.function))
        assert weft.ir.structural_hash(again) == kernel.digest


def test_dumping_writes_three_files_per_kernel(kernels, tmp_path):
    with weft.config(dump_dir=tmp_path):
        build_kernels(kernels[:2], TARGET)
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".ll", ".ll", ".s", ".s", ".tir",
                                                            ".tir"]


def test_files_of_the_working_folder_do_not_reach_workers(kernels, tmp_path, monkeypatch):
    for name in ("random.py", "numpy.py", "weft.py"):
        (tmp_path / name).write_text("raise SystemExit('imported by accident')")
    monkeypatch.chdir(tmp_path)
    with worker_pool.Worker() as worker:
        assert worker.build(kernels[0], TARGET).facts.symbol == kernels[0].name


def test_workers_import_from_where_this_process_does(kernels, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), ""])
    assert str(tmp_path) in interpreter.import_path()
    assert "" not in interpreter.import_path()
