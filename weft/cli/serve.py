"""``weft serve``."""

from __future__ import annotations

import click

from weft.cli.common import compile_options, session
from weft.cli.models import ARTIFACT_SUFFIX, open_model
from weft.support.errors import OptionError

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
              help="threads of compiled code (default: WEFT_THREADS, else all CPUs)")
@click.option("--max-batch", type=click.IntRange(1), default=32, show_default=True,
              help="rows that run together; 1 turns batching off")
@click.option("--max-delay", type=click.FloatRange(0), default=2.0, show_default=True,
              help="milliseconds that a request waits for others to run with")
@click.option("--max-queue", type=click.IntRange(1), default=128, show_default=True,
              help="requests that wait per model; further ones get 429")
@click.option("--max-concurrency", type=click.IntRange(1), default=256, show_default=True,
              help="requests in flight; further ones get 503")
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
def serve_command(models: tuple[str, ...], host: str, port: int, target: str | None,
                  shapes: Shapes, opt_level: int, threads: int | None, max_batch: int,
                  max_delay: float, max_queue: int, max_concurrency: int, max_body: int,
                  timeout: float, drain: float, slots: int, capacity: int | None) -> None:
    """Serve MODELs over HTTP: the Open Inference Protocol, and OpenAI's interface for text.

    A MODEL is an artifact, a model that is compiled first, a language model (a GGUF file, or a
    folder with config.json, weights and tokenizer), or a folder of all these. Clients use the name
    of the file without its suffix, or NAME.

    \b
    weft serve model.weft --port 8000
    weft serve small=a.weft large=b.onnx      two models under names of their own
    weft serve model.onnx --input-shape x:batchx3x224x224     requests share batches
    weft serve models/ --max-batch 16 --max-delay 5

    \b
    curl localhost:8000/v2/models/model       inputs and outputs
    curl localhost:8000/v2/models/model/infer -d '{"inputs": [{"name": "x", "shape": [1, 4],
         "datatype": "FP32", "data": [1, 2, 3, 4]}]}'
    curl localhost:8000/v1/chat/completions -d '{"model": "llama", "stream": true,
         "messages": [{"role": "user", "content": "Hello"}]}'
    curl localhost:8000/metrics               requests, latencies, batches, queues

    Needs the extra: pip install "weft[serve]", with language models "weft[serve,language]".
    SIGTERM and Ctrl-C stop the server once it has answered what it accepted.
    """
    from weft.serving import Limits, serve
    from weft.serving.language_text import open_language_model
    from weft.serving.loading import load_catalogue
    from weft.serving.open import require_packages

    require_packages()
    if shapes and len(models) > 1:
        raise OptionError("--input-shape is for one model", got=f"{len(models)} models",
                          help=f"compile each one to an artifact (*{ARTIFACT_SUFFIX}), and serve "
                          "the artifacts")
    limits = Limits(max_batch=max_batch, max_delay=max_delay / 1e3, max_queue=max_queue,
                    max_concurrency=max_concurrency, max_body=max_body * _MIB, timeout=timeout,
                    drain=drain, max_held=max(1 << 30, max_body * _MIB))
    with session(threads):
        catalogue = load_catalogue(
            models, limits=limits,
            open_module=lambda path: open_model(path, target=target, shapes=shapes,
                                                opt_level=opt_level),
            open_text=lambda path: open_language_model(path, capacity=capacity, slots=slots))
        serve(catalogue, host=host, port=port)
