"""``weft chat``, ``generate``, ``embed`` and ``perplexity``: language models from their files."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from weft.cli.common import session
from weft.support.dataclass import dataclass

F = TypeVar("F", bound=Callable[..., Any])
Load: TypeAlias = Callable[..., Any]


def _model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """MODEL, and how it is loaded: ``command`` gets ``load``, which loads it in a session."""
    names = ("path", "capacity", "dtype", "lora", "activations", "precision")

    @functools.wraps(command)
    def with_model(threads: int | None, **options: Any) -> None:
        given = {name: options.pop(name) for name in names}
        with session(threads):
            command(load=functools.partial(_load, **given), **options)

    made: Callable[..., Any] = with_model
    for option in (
        click.option("--threads", type=click.IntRange(1), default=None,
                     help="threads of compiled code (default: WEFT_THREADS, else all CPUs)"),
        click.option("--activations", type=click.Choice(["float32", "int8"]), default=None,
                     help="what products with weights in blocks read of activations"),
        click.option("--precision", type=click.Choice(["fp32", "bf16", "fp16", "int8", "int4"]),
                     default=None, help="quantise the weights to 8 or 4 bits, or compute in 16"),
        click.option("--lora", multiple=True, metavar="ADAPTER", type=click.Path(exists=True),
                     help="add a low-rank adapter to the weights (may be given several times)"),
        click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default=None,
                     help="dtype of activations and of weights that are not quantised"),
        click.option("--capacity", type=click.IntRange(1), default=None,
                     help="most tokens of a text with its reply (default: the model's, to 4096)"),
        click.argument("path", metavar="MODEL", type=click.Path(exists=True)),
    ):
        made = option(made)
    return made


def _sampling_options(command: F) -> F:
    for option in (
        click.option("--seed", default=0, help="chooses among the replies of a temperature"),
        click.option("--top-p", type=float, default=1.0, show_default=True,
                     help="draw from the likeliest tokens of this total probability"),
        click.option("--temperature", type=float, default=0.0, show_default=True,
                     help="0 for the likeliest reply"),
        click.option("--max-tokens", type=click.IntRange(1), default=256, show_default=True,
                     help="most tokens of a reply"),
    ):
        command = option(command)
    return command


def _form_options(command: F) -> F:
    """The form of a reply; the texts of the options are read from files."""
    for name, what in (("regex", "a regular expression"),
                       ("grammar", "a grammar in Lark's notation or in GBNF"),
                       ("json-schema", "a JSON schema")):
        command = click.option(f"--{name}", type=click.File("r", encoding="utf-8"), default=None,
                               metavar="FILE", callback=lambda _c, _p, file: file and file.read(),
                               help=f"reply in the form of {what}, which FILE has")(command)
    return command


def _load(path: str, lora: tuple[str, ...], embeds: bool = False, **options: Any) -> Any:
    from weft.generation.text.load import load
    from weft.generation.text.text_encoder import load_encoder, read_encoder

    if embeds and read_encoder(Path(path)) is not None:
        return load_encoder(path, dtype=options["dtype"],
                            activations=options["activations"] or "int8")
    return load(path, adapters=lora, **options)


@dataclass
class _Clock:
    """Counts tokens, and the seconds after the first one."""

    tokens: int = 0
    first: float = 0.0

    def count(self, _: int) -> None:
        if not self.tokens:
            self.first = time.perf_counter()
        self.tokens += 1

    def report(self) -> None:
        seconds = time.perf_counter() - self.first
        rate = f", {(self.tokens - 1) / seconds:.1f} tokens/s" if self.tokens > 1 else ""
        click.echo(f"{self.tokens} tokens{rate}", err=True)


def _options(temperature: float, **options: Any) -> dict[str, Any]:
    return {"temperature": temperature or None, **options}


def _write(chunks: Iterable[str]) -> str:
    """Write a reply as it comes; what was written, also if Ctrl-C ends it."""
    written: list[str] = []
    try:
        for chunk in chunks:
            written.append(chunk)
            sys.stdout.write(chunk)
            sys.stdout.flush()
    except KeyboardInterrupt:
        click.echo(" (interrupted)", err=True)
    sys.stdout.write("\n")
    sys.stdout.flush()
    return "".join(written)


@click.command("generate")
@_model_options
@click.option("--prompt", required=True, help="the text to continue (- is standard input)")
@click.option("--cache", metavar="FILE", default=None, type=click.Path(dir_okay=False),
              help="keep what was computed of the prompt in FILE, and start from it if it is there")
@click.option("--stop", multiple=True, help="end the reply before this text")
@_form_options
@_sampling_options
def generate_command(load: Load, prompt: str, stop: tuple[str, ...], cache: str | None,
                     **sampling: Any) -> None:
    """Continue a text with MODEL, a folder or a GGUF file.

    The reply alone is on standard output; tokens per second are on standard error.
    """
    model, clock = load(), _Clock()
    text = sys.stdin.read() if prompt == "-" else prompt
    if cache is not None and not Path(cache).exists():
        model.save_cache(text, cache)
    _write(model.stream(text, stop=stop, cache=cache, on_token=clock.count, **_options(**sampling)))
    clock.report()


@click.command("chat")
@_model_options
@click.option("--system", default=None, help="the first message, which sets the tone")
@_sampling_options
def chat_command(load: Load, system: str | None, **sampling: Any) -> None:
    """Talk with MODEL, a Hugging Face folder or a GGUF file.

    Ctrl-C ends a reply; an empty line or Ctrl-D ends the program. A chat that has filled the
    context of the model forgets its first messages.
    """
    model = load()
    messages = [] if system is None else [{"role": "system", "content": system}]
    kept = len(messages)
    while text := _ask():
        messages.append({"role": "user", "content": text})
        while (len(messages) > kept + 1
               and len(model.tokens_of(messages)) >= model.decoder.capacity):
            del messages[kept:kept + 2]
        clock = _Clock()
        reply = _write(model.stream(messages, on_token=clock.count, **_options(**sampling)))
        clock.report()
        messages.append({"role": "assistant", "content": reply})


def _ask() -> str:
    """A line of the user; nothing at the end of the input."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        return ""


@click.command("embed")
@_model_options
@click.argument("texts", nargs=-1, required=True)
@click.option("--pooling", type=click.Choice(["mean", "cls", "last", "max"]), default=None,
              help="mean or maximum of the states of all tokens, the first or the last state "
                   "(default: what the model says)")
def embed_command(load: Load, texts: tuple[str, ...], pooling: Any) -> None:
    """Print a vector for each of TEXTS as a line of JSON.

    MODEL is an encoder of texts (BERT), or a language model, whose last states are averaged.
    """
    import json

    options = {} if pooling is None else {"pooling": pooling}
    for vector in load(embeds=True).embed(texts, **options):
        click.echo(json.dumps([round(float(value), 7) for value in vector]))


@click.command("perplexity")
@_model_options
@click.argument("file", type=click.File("r", encoding="utf-8"))
def perplexity_command(load: Load, file: Any) -> None:
    """Print the perplexity of MODEL on FILE (- is standard input)."""
    click.echo(f"{load().perplexity(file.read()):.4f}")
