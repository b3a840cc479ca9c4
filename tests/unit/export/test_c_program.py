"""Artifacts for C: compiled by the system's compiler and run without Python."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import weft
from weft import op
from weft.cli.main import main
from weft.codegen.elf.linker import find_linkers
from weft.ir import Function, Tuple, const, var
from weft.ir.python.builder import while_loop
from weft.runtime.devices.cpu.elf.object_file import read_symbols
from weft.runtime.devices.cpu.host import machine
from weft.support.errors import ArtifactError, OptionError

pytestmark = pytest.mark.usefixtures("cache_of_module")

CC = shutil.which("cc")
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror")
STRICT_C = ("-std=c99", *STRICT)
CMAKE = shutil.which("cmake")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")
needs_linker = pytest.mark.skipif(not find_linkers(machine()), reason="there is no linker")


def model(scale=1.0):
    """A loop over a layer with weights, and whether the input is positive."""
    n, x = var("n", (), "int32"), var("x", (2, 16))
    weights = np.random.default_rng(0).standard_normal((16, 16), np.float32) * np.float32(scale)
    loop = while_loop(lambda i, _: op.less(i, n),
                      lambda i, s: (i + 1, op.nn.softmax(op.nn.dense(s, const(weights)))),
                      const(0), x)
    return weft.compile(Function((n, x), Tuple((loop[1], op.greater(x, const(0.0))))))


def build(folder, *files, program="main"):
    target = folder / program
    subprocess.run([CC, *STRICT_C, "-I", folder, *files, "-lm", "-o", target], check=True)
    return target


@needs_cc
@needs_linker
def test_a_program_in_c_gives_the_same_bytes(tmp_path):
    module = model()
    folder = tmp_path / "my-net.1"
    module.export(folder, format="c")
    assert sorted(p.name for p in folder.iterdir()) == [
        "CMakeLists.txt", "main.c", "my_net_1.h", "my_net_1.o"]
    program = build(folder, folder / "main.c", folder / "my_net_1.o")
    n, x = np.int32(3), np.random.default_rng(1).standard_normal((2, 16), np.float32)
    (tmp_path / "n").write_bytes(n.tobytes())
    (tmp_path / "x").write_bytes(x.tobytes())
    subprocess.run([program, *(tmp_path / name for name in ("n", "x", "y", "flags"))], check=True)
    y, flags = module(n, x)
    assert (tmp_path / "y").read_bytes() == y.tobytes()
    assert (tmp_path / "flags").read_bytes() == flags.tobytes()


CALLER = """
#include <stdio.h>
#include <stdlib.h>
#include "one.h"
#include "two.h"
int main(void) {
  int n = 1;
  float x[32] = {0}, y[32], z[32];
  unsigned char flags[32];
  const void *inputs[] = {&n, x};
  void *outputs[] = {y, flags}, *others[] = {z, flags}, *missing[] = {NULL, flags};
  size_t size = (one_workspace_size() + two_workspace_size() + 127) / 64 * 64;
  char *workspace = (char *)(((size_t)malloc(size + 63) + 63) / 64 * 64);
  x[0] = 1.0f;
  printf("%d %d ", one_run(inputs, outputs, workspace), two_run(inputs, others, workspace));
  printf("%d %d %d ", one_run(inputs, missing, workspace), one_run(NULL, outputs, workspace),
         one_run(inputs, outputs, NULL));
  printf("%d %d", one_run(inputs, outputs, workspace + 1), y[0] != z[0]);
  return 0;
}
"""


@needs_cc
@needs_linker
def test_two_models_in_one_program_and_the_error_codes(tmp_path):
    model().export(tmp_path / "one", format="c")
    model(scale=2.0).export(tmp_path / "two", format="c")
    source = tmp_path / "caller.c"
    source.write_text(CALLER)
    program = tmp_path / "caller"
    subprocess.run([CC, *STRICT_C, "-I", tmp_path / "one", "-I", tmp_path / "two", source,
                    tmp_path / "one" / "one.o", tmp_path / "two" / "two.o", "-lm", "-o", program],
                   check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == "0 0 1 1 1 2 1"


@needs_linker
def test_the_command_line_writes_the_folder(tmp_path, capsys):
    path = tmp_path / "net.ir"
    path.write_text("def @main(%x: Tensor[(4,), float32]) { tanh(%x) }")
    with pytest.raises(SystemExit) as end:
        main(["compile", str(path), "--format", "c"])
    assert end.value.code == 0
    assert "wrote" in capsys.readouterr().out
    assert {p.name for p in (tmp_path / "net").iterdir()} == {
        "CMakeLists.txt", "main.c", "net.h", "net.o"}


@needs_linker
def test_the_object_shows_two_names_and_keeps_no_state(tmp_path):
    module = model()
    module.export(tmp_path / "net", format="c")
    first = (tmp_path / "net" / "net.o").read_bytes()
    visible = {s.name for s in read_symbols(first) if s.is_defined and s.is_global}
    assert visible == {"net_run", "net_workspace_size"}
    needed = {s.name for s in read_symbols(first) if not s.is_defined}
    assert needed <= {"memset", "memcpy", "memmove"}
    assert b".bss" not in first or b"weft.threads" not in first
    module.export(tmp_path / "again" / "net", format="c")
    assert (tmp_path / "again" / "net" / "net.o").read_bytes() == first


@needs_cc
@needs_linker
def test_libraries_hold_the_same_functions(tmp_path):
    module = model()
    module.export(tmp_path / "net", format="lib")
    found = {p.name for p in (tmp_path / "net").iterdir()}
    assert found == {"CMakeLists.txt", "libnet.a", "libnet.so", "main.c", "net.h"}
    module.export(tmp_path / "again" / "net", format="lib")
    for name in found:
        assert (tmp_path / "again" / "net" / name).read_bytes() == \
            (tmp_path / "net" / name).read_bytes()
    n, x = np.int32(3), np.random.default_rng(1).standard_normal((2, 16), np.float32)
    (tmp_path / "n").write_bytes(n.tobytes())
    (tmp_path / "x").write_bytes(x.tobytes())
    for library in ("libnet.a", "libnet.so"):
        program = build(tmp_path / "net", tmp_path / "net" / "main.c",
                        tmp_path / "net" / library, f"-Wl,-rpath,{tmp_path / 'net'}")
        subprocess.run([program, *(tmp_path / name for name in ("n", "x", "y", "flags"))],
                       check=True)
        assert (tmp_path / "y").read_bytes() == module(n, x)[0].tobytes()


@needs_cc
@needs_linker
@pytest.mark.skipif(CMAKE is None, reason="there is no CMake")
@pytest.mark.parametrize("form", ["c", "lib"])
def test_cmake_builds_the_folder_and_a_program_over_it(tmp_path, form):
    module = weft.compile(weft.parse("def @main(%x: Tensor[(4,), float32]) { tanh(%x) }"))
    module.export(tmp_path / "net", format=form)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\nadd_subdirectory(net)\n"
        "add_executable(app net/main.c)\ntarget_link_libraries(app net)\n")
    (tmp_path / "x").write_bytes(np.ones(4, np.float32).tobytes())
    for source, program in (("net", "net_main"), (".", "app")):
        made = tmp_path / f"build-{program}"
        for command in (["-S", tmp_path / source, "-B", made], ["--build", made]):
            subprocess.run([CMAKE, *command], check=True, capture_output=True)
        subprocess.run([made / program, tmp_path / "x", tmp_path / "y"], check=True)
        assert (tmp_path / "y").read_bytes() == module(np.ones(4, np.float32)).tobytes()


@needs_cc
@needs_linker
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_the_sources_are_c_plus_plus_too(tmp_path):
    text = """def @main(%x: Tensor[(n, 4), float32], %t: Tensor[(4,), float32]) {
      (tanh(%x), add(%t, 1f)) }"""
    for name, state in (("plain", {}), ("stateful", {"output1": "t"})):
        weft.compile(weft.parse(text), state=state).export(tmp_path / name, format="c")
        subprocess.run(["c++", "-x", "c++", "-std=c++17", *STRICT, "-fsyntax-only",
                        tmp_path / name / "main.c"], check=True)


@needs_cc
@needs_linker
def test_models_without_inputs_constants_and_elements(tmp_path):
    text = 'def @main() { (zeros(shape=(2,), dtype="int64"), zeros(shape=(0, 3), dtype="int8")) }'
    weft.compile(weft.parse(text)).export(tmp_path / "9", format="c")
    program = build(tmp_path / "9", tmp_path / "9" / "main.c", tmp_path / "9" / "net_9.o")
    subprocess.run([program, tmp_path / "a", tmp_path / "b"], check=True)
    assert (tmp_path / "a").read_bytes() == bytes(16)
    assert (tmp_path / "b").read_bytes() == b""
    wrong = subprocess.run([program], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "usage" in wrong.stderr


def test_what_is_no_artifact_for_c(tmp_path):
    module = weft.compile(weft.parse("""
        def @f(%n: int32) -> int32 {
          if (less(%n, 1)) { 1 } else { multiply(%n, @f(subtract(%n, 1))) }
        }
        def @main(%n: int32) { @f(%n) }"""))
    with pytest.raises(ArtifactError, match="virtual machine"):
        module.export(tmp_path / "net", format="c")
    with pytest.raises(OptionError, match="unknown format of an artifact"):
        module.export(tmp_path / "net", format="wasm")
    if find_linkers(machine()):
        (tmp_path / "file").write_text("")
        with pytest.raises(ArtifactError, match="cannot be written"):
            model().export(tmp_path / "file", format="c")
