"""The ``weft`` command: its verbs, and the exit codes of errors."""

from __future__ import annotations

import re
import sys
import traceback
from importlib import import_module
from typing import NamedTuple, cast

import click
from click.shell_completion import CompletionItem

from weft import __version__
from weft.support.config import report_unknown_variables
from weft.support.errors import InternalError, OptionError, UnsupportedModelError, WeftError
from weft.support.suggestion import did_you_mean

EXIT_USER_ERROR = 1
EXIT_USAGE = 2
EXIT_UNSUPPORTED = 3
EXIT_INTERNAL = 70

_SHAPES = re.compile(
    r"""(?:as\ in\ )?(?:(?:weft\.compile|from_onnx)\((?:model|module),\ )?
        inputs=\{"(?P<name>[^"]+)":\ \((?P<sizes>[^)]*)\)\}\)?""", re.VERBOSE)
_LOADED = re.compile(r"weft\.load\('(?P<path>[^']+)'\)")
_SPECIALIZE = re.compile(r",? or export model\.specialize\([^)]*\)\}\)")


class _Verb(NamedTuple):
    """``module`` defines the command, and is imported when the command is used."""

    module: str
    summary: str  # the first sentence of its help


_VERBS = {
    "compile": _Verb("compile", "Compile MODEL into an artifact that runs without a compiler."),
    "export": _Verb("export", "Write MODEL as ONNX or StableHLO."),
    "quantize": _Verb("quantize", "Write MODEL with weights, or whole layers, in fewer bits."),
    "loader": _Verb("loader", "Write the sources that load artifacts without Python."),
    "keys": _Verb("signing", "Make a pair of keys to sign artifacts with."),
    "sign": _Verb("signing", "Sign the artifact FILE; signatures of other keys are kept."),
    "run": _Verb("run", "Run MODEL once: an artifact, or a model to compile first."),
    "bench": _Verb("run", "Time MODEL: the best, median and worst of many runs."),
    "profile": _Verb("run", "Time each kernel of MODEL."),
    "tune": _Verb(
        "tune", "Search for faster tiles, orders and algorithms of the kernels of MODEL."),
    "records": _Verb("tune", "Show and merge databases of tuning records."),
    "calibrate": _Verb(
        "measure",
        "Measure this machine in about a second: ports, clock, caches, memory, "
        "threads."),
    "serve": _Verb(
        "serve",
        "Serve MODELs over HTTP: the Open Inference Protocol, and OpenAI's interface for "
        "text."),
    "opt": _Verb("opt", "Run passes on FILE, a program as text (- is standard input)."),
    "passes": _Verb("catalogues", "List the passes of the compiler, or describe the pass NAME."),
    "inspect": _Verb("inspect", "Show how MODEL is compiled."),
    "view": _Verb("view", "Show how MODEL is compiled on an interactive page."),
    "ops": _Verb("catalogues", "List the operators, search them, or show the page of NAME."),
    "targets": _Verb("info", "Show this machine's target, and what else weft compiles for."),
    "chat": _Verb("language", "Talk with MODEL, a Hugging Face folder or a GGUF file."),
    "generate": _Verb("language", "Continue a text with MODEL, a folder or a GGUF file."),
    "embed": _Verb("language", "Print a vector for each of TEXTS as a line of JSON."),
    "perplexity": _Verb("language", "Print the perplexity of MODEL on FILE (- is standard input)."),
    "debug": _Verb("debug", "Compare every tensor of MODEL with another evaluation."),
    "explain": _Verb("explain", "Explain the error CODE, or list all codes."),
    "cache": _Verb("cache", "Show the cache of compiled code, or clear it."),
    "warm": _Verb("warm", "Build kernels into the cache, so that models compile faster."),
    "doctor": _Verb("info", "Show the installation of weft, and list every setting."),
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The table of verbs; the implementation of ``click`` would import every command."""
        width = formatter.width - 6 - max(map(len, _VERBS))
        rows = [(name, click.Command(name, help=verb.summary).get_short_help_str(width))
                for name, verb in _VERBS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs and options for ``_WEFT_COMPLETE=bash_source weft``, without importing commands."""
        verbs = [CompletionItem(name, help=verb.summary) for name, verb in _VERBS.items()
                 if name.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        module = import_module(f"weft.cli.{_VERBS[cmd_name].module}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]
                        ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = did_you_mean(args[0], _VERBS)
            if hint is None:
                raise
            raise click.UsageError(f"{error.message} D{hint[1:]}", ctx=error.ctx) from None


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """The version; with ``--verbose`` also the machine, the libraries and changed settings."""
    if not value:
        return
    click.echo(f"weft, version {__version__}")
    if ctx.meta["weft_verbose"]:
        from weft.cli.info import report_facts

        for name, found in report_facts().items():
            click.echo(f"{name}: {found}")
    ctx.exit()


def _show_man_page(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """The manual page in roff, of the commands of this version."""
    if value:
        from weft.cli.man_page import man_page

        click.echo(man_page(cast("click.Group", ctx.command)), nl=False)
        ctx.exit()


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]},
               epilog="weft doctor lists the settings (WEFT_DEBUG, WEFT_DUMP_DIR, ...)")
@click.option("--verbose", is_flag=True, is_eager=True, expose_value=False,
              callback=lambda ctx, _, value: ctx.meta.update(weft_verbose=value),
              help="With --version: what a report of a fault should include.")
@click.option("--man", is_flag=True, is_eager=True, expose_value=False, callback=_show_man_page,
              help="Print the manual page (weft --man | man -l -) and exit.")
@click.option("--version", is_flag=True, expose_value=False, callback=_show_version,
              help="Show the version and exit.")
def cli() -> None:
    """Compile deep learning models to machine code, and inspect every stage.

    A model is a file of ONNX, torch.export (.pt2), TensorFlow (.pb, .tflite, the folder of a
    SavedModel), StableHLO (.mlir) or weft's text form (.ir). run, bench and profile also take a
    compiled artifact (.weft).

    \b
    weft compile model.onnx -o model.weft     an artifact that runs without a compiler
    weft export net.ir -o net.onnx            the model in another format
    weft quantize model.onnx -o small.ir      the model in fewer bits
    weft run model.weft --inputs x.npz        run it
    weft bench model.onnx --threads 1         time it
    weft profile model.onnx                   time each kernel
    weft tune model.onnx --budget 10m         search for faster kernels
    weft serve model.weft --port 8000         serve it over HTTP
    weft inspect model.onnx --stage llvm      any stage as text
    weft inspect model.onnx --html out.html   all stages on one page
    weft view model.onnx                      the same, interactive, on a page
    weft debug model.onnx --against onnxruntime    every tensor, side by side
    weft chat model.gguf                      talk with a language model
    weft generate model.gguf --prompt "Hi"    continue a text
    weft opt net.ir -p fold_constant,fuse_ops run passes on the text form
    weft passes                               the passes of the compiler, in order
    weft ops gelu                             an operator, by any of its names
    weft explain E0100                        an error code: a program, and what to do
    weft cache                                the cache of compiled code
    weft calibrate                            measure this machine, for better decisions
    weft doctor                               the installation, and every setting

    \b
    A model with dynamic shapes compiles to one program for all sizes, where it can
    (weft inspect says if not). To fix them, give the shape of each input:
    weft bench model.onnx --input-shape data:1x3x224x224

    Exit codes: 0 success, 1 an error in the model or its inputs, 2 an error in the command line,
    3 a model that weft does not support, 70 a bug in weft.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; errors of weft print without a traceback."""
    report_unknown_variables()
    try:
        cli.main(args=arguments, prog_name="weft", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except WeftError as error:
        click.echo(for_command_line(error.render()), err=True)
        click.echo(f"  more: weft explain {error.code}", err=True)
        sys.exit(exit_code(error))
    except Exception:  # noqa: BLE001 - any other exception is a bug
        traceback.print_exc()
        click.echo("this is a bug in weft: please report it with the lines above", err=True)
        sys.exit(EXIT_INTERNAL)
    sys.exit(0)


def exit_code(error: WeftError) -> int:
    """The exit code of the process for an error."""
    if isinstance(error, InternalError):
        return EXIT_INTERNAL
    if isinstance(error, UnsupportedModelError):
        return EXIT_UNSUPPORTED
    return EXIT_USAGE if isinstance(error, OptionError) else EXIT_USER_ERROR


def for_command_line(text: str) -> str:
    """``text`` with command-line options and commands instead of Python arguments and calls."""
    text = _SPECIALIZE.sub("", text)
    text = _LOADED.sub(lambda m: f"weft run {m['path']}", text)
    return _SHAPES.sub(lambda m: f"--input-shape {_quoted(m['name'], _with_x(m['sizes']))}", text)


def _quoted(name: str, sizes: str) -> str:
    """The value of the option, in quotes if it has a bound such as ``1<=n``, for the shell."""
    shape = f"{name}:{sizes}"
    return f'"{shape}"' if "<" in shape or ">" in shape else shape


def _with_x(sizes: str) -> str:
    """``"1, 3, 224, 224"`` as ``"1x3x224x224"``."""
    names = (size.strip().strip("\"'").replace(" ", "") for size in sizes.split(","))
    return "x".join(filter(None, names))
