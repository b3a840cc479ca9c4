"""The loader for C and C++: artifacts run without Python and give Python's bits, others a code."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.sampling import share_of
from tests.unit.export.test_c_program import CC, STRICT, STRICT_C, needs_cc, needs_linker
from weft.cli.main import main
from weft.export import export_artifact
from weft.export.loaders import HERE, write_loader
from weft.runtime.artifact_contents import HEAD
from weft.runtime.artifact_file import ArtifactFile
from weft.runtime.devices.cpu.cpuid import _BITS, is_usable
from weft.runtime.devices.cpu.host import host_features, machine
from weft.runtime.devices.cpu.thread_pool import FIELD_BYTES, MAX_THREADS, LineField, PoolField
from weft.support.errors import ArtifactError, OptionError
from weft.target.cpus import CPU_FEATURES, with_implied

HARNESS = Path(__file__).parent / "loader_harness.c"
SOFTMAX = "def @main(%x: Tensor[(8, 8), float32]) { nn.softmax(nn.dense(%x, transpose(%x))) }"
OPEN = """
def @main(%x: Tensor[(n{0..64}, 8), float32], %total: Tensor[(8,), float32]) {
  let %y = nn.softmax(nn.dense(%x, %x));
  (concatenate((%y, %y)), add(%total, sum(%x, axis=(0,))))
}"""
X = np.random.default_rng(0).standard_normal((8, 8), np.float32)
(CANNOT_READ, NOT_AN_ARTIFACT, TRUNCATED, DAMAGED, OTHER_FORMAT, NO_SUCH_ENTRY, OTHER_MACHINE,
 MISSING_FEATURE, UNSUPPORTED, CANNOT_LOAD, MISSING_SYMBOL) = range(5, 16)

pytestmark = [needs_cc, needs_linker, pytest.mark.usefixtures("cache_of_module")]


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the sanitizers for addresses and undefined behaviour."""
    program = tmp_path_factory.mktemp("harness") / "harness"
    subprocess.run([CC, "-std=gnu99", "-O1", "-g", "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=undefined", "-I", HERE, HARNESS, "-o", program, "-lm",
                    "-lpthread", "-ldl"], check=True)
    return program


@pytest.fixture(scope="module")
def softmax() -> weft.Executable:
    return weft.compile(weft.parse(SOFTMAX))


