"""Prometheus metrics of a server; names begin with ``weft_``."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from weft.runtime.memory_use import process_memory
from weft.serving.catalogue import Catalogue
from weft.serving.observer import Observer

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics(Observer):
    """Counts what a server does, in a registry of its own."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.registry = CollectorRegistry()
        each = {"registry": self.registry}
        self._requests = Counter("weft_requests", "Requests, by route and HTTP status.",
                                 ("route", "status"), **each)
        self._seconds = Histogram("weft_request_seconds", "From a request to the end of its "
                                  "response.", ("route",), buckets=_SECONDS, **each)
        self._waited = Histogram("weft_queue_seconds", "Time of requests in a queue.",
                                 ("model",), buckets=_SECONDS, **each)
        self._rows = Histogram("weft_batch_rows", "Rows of the batches that ran.",
                               ("model",), buckets=_ROWS, **each)
        self._batched = Counter("weft_batched_requests", "Requests that ran in batches.",
                                ("model",), **each)
        self._prompt = Counter("weft_prompt_tokens", "Tokens of prompts.", ("model",), **each)
        self._generated = Counter("weft_generated_tokens", "Tokens that were generated.",
                                  ("model",), **each)
        self._first = Histogram("weft_first_token_seconds", "From a request to its first token.",
                                ("model",), buckets=_SECONDS, **each)
        self.in_flight = Gauge("weft_requests_in_flight", "Requests without a whole response.",
                               **each)
        self.held = Gauge("weft_held_bytes", "Bytes of the bodies of requests in flight.", **each)
        self.waiting = Gauge("weft_connections_waiting", "Connections of clients with too many "
                             "requests in error.", **each)
        if catalogue.replicas is not None:
            replicas = catalogue.replicas
            lost = Gauge("weft_replicas_lost", "Processes that have ended during a call.", **each)
            lost.set_function(lambda: replicas.lost)
        self._replicas = catalogue.replicas
        self._memory = Gauge("weft_memory_bytes", "Memory of the server and of its replicas; what "
                             "several map, such as weights, is divided among them.", ("process",),
                             **each)
        queued = Gauge("weft_queue_length", "Requests that wait.", ("model",), **each)
        for name in catalogue.names:
            queued.labels(name).set_function(lambda name=name: _waiting(catalogue, name))

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        self._measure_memory()
        return generate_latest(self.registry)

    def _measure_memory(self) -> None:
        replicas = {} if self._replicas is None else self._replicas.process_ids()
        self._memory.clear()
        for name, number in {"server": os.getpid(),
                             **{f"replica-{name}": n for name, n in replicas.items()}}.items():
            if (nbytes := process_memory(number)) is not None:
                self._memory.labels(name).set(nbytes)

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request has ended."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, model: str, requests: int, rows: int) -> None:
        self._rows.labels(model).observe(rows)
        self._batched.labels(model).inc(requests)

    def waited(self, model: str, seconds: float) -> None:
        self._waited.labels(model).observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        self._first.labels(model).observe(seconds)

    def tokens(self, model: str, prompt: int, generated: int) -> None:
        self._prompt.labels(model).inc(prompt)
        self._generated.labels(model).inc(generated)


def _waiting(catalogue: Catalogue, name: str) -> int:
    if name in catalogue.texts:
        return catalogue.texts[name].scheduler.waiting
    return sum(catalogue.find(name, version).batcher.waiting
               for version in catalogue.versions(name))
