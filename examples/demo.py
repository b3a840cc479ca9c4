"""weft on a real model: compile, check, profile, export, run the artifact.

    python examples/demo.py [--threads N] [--repeat N]

The model is the ResNet-50 of the onnx package, which has one stored input and output.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import weft
from weft.support.progress import report_to, reporter_for

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODEL = DATA / "light_resnet50.onnx"
STORED = DATA / "light_resnet50_output_0.pb"
CHILD = """
import sys, numpy as np, weft
module = weft.load(sys.argv[1])
y = module(np.load(sys.argv[2]))
heavy = sorted(m for m in ("llvmlite", "numba", "onnx", "torch") if m in sys.modules)
assert not heavy, f"the artifact's process imported {heavy}"
np.save(sys.argv[3], y)
print(f"{len(sys.modules)} modules imported, none of llvmlite, numba, onnx, torch")
"""


def heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def stored_tensor(path: Path) -> np.ndarray:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def model_input(module: Any) -> np.ndarray:
    """The input that the stored output belongs to: the package's own rule for light models."""
    port = module.inputs[0]
    shape = tuple(port.shape)
    size = int(np.prod(shape))
    return (np.arange(size, dtype=np.float32) / size).reshape(shape)


def milliseconds(run: Callable[[], object], repeat: int) -> float:
    """The middle of ``repeat`` timings."""
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3


def compile_model() -> Any:
    heading(f"compile {MODEL.name}")
    start = time.perf_counter()
    with report_to(reporter_for(sys.stderr)):
        module = weft.compile(MODEL)
    print(f"compiled in {time.perf_counter() - start:.2f} s for {weft.CpuTarget.host().cpu}")
    for kind, ports in (("input", module.inputs), ("output", module.outputs)):
        for port in ports:
            print(f"  {kind} {port}")
    return module


def check(module: Any, x: np.ndarray) -> np.ndarray:
    heading("run, and compare with the stored output")
    y = module(x)
    expected = stored_tensor(STORED)
    error = float(np.max(np.abs(y - expected)))
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-6)
    print(f"largest difference {error:.2e}: the outputs agree")
    print("top-5 classes (index: probability; the weights of the light model are filled with\n"
          "constants, so that all of its classes are equally likely):")
    for index in np.argsort(-y[0], kind="stable")[:5]:
        print(f"  {index:4d}: {y[0, index]:.6f}")
    return y


def profile(module: Any, x: np.ndarray, repeat: int) -> None:
    heading("slowest kernels")
    print(module.profile(x, repeat=repeat).table(limit=12))


def compare_latency(module: Any, x: np.ndarray, threads: int | None, repeat: int) -> None:
    heading("latency")
    print(f"weft         {milliseconds(lambda: module(x), repeat):8.2f} ms")
    try:
        import onnxruntime
    except ImportError:
        print("onnxruntime is not installed: nothing to compare with")
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of an initializer that the model does not use
    if threads:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(MODEL), options,
                                           providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: x}
    print(f"onnxruntime  {milliseconds(lambda: session.run(None, feeds), repeat):8.2f} ms")


def export_and_reload(module: Any, x: np.ndarray, y: np.ndarray) -> None:
    heading("export an artifact, and run it in a process without a compiler")
    with tempfile.TemporaryDirectory() as folder:
        artifact, given, got = (Path(folder) / n for n in ("resnet50.weft", "x.npy", "y.npy"))
        module.export(artifact)
        print(f"wrote {artifact.name}: {artifact.stat().st_size / 1e6:.1f} MB")
        np.save(given, x)
        subprocess.run([sys.executable, "-c", CHILD, artifact, given, got], check=True)
        np.testing.assert_array_equal(np.load(got), y)
    print("the artifact gives the same numbers, bit for bit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    with weft.config(threads=arguments.threads):
        module = compile_model()
        x = model_input(module)
        y = check(module, x)
        profile(module, x, arguments.repeat)
        compare_latency(module, x, arguments.threads, arguments.repeat)
        export_and_reload(module, x, y)
    print("\nall of it worked")


if __name__ == "__main__":
    main()