@pytest.fixture(scope="module")
def whole(softmax: weft.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "net.weft"
    softmax.export(path, portable=False)
    return path


def run(harness: Path, path: Path, *arrays: np.ndarray, outputs: int = 0, entry: str = "",
        threads: int = 1, repeats: int = 1, sizes: str = "") -> list[bytes] | str:
    """The outputs and states as bytes, or the line of an error."""
    folder = path.parent
    names = [folder / f"in{n}" for n in range(len(arrays))]
    for name, array in zip(names, arrays, strict=True):
        name.write_bytes(array.tobytes())
    results = [folder / f"out{n}" for n in range(outputs)]
    done = subprocess.run([harness, "run", path, entry, str(threads), str(repeats), sizes, *names,
                           *results], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    assert not done.stderr
    return done.stdout if done.returncode else [name.read_bytes() for name in results]


def code_of(line: list[bytes] | str) -> int:
    assert isinstance(line, str), "it was accepted"
    return int(line.split()[1])


def test_a_program_gives_pythons_bits(harness: Path, whole: Path, softmax: weft.Executable) -> None:
    assert run(harness, whole, X, outputs=1) == [softmax(X).tobytes()]


@pytest.mark.parametrize("n", [0, 1, 13, 64])
def test_symbolic_sizes_and_state(harness: Path, tmp_path: Path, n: int) -> None:
    module = weft.compile(weft.parse(OPEN), state={"output1": "total"})
    path = tmp_path / "net.weft"
    module.export(path)
    x = np.random.default_rng(n).standard_normal((n, 8), np.float32)
    wanted = [module(x) for _ in range(3)][-1]
    found = run(harness, path, x, outputs=2, repeats=3, sizes=str(n))
    assert found == [wanted.tobytes(), module.state["total"].tobytes()]
    if n == 64:
        assert "3 the size n cannot be 65" in run(harness, path, x, sizes="65")


def test_first_values_entries_and_threads(harness: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.weft"
    x = np.random.default_rng(3).standard_normal((256, 256), np.float32)
    text = "def @main(%x: Tensor[(256, 256), float32]) { nn.dense(%x, tanh(%x)) }"
    module = weft.compile(weft.parse(text), threads=2)
    weft.export_entries({"one": module, "two": weft.compile(weft.parse(SOFTMAX))}, path,
                        levels=["v2", "v3"])
    wanted = weft.load(path, entry="one")(x).tobytes()
    for threads in (1, 3):
        assert run(harness, path, x, outputs=1, entry="one", threads=threads,
                   repeats=20) == [wanted]
    assert code_of(run(harness, path, X)) == NO_SUCH_ENTRY  # there is no main


def changed(path: Path, whole: Path, code: bytes | None = None, **changes: object) -> Path:
    """A file like ``whole`` with another manifest; ``target`` has changes of the target."""
    file = ArtifactFile(whole)
    (folder,) = file.contents.entries["main"].programs
    manifest = file.manifest(folder)
    target = replace(manifest.target, **changes.pop("target", {}))  # type: ignore[arg-type]
    export_artifact(path, replace(manifest, target=target, **changes),  # type: ignore[arg-type]
                    bytes(file.code(folder)) if code is None else code,
                    bytes(file.read("constants.bin")))
    return path


def test_wrong_files_give_codes(harness: Path, whole: Path, tmp_path: Path) -> None:
    path, data = tmp_path / "net.weft", whole.read_bytes()

    def code(content: bytes) -> int:
        path.write_bytes(content)
        return code_of(run(harness, path, X))

    assert code(b"") == code(data[:1000]) == code(data[:-1]) == TRUNCATED
    assert code(b"\x7fELF" + data) == code(b"a text, not an archive") == NOT_AN_ARTIFACT
    assert code_of(run(harness, tmp_path / "none.weft", X)) == CANNOT_READ
    assert code_of(run(harness, tmp_path, X)) == CANNOT_READ
    middle = data.index(b"\x7fELF") + 100
    assert code(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]) == DAMAGED
    newer, other = data.replace(b'"version": 4', b'"version": 5'), data.replace(
        b'"format": "weft artifact"', b'"format": "waft artifact"')
    assert newer != data != other
    assert code(newer) == OTHER_FORMAT
    assert code(other) == NOT_AN_ARTIFACT
    head = HEAD.encode()
    assert code(data.replace(head, b"artifact.josn")) == NOT_AN_ARTIFACT
    assert code(data.replace(head, b"manifest.json")) == OTHER_FORMAT  # as the oldest version was


def test_programs_for_others_give_codes(harness: Path, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.weft"

    def line(code: bytes | None = None, **changes: object) -> str:
        found = run(harness, changed(path, whole, code, **changes), X)
        assert isinstance(found, str)
        return found

    assert "12 the file has code that needs sse9" in line(target={"features": ("sse9",)})
    assert "11 the file has code for s390x-unknown-linux-gnu" in line(
        target={"triple": "s390x-unknown-linux-gnu"})
    assert code_of(line(target={"triple": f"{machine()}-pc-windows-msvc"})) == OTHER_MACHINE
    assert code_of(line(target={"kind": "cuda"})) == UNSUPPORTED
    assert code_of(line(launched_by="lanes")) == UNSUPPORTED
    assert code_of(line(b"no shared object")) == CANNOT_LOAD
    source, library = tmp_path / "empty.c", tmp_path / "empty.so"
    source.write_text("int weft_other = 1;\n")
    subprocess.run([CC, "-shared", source, "-o", library], check=True)
    assert code_of(line(library.read_bytes())) == MISSING_SYMBOL
    loop = weft.compile(weft.parse("""
        def @f(%n: int32) -> int32 {
          if (less(%n, 1)) { 1 } else { multiply(%n, @f(subtract(%n, 1))) }
        }
        def @main(%n: int32) { @f(%n) }"""))
    loop.export(path)
    assert "the virtual machine; use weft.load" in run(harness, path, np.int32(3))


def test_damaged_files_do_no_harm(harness: Path, whole: Path, softmax: weft.Executable,
                                  tmp_path: Path) -> None:
    """Each mutation is refused or gives the same result; others reach manifests and heads."""
    (tmp_path / "x").write_bytes(X.tobytes())
    (tmp_path / "y").write_bytes(softmax(X).tobytes())
    count, seed = int(10_000 * share_of(0.1)), np.random.default_rng().integers(1 << 30)
    done = subprocess.run([harness, "fuzz", whole, str(count), str(seed), tmp_path / "x",
                           tmp_path / "y"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"
    assert 0 < int(done.stdout.split()[0]) < count / 2  # of bytes that nothing reads


def test_the_table_of_features_is_that_of_python() -> None:
    """Neither has a feature, a bit or a state of registers that the other one lacks."""
    source = (HERE / "weft_loader.c").read_text()
    rows = re.findall(r'\{"([\w.-]+)", (\w+), (\d), (E.X), (\d+), (\w+)_STATE\},', source)
    registers = ("EAX", "EBX", "ECX", "EDX")
    assert {name: (int(leaf, 0), int(sub), registers.index(reg), int(bit))
            for name, leaf, sub, reg, bit, _ in rows} == _BITS
    states = {"NO": 0, "AVX": 0x6, "AVX512": 0xE6, "AMX": 0x60000}
    for name, *_, state in rows:
        assert is_usable(name, states[state]), name
        assert states[state] == 0 or not is_usable(name, states[state] & ~2 & ~0x20000), name


def test_the_layout_of_pools_is_that_of_python() -> None:
    source = (HERE / "weft_loader.c").read_text()
    found = re.search(r"enum \{\s*LINE = (\d+),(.*?)\n\};", source, re.DOTALL)
    assert found is not None
    values = {name: eval(text, {"LINE": int(found[1])})
              for name, text in re.findall(r"(\w+) = ([^,\n]+)", found[2])}
    assert int(found[1]) == FIELD_BYTES
    assert values["MAX_THREADS"] == MAX_THREADS
    for prefix, fields in (("POOL_", PoolField), ("LINE_", LineField)):
        for name, value in values.items():
            if name.startswith(prefix):
                assert fields[name.removeprefix(prefix)] == value, name


def test_the_cpu_has_what_python_finds(harness: Path, whole: Path, tmp_path: Path,
                                       softmax: weft.Executable) -> None:
    every = tuple(sorted(host_features()))
    path = changed(tmp_path / "net.weft", whole, target={"features": every})
    assert run(harness, path, X, outputs=1) == [softmax(X).tobytes()]
    everything = with_implied(frozenset().union(*map(frozenset, CPU_FEATURES.values())))
    for absent in sorted(everything - host_features())[:3]:
        path = changed(tmp_path / "net.weft", whole, target={"features": (absent,)})
        assert code_of(run(harness, path, X)) == MISSING_FEATURE


def test_the_sources_compile_without_warnings(tmp_path: Path) -> None:
    subprocess.run([CC, *STRICT_C, "-fsyntax-only", HERE / "weft_loader.c"], check=True)
    if shutil.which("c++"):
        for file in ("weft_loader.c", "weft_loader.hpp"):
            subprocess.run(["c++", "-x", "c++", "-std=c++17", *STRICT, "-fsyntax-only",
                            HERE / file], check=True)


PROGRAM = """
#include <cstdio>
#include "weft_loader.hpp"

template <class F> void refused(F body) {
  try { body(); std::puts("accepted"); }
  catch (const weft::error &error) { std::printf("%d %s\\n", error.code(), error.what()); }
}

int main(int, char **argv) {
  weft::program net(argv[1]);
  std::vector<float> x(2 * 8, 1.0f), y;
  {
    weft::call call(net, {2});
    y.resize(call.output_size(0));
    call.run({x}, {y});
    call.run({{x.data(), x.size()}}, {y});
    const float *total = static_cast<const float *>(call.state(0).data);
    std::printf("%zu %g %g\\n", y.size(), y[0], total[0]);
    refused([&] { std::vector<double> z(16); call.run({z}, {y}); });
    refused([&] { std::vector<float> z(15); call.run({z}, {y}); });
    refused([&] { call.run({x}, {}); });
  }
  refused([&] { weft::call call(net, {65}); });
  refused([&] { weft::call call(net); });
  refused([&] { weft::program other(weft::file(argv[1]), "other"); });
  std::puts(weft::file(argv[1]).entries().at(0).c_str());
}
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_objects_of_cpp_own_their_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]
                                         ) -> None:
    weft.compile(weft.parse(OPEN), state={"output1": "total"}).export(tmp_path / "net.weft")
    with pytest.raises(SystemExit) as end:
        main(["loader", "-o", str(tmp_path), "--language", "c++"])
    assert end.value.code == 0
    assert "weft_loader.hpp" in capsys.readouterr().out
    (tmp_path / "app.cpp").write_text(PROGRAM)
    flags = ("-g", "-fsanitize=address,undefined", "-I", tmp_path)
    loader = tmp_path / "loader.o"
    subprocess.run([CC, "-std=c99", *flags, "-c", tmp_path / "weft_loader.c", "-o", loader],
                   check=True)
    subprocess.run(["c++", "-std=c++17", *STRICT, *flags, tmp_path / "app.cpp", loader, "-o",
                    tmp_path / "app", "-lm", "-ldl"], check=True)
    done = subprocess.run([tmp_path / "app", tmp_path / "net.weft"], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "8 0.5 4", "3 x has elements of float32", "3 x has 64 bytes, not 60",
        "3 the program has 1 outputs", "3 the size n cannot be 65",
        "3 the program has 1 symbolic sizes", "10 the file has no entry point other", "main"]


def test_what_is_no_loader(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no loader for this language"):
        write_loader(tmp_path, "cobol")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_loader(tmp_path / "file")
