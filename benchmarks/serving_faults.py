"""A server under bad clients and lost replicas: what it answers, and how its memory grows.

    python -m benchmarks.serving_faults [--requests 100000] [--seconds 8] [--replicas 2]

Malformed requests, clients that write slowly or leave, and replicas that are killed, while clients
with valid requests check every answer; then valid requests alone, for the memory. 100,000 of them
are an hour's worth at 28 a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from benchmarks.serving import WIDTH, Client, Load, loaded, perceptron, tensor_client

Good = Callable[[float], asyncio.Task[Load]]
STEPS = 10  # measurements of the memory


@contextmanager
def serving(path: Path, replicas: int) -> Iterator[tuple[int, int]]:
    """The port and the process of ``weft serve``."""
    command = [sys.executable, "-m", "weft", "serve", str(path), "--port", "0", "--threads", "1",
               "--replicas", str(replicas), "--max-queue", "1024", "--max-concurrency", "1024"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r":(\d+)$", process.stdout.readline())
            assert found is not None
            yield int(found[1]), process.pid
        finally:
            process.terminate()
            assert process.wait(60) == 0, "the server did not stop by itself"


def resident(process: int) -> float:
    """MiB of memory of a process."""
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else 0.0


def children(process: int) -> list[int]:
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text(encoding="utf-8").split())
    return found


def malformed(rng: random.Random) -> bytes:
    """A request that is wrong in its head, its JSON, its tensors, or its end."""
    entry = {"name": "x0", "shape": [1, WIDTH], "datatype": "FP32", "data": [0.0] * WIDTH}
    wrong = {"name": ["y", 3, None], "shape": [[-1, WIDTH], [1, 2], "1", [2**62, 4], [1.5]],
             "datatype": ["INT8", "BYTES", 7, "FP99"], "data": [[], "x", [[1], [1, 2]], [None] * 4]}
    field = rng.choice([*wrong])
    body = json.dumps({"inputs": [{**entry, field: rng.choice(wrong[field])}]}).encode()
    path, head, method = "/v2/models/model/infer", "", "POST"
    kind = rng.randrange(8)
    if kind == 0:
        body = rng.randbytes(rng.randrange(1, 400))
    elif kind == 1:
        body = body[:rng.randrange(len(body))]
    elif kind == 2:
        head = f"inference-header-content-length: {rng.choice(['-1', 'x', '999999', '3'])}\r\n"
    elif kind == 3:
        path = rng.choice(["/v2/models/none/infer", "/v1/completions", "/v1/chat/completions",
                           "/v2/models/model/versions/9/infer", "/" + "a" * 200])
    elif kind == 4:
        method = rng.choice(["PUT", "DELETE", "PATCH"])
    elif kind == 5:
        body = b"[" * rng.randrange(1000, 100_000)
    elif kind == 6:
        return rng.randbytes(rng.randrange(4, 200)) + b"\r\n\r\n"
    return (f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "
            f"{len(body)}\r\n{head}\r\n").encode() + body


async def answered(port: int, request: bytes, address: str) -> str:
    """The status of the answer; "closed" for a connection that ends without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        writer.write(request)
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), 30)
        return line.split()[1].decode() if line else "closed"
    except (ConnectionError, IndexError):
        return "closed"
    finally:
        writer.close()


async def flood(port: int, seconds: float, addresses: int) -> Counter[str]:
    """Send malformed requests by 16 clients, of so many addresses."""
    rng, found, end = random.Random(0), Counter[str](), time.monotonic() + seconds

    async def work(number: int) -> None:
        while time.monotonic() < end:
            found[await answered(port, malformed(rng), f"127.0.0.{1 + number % addresses}")] += 1

    await asyncio.gather(*map(work, range(16)))
    return found


