"""No silent change of plan: every one is warned of once, listed, kept, and refused by strict."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import weft
from weft.codegen import backend_of
from weft.codegen.cuda import nvvm
from weft.compiler.program import build
from weft.runtime.device import HOST
from weft.support.errors import (
    CodegenError,
    InternalError,
    LoweringError,
    MissingToolError,
    StrictError,
    UnsupportedModelError,
)
from weft.target import CudaTarget

TWO = """def @main(%x: Tensor[(64, 8), float32]) {
  let %y = nn.softmax(%x);
  (%y, sum(exp(%x), axis=[0]))
}"""
CUDA = "cuda -arch=sm_90a"
UNNAMED = "def @main(%x: Tensor[(?, 8), float32]) { nn.relu(%x) }"
PLAIN = "def @main(%x: Tensor[(4, 8), float32]) { nn.relu(%x) }"


@pytest.fixture
def without_libnvvm(monkeypatch):
    monkeypatch.setattr(nvvm, "find_library", lambda _: None)


@pytest.fixture(params=[CodegenError, LoweringError])
def without_softmax(request, monkeypatch):
    """Let the back end of GPUs refuse one kernel."""
    kind = type(backend_of(CudaTarget()))
    build = kind.build_kernel

    def refuse(self, func, target):
        if "softmax" in func.name:
            raise request.param("no such instruction", help="use float16")
        return build(self, func, target)

    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    monkeypatch.setattr(kind, "build_kernel", refuse)


@pytest.mark.usefixtures("without_libnvvm")
def test_a_tool_that_is_not_installed_is_an_error():
    with pytest.raises(MissingToolError, match=r"libnvvm was not found(.|\n)*pip install weft"):
        weft.compile(weft.parse(PLAIN), target=f"{CUDA} -codegen=nvvm", no_cache=True)


@pytest.mark.usefixtures("without_softmax")
def test_a_kernel_that_the_device_refuses_is_listed_everywhere(tmp_path):
    with pytest.warns(weft.FallbackWarning, match="softmax.* runs on the host, not on cuda:0"):
        module = weft.compile(weft.parse(TWO), target=CUDA)
    devices = {step.op: step.device for step in module.manifest.steps}
    assert HOST in devices.values()
    assert any(device.kind == "cuda" for device in devices.values())
    told = module.manifest.fallbacks[0]
    assert (told.cause, told.cure) == ("no such instruction", "use float16")
    assert told.what in module.explain()
    module.export(tmp_path / "net.weft")
    with weft.config(cuda="emulate"):
        assert told.what in weft.load(tmp_path / "net.weft").explain()


@pytest.mark.usefixtures("without_softmax")
def test_strict_refuses_kernels_on_the_host():
    with pytest.raises(StrictError, match="no such instruction"):
        weft.compile(weft.parse(TWO), target=CUDA, strict=True)


def test_a_defect_is_no_reason_to_use_the_host(monkeypatch):
    def fail(*_):
        raise InternalError("of weft's own")

    monkeypatch.setattr(type(backend_of(CudaTarget())), "build_kernel", fail)
    with pytest.raises(InternalError, match="of weft's own"):
        weft.compile(weft.parse(PLAIN), target=CUDA, no_cache=True)


def test_programs_per_shape_name_the_axis_and_count_compilations():
    with pytest.warns(weft.FallbackWarning, match=r"axis 0 \(\?\) of input 'x'") as caught:
        model = weft.compile(weft.parse(UNNAMED))
    for n in (3, 4, 3):
        model(np.ones((n, 8), np.float32))
    assert len(caught) == 1
    assert "n0" in caught[0].message.fallback.cure
    assert "compiled for sets of input shapes: 2" in model.explain()
    with pytest.raises(StrictError, match="only run time determines"):
        weft.compile(weft.parse(UNNAMED), strict=True)
    named = weft.compile(weft.parse(UNNAMED), inputs={"x": ("n0", 8)}, strict=True)  # the cure
    assert named(np.ones((3, 8), np.float32)).shape == (3, 8)


def test_settings_that_ask_for_programs_per_shape_are_listed_alone():
    text = UNNAMED.replace("?", "n")
    model = weft.compile(weft.parse(text), symbolic_sizes=False, strict=True)
    assert "(listed only)" in model.explain()


@pytest.mark.parametrize("text", [UNNAMED.replace("?", "n"), """
def @main(%x: Tensor[(9,), float32]) { argwhere(%x) }"""])
@pytest.mark.parametrize("error", [InternalError, MissingToolError])
def test_a_defect_is_no_reason_for_programs_per_shape(text, error, monkeypatch):
    def fail(*_):
        raise error("not this one")

    monkeypatch.setattr(build, "_symbolic", fail)
    with pytest.raises(error, match="not this one"):
        weft.compile(weft.parse(text), no_cache=True)


def test_what_weft_does_not_support_is_a_reason(monkeypatch):
    def fail(*_):
        raise UnsupportedModelError("not this one")

    monkeypatch.setattr(build, "_symbolic", fail)
    with pytest.warns(weft.FallbackWarning, match="not this one"):
        weft.compile(weft.parse(UNNAMED.replace("?", "n")), no_cache=True)
    model = weft.compile(weft.parse("def @main(%x: Tensor[(9,), float32]) { argwhere(%x) }"),
                         no_cache=True)
    assert "sizes that data determines are unknown" in model.explain()


def test_copies_of_inputs_are_counted_and_warned_of_once():
    model = weft.compile(weft.parse(PLAIN))
    assert model.explain().endswith("what weft does instead: nothing")
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    with pytest.warns(weft.FallbackWarning, match="'x' is copied") as caught:
        results = [model(x.T) for _ in range(3)]
    assert len(results) == 3
    assert len(caught) == 1
    assert "is copied before the call (3 times)" in model.explain()
    strict = weft.compile(weft.parse(PLAIN), strict=True)
    with pytest.raises(StrictError, match="not C-contiguous"):
        strict(x.T)
    with pytest.raises(StrictError, match="foreign order"):
        strict(x.reshape(4, 8).astype(">f4"))


@pytest.mark.parametrize("racy", [0, 10**15], ids=["old file", "new file"])
def test_code_from_the_cache_warns_and_lists_as_the_first_time(tmp_path, racy):
    """The state of a file that has just changed says nothing, so that its content is read."""
    (tmp_path / "net.ir").write_text("""
def @grow(%n: int32, %x: Tensor[(?,), float32]) -> Tensor[(?,), float32] {
  if (less(%n, 1)) { %x } else { @grow(subtract(%n, 1), concatenate((%x, exp(%x)), axis=0)) }
}
def @main(%n: int32, %x: Tensor[(2,), float32]) { @grow(%n, %x) }""")
    program = f"RACY = {racy}" + textwrap.dedent("""
        import warnings, weft
        from weft.support import file_content
        file_content.RACY_NS = RACY
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = weft.compile("net.ir")
        print([str(one.message) for one in told])
        print(model.explain().split("what weft")[1])
        try:
            weft.compile("net.ir", strict=True)
        except weft.errors.StrictError:
            print("refused")
    """)
    env = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache"), "WEFT_VERIFY": "1"}
    first, second = (subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env,
                                    capture_output=True, text=True, check=True).stdout
                     for _ in range(2))
    assert first == second
    assert first.count("compiled during calls") == 2
    assert first.endswith("refused\n")
