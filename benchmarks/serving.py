"""Throughput and latency of ``weft serve`` under load, beside onnxruntime in the same server.

    python -m benchmarks.serving [--model mlp] [--clients 1 8 32] [--seconds 5] [--threads 1]

Clients are coroutines of one process that speak HTTP to a server process on the loopback interface,
each with one connection and one request at a time, in the binary form of the Open Inference
Protocol. The servers take turns, so that the load of the machine meets both. With ``--text`` a
small decoder with random weights streams replies over OpenAI's interface, beside the server of
llama-cpp-python where that is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 3
WIDTH, LAYERS = 512, 4
HEADER = "inference-header-content-length"


@dataclass
class Load:
    """What clients saw: seconds of each answered request, refusals, and the time of all."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    wall: float = 0.0

    def row(self, unit: float = 1.0) -> str:
        ordered = sorted(self.seconds)
        at = [ordered[min(len(ordered) - 1, int(len(ordered) * q))] * 1e3 for q in (0.5, 0.99)]
        return (f"{len(ordered) * unit / self.wall:10.0f}{at[0]:10.2f}{at[1]:10.2f}"
                f"{self.refused:9}")


def perceptron() -> Any:
    """An ONNX model of some matrices, with a dynamic batch."""
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, weights = np.random.default_rng(0), [], []
    for layer in range(LAYERS):
        matrix = (rng.normal(size=(WIDTH, WIDTH)) * WIDTH**-0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes += [helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"h{layer}"]),
                  helper.make_node("Relu", [f"h{layer}"], [f"x{layer + 1}"])]
    graph = helper.make_graph(
        nodes, "perceptron",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ("batch", WIDTH))],
        [helper.make_tensor_value_info(f"x{LAYERS}", TensorProto.FLOAT, ("batch", WIDTH))], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


class OnnxRuntimeModule:
    """An onnxruntime session with the signature that servers run."""

    def __init__(self, path: str, threads: int) -> None:
        import onnxruntime as ort

        from weft.runtime.manifest import TensorSpec

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        def specs(ports: Any) -> tuple[TensorSpec, ...]:
            return tuple(TensorSpec(p.name, "float32", tuple(p.shape)) for p in ports)

        self.inputs, self.outputs = specs(session.get_inputs()), specs(session.get_outputs())
        self.run = session.run


def serve_model(engine: str, path: str, threads: int) -> None:
    """The server process: one model by one engine."""
    import weft
    from weft.serving import Catalogue, Limits, TensorModel, serve

    module = (weft.compile(path, threads=threads) if engine == "weft"
              else OnnxRuntimeModule(path, threads))
    model = TensorModel("model", module, platform=engine, limits=Limits(max_queue=1024))
    assert model.batch_axis.symbol is not None, model.batch_axis.reason
    serve(Catalogue([model], limits=Limits(max_concurrency=1024)), port=0)


def serve_text(path: str) -> None:
    """The server process: a language model."""
    from weft.serving import Catalogue, serve
    from weft.serving.language_text import open_language_model

    serve(Catalogue([], {"model": open_language_model(path, slots=8)}), port=0)


