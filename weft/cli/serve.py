"""``weft serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.cli.common import compile_options, session
from weft.cli.models import ARTIFACT_SUFFIX, open_model
from weft.support.errors import OptionError

if TYPE_CHECKING:
    from weft.serving import Limits

Shapes = tuple[tuple[str, tuple[object, ...]], ...]
_MIB = 1 << 20


@click.command("serve")
@click.argument("models", nargs=-1, required=True, metavar="[NAME=]MODEL...")
@click.option("--host", default="127.0.0.1", show_default=True,
              help="the address to listen on; 0.0.0.0 is reachable from other machines")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
              help="0 takes a free port, which the first line of the output says")
@compile_options
@click.option("--threads", type=click.IntRange(1), default=None,
              help="threads of compiled code (default: WEFT_THREADS, else all CPUs; divided among "
                   "the replicas)")
@click.option("--replicas", type=click.IntRange(0), default=0, show_default=True,
              help="processes that compute (0: the server computes); one that ends is started "
                   "again, and no request is lost; they share the weights of artifacts, and "
                   "/metrics shows the memory of each")
@click.option("--max-batch", type=click.IntRange(1), default=32, show_default=True,
              help="rows that run together; 1 turns batching off")
@click.option("--max-delay", type=click.FloatRange(0), default=2.0, show_default=True,
              help="milliseconds that a request waits for others to run with")
@click.option("--max-queue", type=click.IntRange(1), default=128, show_default=True,
              help="requests that wait per model; further ones get 429")
@click.option("--max-concurrency", type=click.IntRange(1), default=256, show_default=True,
              help="requests in flight; further ones get 503")
@click.option("--max-errors", type=click.IntRange(1), default=100, show_default=True,
              help="requests in error a second; with more, clients (addresses) that caused them "
                   "wait for each connection")
@click.option("--max-body", type=click.IntRange(1), default=64, show_default=True,
              help="MiB of one request")
@click.option("--timeout", type=click.FloatRange(0.001), default=300.0, show_default=True,
              help="seconds for a request with its answer")
@click.option("--drain", type=click.FloatRange(0), default=30.0, show_default=True,
              help="seconds to answer what was accepted, after SIGTERM")
@click.option("--slots", type=click.IntRange(1), default=8, show_default=True,
              help="sequences that a language model generates at the same time")
@click.option("--capacity", type=click.IntRange(1), default=None,
              help="tokens of a sequence, prompt included (default: 4096, or the model's limit)")
@click.option("--lora", multiple=True, metavar="[NAME=]ADAPTER",
              help="add a low-rank adapter to the language models, or to NAME (repeatable)")
@click.option("--prompt-cache", multiple=True, metavar="[NAME=]FILE",
              help="start prompts that begin like the one of FILE (weft generate --cache) from it")
def serve_command(models: tuple[str, ...], host: str, port: int, target: str | None,
                  shapes: Shapes, opt_level: int, threads: int | None, replicas: int,
                  slots: int, capacity: int | None, lora: tuple[str, ...],
                  prompt_cache: tuple[str, ...], **given: Any) -> None:
    """Serve MODELs over HTTP: the Open Inference Protocol, and OpenAI's interface for text.

    A MODEL is an artifact, a model that is compiled first, a language model (a GGUF file, or a
    folder with config.json, weights and tokenizer), or a folder of all these. Clients use the name
    of the file without its suffix, or NAME.

    \b
    weft serve model.weft --port 8000
    weft serve small=a.weft large=b.onnx      two models under names of their own
    weft serve model.onnx --input-shape x:batchx3x224x224     requests share batches
    weft serve models/ --max-batch 16 --max-delay 5
    weft serve model.weft --replicas 4 --threads 2     four processes compute
    weft serve llama/ --lora adapter/ --prompt-cache system.cache

    \b
    curl localhost:8000/v2/models/model       inputs and outputs
    curl localhost:8000/v2/models/model/infer -d '{"inputs": [{"name": "x", "shape": [1, 4],
         "datatype": "FP32", "data": [1, 2, 3, 4]}]}'
    curl localhost:8000/v1/chat/completions -d '{"model": "llama", "stream": true,
         "messages": [{"role": "user", "content": "Hello"}]}'
    curl localhost:8000/metrics               requests, latencies, queues, memory

    Needs the extra: pip install "weft[serve]", with language models "weft[serve,language]".
    SIGTERM and Ctrl-C stop the server once it has answered what it accepted.
    """
    from weft.serving import serve
    from weft.serving.loading import FilesOfModels, load_catalogue
    from weft.serving.open import require_packages
    from weft.serving.openers import Openers

    require_packages()
    if shapes and len(models) > 1:
        raise OptionError("--input-shape is for one model", got=f"{len(models)} models",
                          help=f"compile each one to an artifact (*{ARTIFACT_SUFFIX}), and serve "
                          "the artifacts")
    limits = _limits(**given)
    adapters, caches = FilesOfModels("--lora", lora), FilesOfModels("--prompt-cache", prompt_cache)
    with session(threads), Openers(replicas, threads, limits.timeout) as openers:
        catalogue = load_catalogue(
            models, limits=limits,
            open_module=lambda path: openers.module(path, open_model(
                path, target=target, shapes=shapes, opt_level=opt_level)),
            open_text=lambda name, path: openers.text(
                path, capacity=capacity, slots=slots, adapters=adapters.of(name),
                caches=caches.of(name)))
        adapters.check(catalogue)
        caches.check(catalogue)
        catalogue.replicas = openers.replicas
        serve(catalogue, host=host, port=port)


def _limits(max_body: int, max_delay: float, **others: Any) -> Limits:
    from weft.serving import Limits

    body = max_body * _MIB
    return Limits(max_body=body, max_held=max(1 << 30, body), max_delay=max_delay / 1e3, **others)
