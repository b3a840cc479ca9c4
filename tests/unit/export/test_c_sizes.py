"""Artifacts for C of programs with symbolic sizes and of programs with state."""

from __future__ import annotations

import ctypes
import re
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.unit.export.test_c_program import CC, build, needs_cc, needs_linker
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.c_entry import WEIGHTS, c_entry_text
from weft.export.c_source import header_text
from weft.runtime.devices.cpu.elf.object_file import read_symbols
from weft.runtime.manifest import MAIN_SYMBOL
from weft.target import CpuTarget, Target

pytestmark = [needs_cc, needs_linker, pytest.mark.usefixtures("cache_of_module")]

MLP = """
def @main(%x: Tensor[(batch{0..16}, seq{0..%2}, 16), float32], %w: Tensor[(16, 16), float32]) {
  %a = nn.dense(%x, %w);
  %b = multiply(%a, sigmoid(%a));
  (nn.softmax(nn.dense(%b, %w)), %b, concatenate((%x, %b), axis=1))
}"""
CONV = """
def @main(%x: Tensor[(n, 3, h, w), float32], %k: Tensor[(8, 3, 3, 3), float32]) {
  %y = nn.relu(nn.conv2d(%x, %k));
  (%y, sum(nn.max_pool2d(%y, pool_size=(4, 4)), axis=(2, 3)))
}"""
CACHE = """
def @main(%new: Tensor[(1, 2, n, 8), float32], %at: Tensor[(1), int64],
          %cache: Tensor[(1, 2, 64, 8), float32]) {
  %after = nn.cache_update(%cache, %new, %at);
  (sum(%after, axis=(2,)), %after)
}"""
OK, NULL_POINTER, UNALIGNED, WRONG_SIZE = range(4)
W = np.random.default_rng(0).standard_normal((16, 16), np.float32) / 4
K = np.random.default_rng(1).standard_normal((8, 3, 3, 3), np.float32)


class Net:
    """The functions of an exported model, called through ctypes as a C program calls them."""

    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        model.export(folder, format="c")
        library = folder / "net.so"
        subprocess.run([CC, "-shared", folder / f"{folder.name}.o", "-lm", "-o", library],
                       check=True)
        self._library = ctypes.CDLL(str(library))
        self.symbols = [symbol.name for symbol in model.manifest.symbols]

    def nbytes(self, what, *arguments):
        function = self._library[f"{self.folder.name}_{what}"]
        function.restype = ctypes.c_size_t
        indices = len(arguments) - len(self.symbols)
        return function(*arguments[:indices], *map(ctypes.c_int64, arguments[indices:]))

    def call(self, inputs, outputs, *sizes, states=None, workspace=None):
        """The code of a call; the workspace is as large as the model says, unless it is given."""
        if workspace is None:
            workspace = aligned(self.nbytes("workspace_size", *sizes))
        held = [pointers(arrays) for arrays in (inputs, outputs, *([states] if states else []))]
        return self._library[f"{self.folder.name}_run"](
            *held, ctypes.c_void_p(workspace if isinstance(workspace, int)
                                   else workspace.ctypes.data), *map(ctypes.c_int64, sizes))

    def run(self, inputs, *sizes):
        """The outputs: arrays whose sizes in bytes the artifact agrees with."""
        wanted = self.model(*inputs)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for kind, arrays in (("input", inputs), ("output", wanted)):
            assert [self.nbytes(f"{kind}_bytes", i, *sizes) for i in range(len(arrays))] == [
                a.nbytes for a in arrays]
        outputs = [np.full_like(array, 7) for array in wanted]
        assert self.call(inputs, outputs, *sizes) == OK
        for output, expected in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(output, expected)


def pointers(arrays):
    return (ctypes.c_void_p * len(arrays))(*(None if a is None else a.ctypes.data for a in arrays))


def aligned(nbytes):
    block = np.empty(nbytes + 64, np.uint8)
    return block[-block.ctypes.data % 64:]


