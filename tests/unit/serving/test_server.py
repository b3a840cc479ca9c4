"""A server process: what it prints, answers and accepts, until a signal ends it."""

from __future__ import annotations

import gc
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress

import numpy as np
import pytest

from tests.unit.cli.commands import run
from weft.support.errors import MissingToolError

# A program of two models, one of which takes a second.
SERVER = """
import time
import numpy as np
from tests.unit.serving.doubles import Rows, TinyText
from weft.serving import Catalogue, Limits, TensorModel, serve

class Slow(Rows):
    def run(self, names, feeds):
        print("running", flush=True)
        time.sleep(1)
        return super().run(names, feeds)

serve(Catalogue([TensorModel("rows", Rows()), TensorModel("slow", Slow(), batching=False)],
                {"tiny": TinyText(capacity=4096)}, limits=Limits(read_timeout=0.4)), port=0)
print("stopped", flush=True)
"""


class Server:
    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.first_line = self.process.stdout.readline()
        self.url = re.search(r"http://\S+", self.first_line)[0]
        self.port = int(self.url.rpartition(":")[2])

    def post(self, path: str, body: object) -> dict:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def server():
    server = Server(sys.executable, "-c", SERVER)
    yield server
    server.process.kill()
    server.process.communicate()


LIMITED = """
from tests.unit.serving.doubles import Rows
from weft.serving import Catalogue, Limits, TensorModel, serve

serve(Catalogue([TensorModel("rows", Rows())], limits=Limits(max_connections=40, max_errors=1)),
      port=0)
"""
GET = b"GET /v2/models/rows HTTP/1.1\r\nHost: x\r\n\r\n"


class Peers:
    """Connections from the addresses of the loopback interface."""

    def __init__(self, server: Server) -> None:
        self.port = server.port
        self.all: list[socket.socket] = []

    def ask(self, address: str, sends: bytes = GET) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.port), 30, (address, 0))
        self.all.append(peer)
        peer.sendall(sends)
        return peer

    def waiting(self) -> float:
        """How many connections wait, as the metrics say."""
        peer = self.ask("127.0.0.4", GET.replace(b"/v2/models/rows", b"/metrics"))
        text = b""
        while not (found := re.search(rb"waiting ([\d.]+)\n", text)):
            text += peer.recv(1 << 16)
        peer.close()
        return float(found[1])


def response(peer: socket.socket) -> bytes:
    """A response, whose body is an object; empty if the connection was closed."""
    text = b""
    while not text.endswith(b"}") and (more := peer.recv(4096)):
        text += more
    return text


def status(peer: socket.socket) -> bytes:
    """The status of a response; empty if the connection was closed."""
    return response(peer)[9:12]


@pytest.fixture
def peers():
    server = Server(sys.executable, "-c", LIMITED)
    made = Peers(server)
    yield made
    for peer in made.all:
        peer.close()
    server.process.kill()
    server.process.communicate()


INPUTS = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}


def test_what_was_accepted_is_answered_after_sigterm(server):
    assert "rows, slow, tiny" in server.first_line
    assert server.post("/v2/models/rows/infer", INPUTS)["outputs"][0]["data"] == [8, 10, 12]
    # A client that left its stream does not keep the server.
    gone = socket.create_connection(("127.0.0.1", server.port))
    text = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 4000, "stream": True})
    gone.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}"
                 f"\r\n\r\n{text}".encode())
    assert gone.recv(12) == b"HTTP/1.1 200"
    gone.close()
    # One that sends half of a head does not, either.
    half = socket.create_connection(("127.0.0.1", server.port))
    half.sendall(b"POST /v2/models/rows/infer HTT")
    found: dict = {}
    threads = [threading.Thread(target=lambda i=i: found.update(
        {i: server.post("/v2/models/slow/infer", INPUTS)})) for i in range(2)]
    for thread in threads:
        thread.start()
    assert server.process.stdout.readline() == "running\n"
    time.sleep(0.2)  # the other request is in the queue
    assert server.stop() == 0
    for thread in threads:
        thread.join()
    half.close()
    assert [found[i]["outputs"][0]["data"] for i in range(2)] == [[8, 10, 12]] * 2
    assert server.process.stdout.read() == "running\nstopped\n"
    with pytest.raises(urllib.error.URLError):
        server.post("/v2/models/rows/infer", INPUTS)