@contextmanager
def server(*arguments: str) -> Any:
    """The port of a server process."""
    command = [sys.executable, "-m", "benchmarks.serving", "--serve", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()
            assert process.wait(60) == 0


@contextmanager
def llama_server(path: str) -> Any:
    """The port of the server of llama-cpp-python, ``pip install llama-cpp-python[server]``."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", path, "--model_alias", "model",
               "--port", str(port), "--n_ctx", "96", "--n_threads", "1", "--verbose", "false",
               "--interrupt_requests", "false"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            while True:
                with suppress(ConnectionRefusedError), socket.create_connection(
                        ("127.0.0.1", port)):
                    break
                assert process.poll() is None, "the server of llama-cpp-python has ended"
                time.sleep(0.2)
            yield port
        finally:
            process.terminate()
            process.wait(60)


class Client:
    """A connection that sends the same request again and again.

    It writes HTTP itself: a client library would take more time than the server.
    """

    def __init__(self, path: str, body: bytes, headers: str = "") -> None:
        self.request = (f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n"
                         f"{headers}\r\n").encode() + body

    async def open(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(self) -> tuple[int, bytes]:
        """Status and body of the response."""
        self._writer.write(self.request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        if "content-length" in fields:
            content = await self._reader.readexactly(int(fields["content-length"]))
            self.split = int(fields.get(HEADER, 0))
        else:
            content = await self._chunks()
        return int(lines[0].split()[1]), content

    async def _chunks(self) -> bytes:
        parts = []
        while size := int(await self._reader.readline(), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readline()
        return b"".join(parts)

    def close(self) -> None:
        self._writer.close()


async def loaded(port: int, count: int, seconds: float, make: Callable[[int], Client],
                 check: Callable[[int, Client, bytes], None]) -> Load:
    """The load of ``count`` clients for some seconds; ``check`` sees every answer."""
    load, clients = Load(), [make(i) for i in range(count)]
    for client in clients:
        await client.open(port)
    start = time.perf_counter()

    async def repeat(number: int, client: Client) -> None:
        while time.perf_counter() - start < seconds:
            asked = time.perf_counter()
            status, content = await client.ask()
            if status == 200:
                load.seconds.append(time.perf_counter() - asked)
                check(number, client, content)
            else:
                load.refused += 1
                await asyncio.sleep(0.01)

    work: list[Awaitable[None]] = [repeat(i, c) for i, c in enumerate(clients)]
    await asyncio.gather(*work)
    load.wall = time.perf_counter() - start
    for client in clients:
        client.close()
    return load


def tensor_client(x: np.ndarray) -> Client:
    entry = {"name": "x0", "shape": list(x.shape), "datatype": "FP32",
             "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return Client("/v2/models/model/infer", head + x.tobytes(), f"{HEADER}: {len(head)}\r\n")


def measure_tensors(counts: list[int], seconds: float, threads: int) -> None:
    import onnxruntime as ort

    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(1, WIDTH)).astype(np.float32) for _ in range(max(counts))]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "model.onnx"
        path.write_bytes(perceptron().SerializeToString())
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        expected = [session.run(None, {"x0": x})[0] for x in inputs]

        def check(number: int, client: Client, content: bytes) -> None:
            found = np.frombuffer(content[client.split:], np.float32)
            np.testing.assert_allclose(found, expected[number][0], rtol=1e-3, atol=1e-4)

        ports = {engine: stack.enter_context(server(engine, str(path), str(threads)))
                 for engine in ("weft", "onnxruntime")}
        print(f"{LAYERS} layers of {WIDTH}, one row per request, {threads} threads; medians of "
              f"{ROUNDS} rounds of {seconds:g} s by throughput\n"
              f"{'clients':8}{'engine':14}{'req/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'refused':>9}")
        for count in counts:
            loads: dict[str, list[Load]] = {engine: [] for engine in ports}
            for _ in range(ROUNDS):
                for engine, port in ports.items():
                    loads[engine].append(asyncio.run(loaded(
                        port, count, seconds, lambda i: tensor_client(inputs[i]), check)))
            for engine, found in loads.items():
                print(f"{count:<8}{engine:14}{middle(found).row()}", flush=True)


def middle(loads: list[Load]) -> Load:
    """The load of median throughput."""
    rates = [len(load.seconds) / load.wall for load in loads]
    return loads[rates.index(statistics.median_low(rates))]


def measure_text(counts: list[int], seconds: float) -> None:
    from tests.unit.generation.text.gguf_files import write_gguf

    tokens = 32
    body = json.dumps({"model": "model", "prompt": "Once upon a time", "max_tokens": tokens,
                       "temperature": 0, "stream": True}).encode()
    texts: set[bytes] = set()

    def check(number: int, client: Client, content: bytes) -> None:  # noqa: ARG001
        events = [json.loads(line[6:]) for line in content.split(b"\n\n")[:-2]]
        texts.add("".join(event["choices"][0]["text"] for event in events).encode())

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = str(write_gguf(Path(folder) / "model.gguf", "q8_0"))
        ports = {"weft": stack.enter_context(server("text", path))}
        if find_spec("llama_cpp") is not None:
            ports["llama.cpp"] = stack.enter_context(llama_server(path))
        print(f"a tiny decoder, so that servers take most of the time; replies of {tokens} "
              f"tokens, 8 slots of weft, one of llama-cpp-python\n"
              f"{'clients':8}{'engine':14}{'tokens/s':>10}{'p50 ms':>10}{'p99 ms':>10}"
              f"{'refused':>9}")
        for count in counts:
            for engine, port in ports.items():
                load = asyncio.run(loaded(port, count, seconds, lambda _: Client(
                    "/v1/completions", body, "Content-Type: application/json\r\n"),
                    check if engine == "weft" else lambda *_: None))
                print(f"{count:<8}{engine:14}{load.row(tokens)}", flush=True)
    assert len(texts) == 1, "a reply depends on what runs beside it"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--text", action="store_true", help="a language model")
    options = parser.parse_args()
    if options.serve:
        engine, path, *rest = options.serve
        serve_text(path) if engine == "text" else serve_model(engine, path, *map(int, rest))
    elif options.text:
        measure_text(options.clients, options.seconds)
    else:
        measure_tensors(options.clients, options.seconds, options.threads)


if __name__ == "__main__":
    main()