async def beside_flood(port: int, seconds: float, addresses: int, good: Good) -> None:
    """A flood of a process of its own, which takes no time of the clients with valid requests."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.serving_faults", "--flood", str(port), str(seconds),
        str(addresses), stdout=asyncio.subprocess.PIPE)
    await asyncio.sleep(2)
    load = await good(seconds - 3)
    answers = json.loads((await child.communicate())[0])
    assert not any(status.startswith("5") for status in answers), answers
    name = f"beside a flood of {addresses} address{'es' * (addresses > 1)}"
    print(f"{name:34}{load.row()}   answers: {answers}", flush=True)


async def leave(port: int, count: int) -> None:
    """Connect, and close in the head, in the body, or before the answer."""
    whole = tensor_client(np.zeros((1, WIDTH), np.float32)).request
    for number in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole[:(len(whole) * (number % 4 + 1)) // 4])
        await asyncio.sleep(0.002)
        writer.transport.abort()


async def drip(port: int, seconds: float) -> None:
    """Write a byte of a request every tenth of a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError):
        for byte in tensor_client(np.zeros((1, WIDTH), np.float32)).request[:int(seconds * 10)]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.1)
    del reader
    writer.close()


async def kill(server: int, count: int) -> int:
    """Kill a replica every second."""
    killed = 0
    for _ in range(count):
        await asyncio.sleep(1)
        if running := children(server):
            with suppress(ProcessLookupError):
                os.kill(random.choice(running), signal.SIGKILL)
                killed += 1
    return killed


class Checked:
    """Clients whose inputs have known answers."""

    def __init__(self, path: Path) -> None:
        import onnxruntime as ort

        rng = np.random.default_rng(1)
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.inputs = [rng.normal(size=(1, WIDTH)).astype(np.float32) for _ in range(8)]
        self.expected = [session.run(None, {"x0": x})[0] for x in self.inputs]

    def make(self, number: int) -> Client:
        return tensor_client(self.inputs[number])

    def check(self, number: int, client: Client, content: bytes) -> None:
        found = np.frombuffer(content[client.split:], np.float32)
        np.testing.assert_allclose(found, self.expected[number][0], rtol=1e-3, atol=1e-4)


async def faults(port: int, server: int, checked: Checked, options: argparse.Namespace) -> None:
    def good(seconds: float) -> asyncio.Task[Load]:
        return asyncio.create_task(loaded(port, 4, seconds, checked.make, checked.check))

    print(f"{'':34}{'req/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'refused':>9}")
    for _ in range(options.rounds):
        print(f"{'valid requests alone':34}{(await good(3)).row()}", flush=True)
        for addresses in (1, 16):
            await beside_flood(port, options.seconds, addresses, good)
    load = good(5)
    await asyncio.gather(leave(port, 2000), *(drip(port, 5) for _ in range(50)))
    print(f"{'beside 50 slow, 2000 that leave':34}{(await load).row()}")
    if options.replicas:
        load = good(10)
        killed = await kill(server, 8)
        result = await load
        print(f"{f'while {killed} replicas are killed':34}{result.row()}")
        assert not result.refused


async def memory(port: int, server: int, checked: Checked, requests: int) -> None:
    sizes = []
    for _ in range(STEPS):
        share = requests // STEPS
        clients = [checked.make(number) for number in range(8)]
        for client in clients:
            await client.open(port)

        async def work(client: Client, number: int, count: int) -> None:
            for _ in range(count):
                status, content = await client.ask()
                assert status == 200
                checked.check(number, client, content)

        await asyncio.gather(*(work(c, n, share // 8) for n, c in enumerate(clients)))
        for client in clients:
            client.close()
        sizes.append(resident(server))
    print(f"MiB of the server after each tenth of {requests} requests: "
          + " ".join(f"{size:.1f}" for size in sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8, help="of each flood")
    parser.add_argument("--flood", nargs=3, type=float, help=argparse.SUPPRESS)
    parser.add_argument("--replicas", type=int, default=2)
    options = parser.parse_args()
    if options.flood:
        port, seconds, addresses = options.flood
        print(json.dumps(asyncio.run(flood(int(port), seconds, int(addresses)))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(perceptron().SerializeToString())
        checked = Checked(path)
        with serving(path, options.replicas) as (port, server):
            asyncio.run(faults(port, server, checked, options))
            asyncio.run(memory(port, server, checked, options.requests))


if __name__ == "__main__":
    main()