def normal(*shape):
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    model = weft.compile(weft.parse(MLP), specialize={"seq": [2]})
    return Net(model, tmp_path_factory.mktemp("c") / "mlp")


@pytest.fixture(scope="module")
def conv(tmp_path_factory):
    return Net(weft.compile(weft.parse(CONV)), tmp_path_factory.mktemp("c") / "conv")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 16), st.integers(0, 40))
def test_a_perceptron_runs_at_all_sizes(mlp, batch, pairs):
    mlp.run([normal(batch, 2 * pairs, 16), W], batch, 2 * pairs)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 3), st.integers(6, 30), st.integers(6, 30))
def test_a_convolution_runs_at_all_sizes(conv, n, h, w):
    conv.run([normal(n, 3, h, w), K], n, h, w)


def test_wrong_sizes_and_pointers_give_codes(mlp, conv):
    x, outputs = normal(2, 4, 16), [np.empty(1024, np.float32) for _ in range(3)]
    inputs = [x, W]
    assert mlp.symbols == ["batch", "seq"]
    huge = 1 << 62
    for sizes in ((-1, 4), (17, 4), (2, 3), (2, -2), (16, huge), (1 << 32, 4)):
        assert mlp.call(inputs, outputs, *sizes, workspace=aligned(64)) == WRONG_SIZE
        assert mlp.nbytes("workspace_size", *sizes) == 0
        assert mlp.nbytes("input_bytes", 0, *sizes) == mlp.nbytes("output_bytes", 0, *sizes) == 0
    assert mlp.nbytes("input_bytes", 2, 2, 4) == mlp.nbytes("output_bytes", -1, 2, 4) == 0
    assert mlp.call([x, None], outputs, 2, 4) == NULL_POINTER
    assert mlp.call(inputs, [*outputs[:2], None], 2, 4) == NULL_POINTER
    assert mlp.call(inputs, outputs, 2, 4, workspace=0) == NULL_POINTER
    room = aligned(1 << 16).ctypes.data
    assert mlp.call(inputs, outputs, 2, 4, workspace=room + 8) == UNALIGNED
    # Arrays without elements may be null; the other input may not.
    assert mlp.call([None, W], [None, None, None], 0, 4) == OK
    assert mlp.call([None, None], [None, None, None], 0, 4) == NULL_POINTER
    # Each symbol is in its range, but an output would have -1 rows, or the window of the pooling
    # would not fit, or the output would have 2**64 bytes.
    assert conv.call([x, K], outputs, 1, 1, 9, workspace=aligned(64)) == WRONG_SIZE
    assert conv.call([x, K], outputs, 1, 9, 4, workspace=aligned(64)) == WRONG_SIZE
    assert conv.call([x, K], outputs, 1 << 20, 1 << 20, 1 << 21,
                     workspace=aligned(64)) == WRONG_SIZE


def test_main_takes_the_sizes_first(mlp, tmp_path):
    program = build(tmp_path, mlp.folder / "main.c", mlp.folder / "mlp.o")
    x = normal(3, 8, 16)
    (tmp_path / "x").write_bytes(x.tobytes())
    (tmp_path / "w").write_bytes(W.tobytes())
    files = [tmp_path / name for name in ("x", "w", "softmax", "b", "both")]
    subprocess.run([program, "3", "8", *files], check=True)
    for file, expected in zip(files[2:], mlp.model(x, W), strict=True):
        assert file.read_bytes() == expected.tobytes()
    for sizes, code, message in ((("3",), 2, "usage: .* batch seq INPUT"), (("3", "8x"), 2, "8x"),
                                 (("3", "7"), 1, "mlp_run: error 3")):
        wrong = subprocess.run([program, *sizes, *files], capture_output=True, text=True,
                               check=False)
        assert wrong.returncode == code
        assert re.search(message, wrong.stderr)