def test_connections_without_a_request_are_closed(server):
    silent, slow = (socket.create_connection(("127.0.0.1", server.port)) for _ in range(2))
    slow.sendall(b"POST /v2/models/rows/infer HTT")
    for connection in (silent, slow):
        connection.settimeout(20)
        assert connection.recv(1) == b""
        connection.close()
    assert server.post("/v2/models/rows/infer", INPUTS)["outputs"]


def test_a_head_without_end_is_refused(server):
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(20)
        connection.sendall(b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 14_000)  # 84 KB
        assert connection.recv(12) == b"HTTP/1.1 400"


def test_a_client_with_most_connections_makes_room_for_others(peers):
    used = [peers.ask("127.0.0.2") for _ in range(40)]
    assert [status(peer) for peer in used] == [b"200"] * 40
    assert status(peers.ask("127.0.0.2", b"")) == b"503"  # all the others have sent requests
    assert status(peers.ask("127.0.0.3")) == b"200"
    with suppress(ConnectionResetError):
        assert status(used[0]) == b""  # the oldest
    used[1].sendall(GET)
    assert status(used[1]) == b"200"


def test_a_client_with_many_errors_waits_and_others_do_not(peers):
    for peer in [peers.ask("127.0.0.2", b"") for _ in range(30)]:
        peer.close()  # each came for nothing
    start, slow = time.monotonic(), []
    while peers.waiting() < 3:
        assert time.monotonic() < start + 20
        slow += [peers.ask("127.0.0.2") for _ in range(3)]
        assert status(peers.ask("127.0.0.3")) == b"200"
    assert [status(peer) for peer in slow] == [b"200"] * len(slow)
    assert time.monotonic() - start > 1.9


def test_an_error_beyond_the_allowed_ones_ends_its_connection(peers):
    bad = GET.replace(b"/rows", b"/none")
    peer, answer = peers.ask("127.0.0.2", bad), b""
    for _ in range(50):
        if b"connection: close" in (answer := response(peer)):
            break
        peer.sendall(bad)
    assert b"404" in answer
    assert status(peer) == b""


def test_the_command_serves_a_model(tmp_path):
    program = tmp_path / "double.ir"
    program.write_text("def @main(%x: Tensor[(n, 3), float32]) { add(%x, %x) }")
    server = Server(sys.executable, "-m", "weft", "serve", str(program), "--port", "0")
    try:
        found = server.post("/v2/models/double/infer", INPUTS)
        np.testing.assert_array_equal(found["outputs"][0]["data"], [2, 4, 6])
        assert server.stop(signal.SIGINT) == 0
    finally:
        server.process.kill()
        server.process.communicate()


def test_the_command_line_is_checked(tmp_path, capsys, monkeypatch):
    for name in ("a.ir", "b.ir"):
        (tmp_path / name).write_text("def @main(%x: Tensor[(n, 3), float32]) { nn.relu(%x) }")
    monkeypatch.chdir(tmp_path)
    code, _, err = run(["serve", "a.ir", "b.ir", "--input-shape", "x:2x3"], capsys)
    assert code == 2
    assert "artifact" in err
    code, _, err = run(["serve", "c.ir"], capsys)
    assert code == 1
    assert "not found" in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = run(["serve", "a.ir", "--port", str(taken.getsockname()[1])], capsys)
    assert code == 2
    assert "cannot listen" in err


def test_responses_do_not_wait_for_acknowledgements():
    from weft.serving.server import listening

    with listening("127.0.0.1", 0) as listener, \
            socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.usefixtures("unfrozen")
def test_a_server_neither_collects_what_was_loaded_nor_logs_what_clients_do(monkeypatch):
    from weft.serving import Catalogue, server

    seen = []
    monkeypatch.setattr(server._Server, "run", lambda *_, **__: seen.append(
        (gc.get_freeze_count(), logging.getLogger("uvicorn.error").isEnabledFor(logging.WARNING))))
    before = gc.get_freeze_count()
    server.run_server(Catalogue(), "127.0.0.1", 0)
    ((frozen, warns),) = seen
    assert frozen > before + 1000
    assert not warns
    assert gc.get_freeze_count() == 0


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    from weft.serving.open import require_packages

    require_packages()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingToolError, match="prometheus-client") as error:
        require_packages()
    assert "weft[serve]" in error.value.help
