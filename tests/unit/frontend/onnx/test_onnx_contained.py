"""onnx's C++ code on damaged models: the caller goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import weft
from weft.frontend.onnx import contained
from weft.frontend.onnx.checks import upgrade_opset
from weft.frontend.onnx.contained import convert_version, infer_shapes, run_child
from weft.frontend.onnx.loader import load_model
from weft.support.errors import WeftError


def model(*nodes: onnx.NodeProto, opset: int = 17, shape: tuple[int, ...] = (2, 3),
          weights: tuple[np.ndarray, ...] = ()) -> ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


WEIGHTS = (np.arange(3, dtype=np.float32), np.ones((3, 5000), np.float32))


def test_the_result_is_that_of_the_call() -> None:
    proto = model(helper.make_node("MatMul", ["x", "w1"], ["y"]), weights=WEIGHTS)
    assert infer_shapes(proto) == onnx.shape_inference.infer_shapes(proto, data_prop=True)
    old = model(helper.make_node("MatMul", ["x", "w1"], ["y"]), opset=6, weights=WEIGHTS)
    assert convert_version(old, 9) == onnx.version_converter.convert_version(old, 9)


def test_the_model_is_left_as_it_was() -> None:
    proto = model(helper.make_node("MatMul", ["x", "w1"], ["y"]), weights=WEIGHTS)
    before = proto.SerializeToString(deterministic=True)
    infer_shapes(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_large_weights_are_not_sent() -> None:
    proto = model(helper.make_node("MatMul", ["x", "w1"], ["y"]), weights=WEIGHTS)
    assert contained._without_weights(proto).ByteSize() < 1000 < proto.ByteSize()


CHILDREN = {
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "error": "raise RuntimeError",
    "status": "import os; os._exit(0)",
    "interrupted": "import os, sys; sys.stdout.write('some'); sys.stdout.flush(); os._exit(0)",
    "deaf": "import os; os.close(0); os._exit(0)",
}


@pytest.mark.parametrize("code", CHILDREN.values(), ids=CHILDREN)
def test_a_child_that_ends_badly_gives_none(code: str) -> None:
    assert run_child([sys.executable, "-I", "-S", "-c", code], bytes(1 << 20)) is None


@pytest.mark.parametrize("executable", ["/nonexistent/python", "/dev/null", "/bin/false"])
def test_an_interpreter_that_does_not_start_gives_none(executable: str, monkeypatch) -> None:
    """As in programs that Python is embedded in; models are read without the help of onnx."""
    monkeypatch.setattr(sys, "executable", executable)
    proto = model(helper.make_node("Dropout", ["x"], ["y"], ratio=0.5), opset=7)
    assert infer_shapes(proto) is None
    module = weft.compile(proto)
    np.testing.assert_array_equal(module(np.ones((2, 3), np.float32)), 1)


def test_a_call_without_end_is_ended() -> None:
    started = time.monotonic()
    endless = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    assert run_child(endless, b"x", patience=0.2) is None
    assert time.monotonic() - started < 60


def test_a_call_that_computes_without_end_is_ended() -> None:
    """By its own CPU time, whatever else runs on the machine."""
    code = ("import runpy, sys; main = runpy.run_path(sys.argv[1]); main['limit_cpu_time'](1)\n"
            "while True: pass")
    command = [sys.executable, "-I", "-S", "-c", code, str(contained._CHILD)]
    assert run_child(command, b"x", patience=300) is None


def test_the_whole_package_serves_where_the_module_does_not_load_by_itself(monkeypatch) -> None:
    command = contained._command
    monkeypatch.setattr(contained, "_command", lambda *options: [
        word.replace("onnx_cpp2py_export.", "moved.") for word in command(*options)])
    proto = model(helper.make_node("Relu", ["x"], ["y"]))
    assert infer_shapes(proto) == onnx.shape_inference.infer_shapes(proto, data_prop=True)


@pytest.mark.parametrize("reap", ["ignore", "handler"])
def test_another_part_of_the_program_may_reap_children(reap: str) -> None:
    """As servers do that start programs of their own; in a process of its own."""
    code = f"""
import os, signal, onnx
from onnx import TensorProto, helper
from weft.frontend.onnx.contained import infer_shapes

def reap(*_):
    try:
        while os.waitpid(-1, 0)[0]:
            pass
    except ChildProcessError:
        pass

signal.signal(signal.SIGCHLD, signal.SIG_IGN if {reap == "ignore"} else reap)
graph = helper.make_graph(
    [helper.make_node("Relu", ["x"], ["y"])], "g",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
model = helper.make_model(graph)
for _ in range(3):
    found = infer_shapes(model)
    assert found == onnx.shape_inference.infer_shapes(model, data_prop=True), found
print("good")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "good\n", done.stderr


def test_locks_of_other_threads_do_not_reach_the_child() -> None:
    """What runs at a fork would see this thread's lock taken for ever."""
    held, release = threading.Event(), threading.Event()
    lock = threading.Lock()

    def hold() -> None:
        with lock:
            held.set()
            release.wait(30)

    os.register_at_fork(after_in_child=lambda: lock.locked() and time.sleep(600))
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        proto = model(helper.make_node("Relu", ["x"], ["y"]))
        assert infer_shapes(proto) is not None
    finally:
        release.set()
        thread.join()


def test_a_model_that_ended_the_process_is_refused() -> None:
    """A slice of a size below zero, over which onnx's inference stumbles; Celu has it run."""
    bounds = (np.array([0]), np.array([1]))
    proto = model(helper.make_node("Slice", ["x", "w0", "w1"], ["t"]),
                  helper.make_node("Celu", ["t"], ["y"]), opset=18, shape=(-5, 3), weights=bounds)
    assert infer_shapes(proto) is None
    with pytest.raises(WeftError):
        weft.compile(proto)


def test_old_opsets_are_converted() -> None:
    proto = model(helper.make_node("Dropout", ["x"], ["y"], ratio=0.5), opset=6, weights=WEIGHTS)
    found = upgrade_opset(load_model(proto))
    assert found.proto.opset_import[0].version == 7
    assert list(found.proto.graph.initializer) == list(proto.graph.initializer)