def test_the_caller_keeps_the_state(tmp_path):
    net = Net(weft.compile(weft.parse(CACHE), state={"output1": "cache"}), tmp_path / "cache")
    first, second = np.zeros((2, 1, 2, 64, 8), np.float32)
    at = 0
    for n in (3, 1, 0, 20):
        new, out = normal(1, 2, n, 8), np.empty((1, 2, 8), np.float32)
        assert net.call([new, np.int64([at])], [out], n, states=[first]) == OK
        np.testing.assert_array_equal(out, net.model(new, np.int64([at])))
        np.testing.assert_array_equal(first, net.model.state["cache"])
        at += n
    assert net.call([normal(1, 2, 1, 8), np.int64([5])], [out], 1, states=[second]) == OK
    assert np.count_nonzero(second.any(axis=(0, 1, 3))) == 1
    assert net.call([new, np.int64([0])], [out], 20, states=[None]) == NULL_POINTER
    build(tmp_path, net.folder / "main.c", net.folder / "cache.o")
    assert "cache_state_bytes[] = {4096};" in (net.folder / "cache.h").read_text()


def test_state_without_symbols(tmp_path):
    text = CACHE.replace("n, 8", "1, 8")
    net = Net(weft.compile(weft.parse(text), state={"output1": "cache"}), tmp_path / "fixed")
    state, out = np.zeros((1, 2, 64, 8), np.float32), np.empty((1, 2, 8), np.float32)
    for at in range(3):
        inputs = [normal(1, 2, 1, 8), np.int64([at])]
        assert net.call(inputs, [out], states=[state]) == OK
        np.testing.assert_array_equal(out, net.model(*inputs))
    build(tmp_path, net.folder / "main.c", net.folder / "fixed.o")


def test_parameters_have_names_that_c_accepts(tmp_path):
    text = "def @main(%x: Tensor[(int, index, _N), float32]) { concatenate((%x, %x)) }"
    net = Net(weft.compile(weft.parse(text)), tmp_path / "names")
    header = (net.folder / "names.h").read_text()
    assert "void *workspace, int64_t size_int,\n    int64_t size_index, int64_t size_N);" in header
    assert "float[2*size_int][size_index][size_N]" in header
    build(tmp_path, net.folder / "main.c", net.folder / "names.o")
    net.run([normal(2, 3, 4)], 2, 3, 4)


def test_the_header_of_fixed_sizes_has_constants():
    module = weft.compile(weft.parse("def @main(%x: Tensor[(4), float32]) { tanh(%x) }"))
    text = header_text("net", module.manifest, ["net.o"])
    assert text[text.index("/* inputs"):] == FIXED_HEADER


@pytest.mark.parametrize("arch", ["aarch64", "riscv64"])
def test_other_machines(mlp, arch):
    target = Target.of(f"llvm -mtriple={arch}-unknown-linux-gnu -mcpu=generic")
    assert isinstance(target, CpuTarget)
    code = build_text("net_run", c_entry_text("net", mlp.model.manifest, target), target,
                      externs=frozenset((MAIN_SYMBOL, WEIGHTS))).object
    defined = {s.name for s in read_symbols(code) if s.is_defined and s.name.startswith("net_")}
    assert defined == {"net_run", "net_workspace_size", "net_input_bytes", "net_output_bytes"}


FIXED_HEADER = """\
/* inputs
     0: float[4]  x (float32)
   outputs
     0: float[4]  output (float32) */
#define NET_NUM_INPUTS 1
#define NET_NUM_OUTPUTS 1
#define NET_WORKSPACE_ALIGNMENT 64

static const size_t net_input_bytes[] = {16};
static const size_t net_output_bytes[] = {16};

enum {
  NET_OK = 0,
  NET_NULL_POINTER = 1,       /* a pointer to an array, or one of the arguments, is NULL */
  NET_UNALIGNED_WORKSPACE = 2 /* its address is no multiple of NET_WORKSPACE_ALIGNMENT */
};

/* The size of the workspace of a call, in bytes. */
size_t net_workspace_size(void);

/* Run the model. Arrays are dense, in C order, aligned as their elements are, and do not overlap.
   Returns NET_OK or another of the codes above. */
int net_run(const void *const *inputs, void *const *outputs, void *workspace);

#ifdef __cplusplus
}
#endif
#endif
"""
