"""Replicas of a server are killed, and no accepted request is lost or answered wrongly."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import weft
from tests.scale.deadly import add_one
from tests.unit.generation.text.model_files import write_folder
from weft import ir, op
from weft.generation import Stopping
from weft.generation.sampling import GREEDY, RandomStream
from weft.serving import Batcher, Catalogue, Limits, TensorModel, replica_worker
from weft.serving.language_text import open_language_model
from weft.serving.metrics import Metrics
from weft.serving.refusal import retry_after_of, status_of
from weft.serving.replica_text import open_replicated_text
from weft.serving.replica_worker import TextSource
from weft.serving.replicas import Replicas
from weft.serving.text_scheduler import TextScheduler
from weft.serving.text_schedulers import TextSchedulers
from weft.support.errors import OptionError, WorkerError

PROGRAM = "def @main(%x: Tensor[(n, 3), float32]) { add(%x, sum(%x, axis=-1, keepdims=True)) }"


@pytest.fixture(scope="module")
def replicas() -> Iterator[Replicas]:
    with Replicas(2, threads=1) as made:
        yield made


def processes(replicas: Replicas) -> list[int]:
    return [replicas.call_on(name, os.getpid) for name in replicas.names]


def test_a_request_that_ends_processes_is_refused_and_the_others_are_answered(replicas):
    async def run():
        batcher = Batcher(lambda arrays: replicas.call(add_one, arrays), batched=True, workers=2,
                          limits=Limits(max_delay=0.2))
        found = await asyncio.gather(*(batcher.submit([np.full((1, 3), value)])
                                       for value in (1, 13, 2)), return_exceptions=True)
        await batcher.close()
        return found

    first, error, last = asyncio.run(run())
    assert isinstance(error, WorkerError)
    assert (status_of(error), retry_after_of(error)) == (503, 1)
    np.testing.assert_array_equal(np.concatenate([*first, *last]), [[2] * 3, [3] * 3])


def test_as_many_batches_run_as_there_are_processes(replicas):
    module = replicas.module("model.ir", weft.compile(weft.parse(PROGRAM)))
    model = TensorModel("m", module)
    assert model.batch_axis.symbol == "n"
    assert model.batcher._workers == 2
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(module.run(None, {"x": x})[0], 4 * x)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_replicas_have_the_weights_of_an_artifact_once(replicas, tmp_path):
    weights = np.random.default_rng(0).normal(size=(5120, 2048)).astype(np.float32)  # 40 MiB
    x = ir.var("x", (1, 2048), "float32")
    program = ir.IRModule.from_expr(ir.Function((x,), op.nn.dense(x, ir.const(weights))))
    artifact = str(tmp_path / "model.weft")
    module = weft.compile(program, threads=1)
    module.export(artifact, portable=False, check=False)
    catalogue = Catalogue()
    catalogue.replicas = replicas
    metrics = Metrics(catalogue)
    assert len(processes(replicas)) == 2
    before = memory(metrics)
    served = replicas.module(artifact, module)
    for name in replicas.names:
        replicas.call_on(name, replica_worker.run, served._path, {"x": np.ones((1, 2048), "f4")})
    after = memory(metrics)
    assert set(after) == {"server", "replica-0", "replica-1"}
    grown = [after[name] - before[name] for name in ("replica-0", "replica-1")]
    assert weights.nbytes < sum(grown) < 1.5 * weights.nbytes


def memory(metrics: Metrics) -> dict[str, float]:
    """The memory of each process, as ``/metrics`` shows it."""
    return {name: float(nbytes) for name, nbytes in re.findall(
        r'^weft_memory_bytes{process="(.*)"} (.*)$', metrics.text().decode(), re.MULTILINE)}


def test_the_caches_of_a_decoder_survive_its_process(replicas, tmp_path):
    source = TextSource(str(write_folder(tmp_path / "llama")), 90, 2)
    text = open_replicated_text(replicas, source)
    prompts = [text.encode(word) for word in ("Once", "upon", "a time", "there", "was")]
    ended = []

    async def generated(model, kill: bool) -> list[list[int]]:
        schedulers = TextSchedulers("m", [TextScheduler(d) for d in model.decoders])
        jobs = [schedulers.submit(prompt, sampling=GREEDY, stopping=Stopping(max_new_tokens=24),
                                  stream=RandomStream(0)) for prompt in prompts]

        async def tokens(job) -> list[int]:
            found = []
            async for token in job.tokens():
                found.append(token)
                if kill and job is jobs[0] and len(found) == 4:
                    for pid in await asyncio.to_thread(processes, replicas):
                        os.kill(pid, signal.SIGKILL)
                        ended.append(pid)
            return found

        found = await asyncio.gather(*map(tokens, jobs))
        await schedulers.close()
        return found

    expected = asyncio.run(generated(open_language_model(source.path, capacity=90, slots=2), False))
    assert asyncio.run(generated(text, True)) == expected
    assert len({*ended}) == 2
    assert replicas.lost >= 2


def test_a_server_under_load_loses_no_request_to_kills(tmp_path: Path):
    program = tmp_path / "row.ir"
    program.write_text(PROGRAM)
    folder = write_folder(tmp_path / "llama")
    with subprocess.Popen(
            [sys.executable, "-m", "weft", "serve", str(program), str(folder), "--port", "0",
             "--replicas", "2", "--threads", "1"], stdout=subprocess.PIPE, text=True) as server:
        try:
            url = re.search(r"http://\S+", server.stdout.readline())[0]
            under_load(url, server.pid)
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        finally:
            children = replicas_of(server.pid)
            server.kill()
    until = time.monotonic() + 10
    while any(map(alive, children)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, children))


def under_load(url: str, server: int) -> None:
    """Ask from four threads for some seconds, while a replica is killed now and then."""
    stop, wrong, counts = threading.Event(), [], [0] * 4

    def ask_rows(number: int) -> None:
        rng = np.random.default_rng(number)
        with httpx.Client(base_url=url, timeout=60) as client:
            while not stop.is_set():
                x = rng.normal(size=(1, 3)).astype(np.float32)
                reply = client.post("/v2/models/row/infer", json={"inputs": [
                    {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": x.tolist()}]})
                if reply.status_code != 200 or not np.allclose(
                        reply.json()["outputs"][0]["data"], (x + x.sum()).ravel(), atol=1e-5):
                    wrong.append(reply.text)
                counts[number] += 1

    def ask_text(number: int) -> None:
        ask = {"model": "llama", "prompt": "Once upon", "max_tokens": 24, "temperature": 0}
        with httpx.Client(base_url=url, timeout=60) as client:
            expected = client.post("/v1/completions", json=ask).json()["choices"][0]["text"]
            while not stop.is_set():
                reply = client.post("/v1/completions", json=ask)
                if reply.status_code != 200 or reply.json()["choices"][0]["text"] != expected:
                    wrong.append(reply.text)
                counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,))
               for number, ask in enumerate((ask_rows, ask_rows, ask_text, ask_text))]
    for thread in threads:
        thread.start()
    killed, begin = 0, time.monotonic()
    for _ in range(3):
        time.sleep(1)
        running = replicas_of(server)
        while not running and time.monotonic() < begin + 30:  # those killed are about to start
            time.sleep(0.1)
            running = replicas_of(server)
        if running:
            os.kill(random.choice(running), signal.SIGKILL)
            killed += 1
    until = time.monotonic() + 60
    while min(counts) <= 3 and time.monotonic() < until:  # a busy machine
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not wrong, wrong[:3]
    assert min(counts) > 3
    assert killed == 3
    lost = re.search(r"^weft_replicas_lost (\d+)", httpx.get(f"{url}/metrics").text,
                     re.MULTILINE)
    assert lost is not None
    assert int(lost[1]) >= killed - 1  # the last one may not have been called since


def replicas_of(server: int) -> list[int]:
    try:
        return [int(child) for task in Path(f"/proc/{server}/task").iterdir()
                for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_server_without_replicas_is_refused():
    with pytest.raises(OptionError, match="needs a replica"):
        Replicas(0)
