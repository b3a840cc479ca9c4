"""The Open Inference Protocol, the limits of the server, and its metrics."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.unit.serving.doubles import Connection, Rows, TinyText
from weft.serving import Catalogue, Limits, TensorModel, create_app

INFER = "/v2/models/rows/infer"
X = np.array([[1, 2, 3]], np.float32)
HEADER = "Inference-Header-Content-Length"


def tensor(x: np.ndarray = X, **fields) -> dict:
    return {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist(),
            **fields}


def body(**fields) -> bytes:
    return json.dumps({"inputs": [tensor()], **fields}).encode()


def catalogue_of(module: Rows | None = None, **limits) -> Catalogue:
    limits = Limits(**{"max_delay": 0.0, **limits})
    model = TensorModel("rows", module or Rows(), limits=limits)
    return Catalogue([model, TensorModel("rows", Rows(), version="10"),
                      TensorModel("fixed", Rows(first=1))], {"tiny": TinyText()}, limits=limits)


@pytest.fixture
def client():
    with TestClient(create_app(catalogue_of())) as client:
        yield client


def test_metadata_and_health(client):
    assert client.get("/v2").json()["name"] == "weft"
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/rows/ready",
                 "/v2/models/rows/versions/10/ready"):
        assert client.get(path).status_code == 200
    found = client.get("/v2/models/rows").json()
    assert found == {"name": "rows", "versions": ["1", "10"], "platform": "weft",
                     "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
                     "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]}
    assert client.get("/health").json() == {"status": "ok", "models": ["rows", "fixed", "tiny"]}


def test_an_inference_in_json(client):
    found = client.post(INFER, content=body(id="seven")).json()
    assert found == {"model_name": "rows", "model_version": "10", "id": "seven", "outputs": [
        {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [8.0, 10.0, 12.0]}]}
    assert client.post("/v2/models/rows/versions/1/infer", content=body(
        outputs=[{"name": "y"}])).json()["model_version"] == "1"


def test_an_inference_in_raw_bytes(client):
    x = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    entry = {"name": "x", "shape": [40, 3], "datatype": "FP32",
             "parameters": {"binary_data_size": x.nbytes}}
    header = json.dumps({"inputs": [entry], "outputs": [
        {"name": "y", "parameters": {"binary_data": True}}]}).encode()
    found = client.post(INFER, content=header + x.tobytes(), headers={HEADER: str(len(header))})
    length = int(found.headers[HEADER])
    (output,) = json.loads(found.content[:length])["outputs"]
    y = np.frombuffer(found.content[length:], np.float32).reshape(output["shape"])
    np.testing.assert_array_equal(y, Rows().run(None, {"x": x})[0])
    assert output["parameters"] == {"binary_data_size": y.nbytes}


def test_large_tensors_are_converted_beside_the_event_loop(client):
    x = np.zeros((10_000, 3), np.float32)
    found = client.post(INFER, content=json.dumps({"inputs": [tensor(x)]}).encode()).json()
    assert found["outputs"][0]["shape"] == [10_000, 3]


@pytest.mark.parametrize(("path", "sent", "status", "message"), [
    ("/v2/models/other/infer", body(), 404, "unknown model"),
    ("/v2/models/rows/versions/3/infer", body(), 404, "rows, version 3"),
    ("/v2/models/tiny/infer", body(), 404, "unknown model"),
    (INFER, b"{}", 400, "'inputs'"),
    (INFER, body(outputs=[{"name": "z"}]), 400, "unknown output"),
    (INFER, json.dumps({"inputs": [tensor(name="z")]}).encode(), 400, "unknown inputs"),
    (INFER, json.dumps({"inputs": [tensor(X[:, :2])]}).encode(), 400, "wrong shape"),
    (INFER, json.dumps({"inputs": [tensor(datatype="FP64")]}).encode(), 400, "wrong datatype"),
    (INFER, json.dumps({"inputs": [tensor(np.full((1, 3), -13.0))]}).encode(), 400, "unlucky"),
    ("/v2/models/fixed/infer", json.dumps({"inputs": [tensor(np.zeros((2, 3)))]}).encode(), 400,
     "wrong shape"),
    ("/nowhere", b"", 404, "Not Found"), ("/v2/health/live", b"", 405, "Not Allowed"),
], ids=str)
def test_errors_have_the_form_of_the_protocol(client, path, sent, status, message):
    found = client.post(path, content=sent)
    assert found.status_code == status
    assert message in found.json()["error"]


@pytest.mark.parametrize("headers", [{HEADER: "x"}, {HEADER: "-3"}, {HEADER: "9999"}], ids=str)
def test_invalid_headers(client, headers):
    found = client.post(INFER, content=body(), headers=headers)
    assert found.status_code == 400
    assert "header" in found.json()["error"].lower()


def test_compressed_bodies_are_refused(client):
    found = client.post(INFER, content=body(), headers={"Content-Encoding": "gzip"})
    assert found.status_code == 415


def test_an_error_of_the_module_is_no_secret_of_the_client():
    class Broken(Rows):
        def run(self, names, feeds):
            raise RuntimeError("path /secret")

    model = TensorModel("rows", Broken(), batching=False)
    with TestClient(create_app(Catalogue([model])), raise_server_exceptions=False) as client:
        found = client.post(INFER, content=body())
    assert found.status_code == 500
    assert "secret" not in found.text


def test_metrics(client):
    for _ in range(3):
        client.post(INFER, content=body())
    client.post("/anything/goes/4711", content=body())
    text = client.get("/metrics").text
    assert 'weft_requests_total{route="/v2/models/{name}/infer",status="200"} 3.0' in text
    assert 'weft_requests_total{route="unknown",status="404"} 1.0' in text
    assert 'weft_batch_rows_count{model="rows"} 3.0' in text
    assert 'weft_queue_length{model="rows"} 0.0' in text
    assert "weft_requests_in_flight 0.0" in text
    assert "weft_held_bytes 0.0" in text


def spoken(connections: list[Connection], module: Rows | None = None, during=None, **limits):
    """Speak all connections at once to one application; ``during`` runs beside them."""
    async def run():
        catalogue = catalogue_of(module, **limits)
        app = create_app(catalogue)
        tasks = [asyncio.create_task(connection.to(app)) for connection in connections]
        if during is not None:
            await during(catalogue, tasks)
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
        await catalogue.close()

    asyncio.run(run())


def test_a_body_that_is_too_large_is_refused_announced_or_not():
    announced = Connection(INFER, [body()], headers={"Content-Length": "2000"})
    chunks = Connection(INFER, [b" " * 400] * 4)
    spoken([announced, chunks], max_body=1000)
    assert (announced.status, chunks.status) == (413, 413)


def test_a_slow_client_does_not_hold_its_place():
    slow = Connection(INFER, [body()[:9], body()[9:]], pause=0.2)
    quick = Connection(INFER, [body()])
    spoken([slow, quick], read_timeout=0.1, max_concurrency=2)
    assert (slow.status, quick.status) == (408, 200)


class Held(Rows):
    """Requests wait for the gate, which is closed at first."""

    def __init__(self) -> None:
        super().__init__(first=1)
        self.gate.clear()


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a thread or another task fulfils it
            await asyncio.sleep(0.001)


def test_requests_beyond_the_concurrency_are_told_to_come_back():
    module = Held()
    late = Connection("/v2/models/rows/versions/1/infer", [body()])
    first = [Connection("/v2/models/rows/versions/1/infer", [body()]) for _ in range(2)]

    async def during(catalogue, tasks):
        await until(tasks[2].done)
        module.gate.set()

    spoken([*first, late], module, during, max_concurrency=2)
    assert [c.status for c in first] == [200, 200]
    assert late.status == 503
    assert (b"retry-after", b"1") in late.messages[0]["headers"]


def test_bodies_together_have_a_bound():
    slow, module = Connection("/v2/models/rows/versions/1/infer", [body()]), Held()
    late = Connection(INFER, [b" " * 50, b" "], pause=0.01)

    async def during(catalogue, tasks):
        await until(tasks[1].done)
        module.gate.set()

    spoken([slow, late], module, during, max_held=len(body()) + 20)
    assert (slow.status, late.status) == (200, 503)


def test_a_request_that_takes_too_long_ends():
    waiting, module = Connection("/v2/models/rows/versions/1/infer", [body()]), Held()

    async def during(catalogue, tasks):
        await until(tasks[0].done)
        module.gate.set()

    spoken([waiting], module, during, timeout=0.05)
    assert waiting.status == 504


def test_a_client_that_leaves_takes_its_request_out_of_the_queue():
    path, module = "/v2/models/rows/versions/1/infer", Held()
    running, waiting = Connection(path, [body()]), Connection(path, [body()])

    async def during(catalogue, tasks):
        batcher = catalogue.find("rows", "1").batcher
        await until(lambda: batcher.waiting == 1)
        waiting.leave.set()
        await until(tasks[1].done)
        assert batcher.waiting == 0
        module.gate.set()

    spoken([running, waiting], module, during)
    assert (running.status, waiting.status) == (200, None)
    assert len(module.sizes) == 1
