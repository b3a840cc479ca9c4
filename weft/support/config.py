"""All settings of weft in one table: environment variable, type, default and meaning.

A setting is an attribute of ``config``. Its value comes from the innermost ``with
config(name=value)`` block of the current context, else the environment variable, else the default::

    with weft.config(debug=5, no_cache=True):
        weft.compile("model.onnx")

Invalid values raise ``OptionError``, which names the variable.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean, nearest

T = TypeVar("T")

_NOTHING: Mapping[str, Any] = {}
_overrides: ContextVar[Mapping[str, Any]] = ContextVar("weft_config", default=_NOTHING)


class Knob(Generic[T]):
    """One documented setting; ``parse`` turns text into a value or raises ``ValueError``."""

    def __init__(self, env: str, default: T, parse: Callable[[str], T], expected: str,
                 doc: str) -> None:
        self.env = env
        self.default = default
        self.parse = parse
        self.expected = expected
        self.doc = doc
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Knob[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Knob[T] | T:
        if instance is None:
            return self
        overrides = _overrides.get()
        if self.name in overrides:
            value: T = overrides[self.name]
            return value
        text = os.environ.get(self.env)
        return self.default if text is None or text == "" else self.convert(text, self.env)

    def __set__(self, instance: object, value: T) -> None:
        raise OptionError(f"config.{self.name} cannot be assigned",
                          help=f"use `with weft.config({self.name}={value!r}):`, or set {self.env}")

    def convert(self, value: Any, where: str) -> T:
        """``value``, text or a Python value, converted to the type of this setting."""
        try:
            return self.parse(_as_text(value))
        except ValueError:
            raise OptionError(f"invalid value of {where}", expected=self.expected,
                              got=repr(value), help=self.doc) from None


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"", "0", "false", "no", "off"}:
        return False
    raise ValueError(text)


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return parse


def _optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    return lambda text: parse(text) if text else None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _path(text: str) -> Path:
    if "\0" in text:
        raise ValueError(text)
    return Path(text).expanduser()


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(map(_path, _names(text)))


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(text: str) -> int:
    body = text.strip().lower().removesuffix("b")
    unit = body[-1:] if body[-1:] in {"k", "m", "g"} else ""
    value = float(body.removesuffix(unit))
    if value < 0 or not math.isfinite(value):
        raise ValueError(text)
    return int(value * _UNITS[unit])


class Config:
    """The table of settings; ``config`` is the only instance."""

    debug = Knob("WEFT_DEBUG", 0, _integer(0, 7), "0 to 7",
                 "print more, each level with all below: 1 devices and cache hits, 2 kernels with "
                 "their times, 3 chosen implementations and fusion groups, 4 LLVM IR, 5 IR after "
                 "each phase, 6 IR after each pass that changed it, 7 assembly")
    print_before = Knob("WEFT_PRINT_BEFORE", (), _names, "names of passes, or all",
                        "print the IR before these passes")
    print_after = Knob("WEFT_PRINT_AFTER", (), _names, "names of passes, or all",
                       "print the IR after these passes")
    dump_dir = Knob("WEFT_DUMP_DIR", None, _optional(_path), "a folder",
                    "write one numbered file per stage and per kernel into this folder")
    verify = Knob("WEFT_VERIFY", 1, _integer(0, 3), "0 to 3",
                  "0 off, 1 check programs at the end of each phase and where they become steps, "
                  "memory and bytecode, 2 after every graph pass and loop programs after all tir "
                  "passes, 3 also evaluate before and after each graph pass on random inputs")
    time_passes = Knob("WEFT_TIME_PASSES", False, _flag, "0 or 1",
                       "print a sorted table of the time each pass took")
    trace = Knob("WEFT_TRACE", None, _optional(_path), "a file name",
                 "write a Chrome trace (chrome://tracing, Perfetto) of the whole process")
    explain = Knob("WEFT_EXPLAIN", (), _names, "names of rules or operators, placement, or all",
                   "say why these rewrite rules did not apply, and what else the operators could "
                   "have run on")
    no_cache = Knob("WEFT_NO_CACHE", False, _flag, "0 or 1",
                    "neither read nor write the disk cache")
    no_plugins = Knob("WEFT_NO_PLUGINS", False, _flag, "0 or 1",
                      "load no plug-ins (packages with entry points in the group weft.plugins)")
    cache_dir = Knob("WEFT_CACHE_DIR", None, _optional(_path), "a folder",
                     "where compiled code is kept (default: the user's cache folder)")
    cache_size = Knob("WEFT_CACHE_SIZE", 4 << 30, _size, "a size such as 512M or 4G",
                      "size above which the least recently used entries are evicted")
    store = Knob("WEFT_STORE", (), _paths, "folders",
                 "folders of compiled code that are read where the cache has none (`weft warm "
                 "--into FOLDER` writes one)")
    hash_models = Knob("WEFT_HASH_MODELS", False, _flag, "0 or 1",
                       "read the file of a model each time to see whether it has changed, instead "
                       "of trusting its inode, size and times")
    calibrate = Knob("WEFT_CALIBRATE", True, _flag, "0 or 1",
                     "measure the machine when code is first compiled for a CPU that no table "
                     "knows (0: take the table of the nearest CPU)")
    winograd = Knob("WEFT_WINOGRAD", True, _flag, "0 or 1",
                    "use Winograd for 3x3 convolutions (larger weights and rounding errors, "
                    "relative ones below 1e-4)")
    precision = Knob("WEFT_PRECISION", "fp32", _one_of("fp32", "bf16", "fp16", "int8", "int4"),
                     "fp32, bf16, fp16, int8 or int4",
                     "what matmuls compute in (bf16, fp16: convolutions too), or what their "
                     "constant weights are quantised to (int8, int4)")
    threads = Knob("WEFT_THREADS", None, _optional(_integer(1, 4096)), "1 to 4096",
                   "threads of compiled code (default: OMP_NUM_THREADS, else the CPUs the process "
                   "may use); weft.compile(model, threads=n) keeps a count in the module")
    target = Knob("WEFT_TARGET", "cpu", str, 'such as "cpu" or "llvm -mcpu=znver4"',
                  "what to compile for where the caller does not say")
    records = Knob("WEFT_RECORDS", None, _optional(_path), "a file name",
                   "choose kernels by the times in this file, which `weft tune` writes")
    cuda = Knob("WEFT_CUDA", "driver", _one_of("driver", "emulate"), "driver or emulate",
                "how programs for NVIDIA GPUs run: by the installed driver, or on the CPU by an "
                "emulator of their PTX code")
    cuda_archs = Knob("WEFT_CUDA_ARCHS", (), _names, "architectures, such as sm_80,sm_90a",
                      "architectures that artifacts have machine code for, beside PTX (default: "
                      "that of the target)")
    cuda_graphs = Knob("WEFT_CUDA_GRAPHS", True, _flag, "0 or 1",
                       "record the launches of a program as a CUDA graph at its second call")
    cuda_sync = Knob("WEFT_CUDA_SYNC", False, _flag, "0 or 1",
                     "wait for each kernel of a GPU, so that errors name the kernel that failed")
    seed = Knob("WEFT_SEED", 0, _integer(0, 2**32 - 1), "an integer from 0 to 2**32 - 1",
                "seed of random inputs (benchmarks, verification, `weft run --fill random`)")
    build_jobs = Knob("WEFT_BUILD_JOBS", None, _optional(_integer(1, 1024)), "1 to 1024",
                      "processes that build kernels (default: the CPUs the process may use)")
    dynamic_programs = Knob("WEFT_DYNAMIC_PROGRAMS", 16, _integer(1, 65536), "1 to 65536",
                            "programs that a model with dynamic shapes keeps, one for each set of "
                            "input shapes")
    symbolic_sizes = Knob("WEFT_SYMBOLIC_SIZES", True, _flag, "0 or 1",
                          "compile a model with dynamic shapes once for all sizes; 0 compiles it "
                          "for each set of input shapes")
    specialize_after = Knob("WEFT_SPECIALIZE_AFTER", 0, _integer(0, 2**31), "0 or more",
                            "calls with the same sizes after which a thread makes kernels for "
                            "them; 0: never")
    progress = Knob("WEFT_PROGRESS", True, _flag, "0 or 1",
                    "show the progress of compilations longer than a second on terminals and in "
                    "notebooks")
    perf_map = Knob("WEFT_PERF_MAP", False, _flag, "0 or 1",
                    "write /tmp/perf-PID.map, so that `perf` names compiled kernels")

    @contextmanager
    def __call__(self, **values: Any) -> Iterator[Config]:
        """Set values inside the block, for this thread or task only."""
        token = _overrides.set({**_overrides.get(), **self.check(values)})
        try:
            yield self
        finally:
            _overrides.reset(token)

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """``values`` converted; unknown names and invalid values raise ``OptionError``."""
        known = knobs()
        checked = {}
        for name, value in values.items():
            if name not in known:
                raise unknown_option(name, known)
            checked[name] = known[name].convert(value, f"option {name!r}")
        return checked

    def overrides(self) -> dict[str, Any]:
        """The values set by enclosing ``with config(...)`` blocks, to pass to another thread."""
        return dict(_overrides.get())

    def override(self, name: str) -> Any:
        """The value set by enclosing blocks for one setting; ``None`` if they do not set it."""
        return _overrides.get().get(name)

    def __repr__(self) -> str:
        return f"config({', '.join(f'{n}={getattr(self, n)!r}' for n in knobs())})"


def unknown_option(name: str, known: Iterable[str]) -> OptionError:
    """The error for an option that is not among the ``known`` ones."""
    options = list(known)
    return OptionError(f"unknown option {name!r}", expected=f"one of {', '.join(options)}",
                       help=did_you_mean(name, options))


def knobs() -> dict[str, Knob[Any]]:
    """All settings by name, in the order of the table."""
    return {name: knob for name, knob in vars(Config).items() if isinstance(knob, Knob)}


# Variables of the development tools.
_OF_TOOLS = frozenset({"WEFT_FUZZ_EXAMPLES", "WEFT_PYTHON", "WEFT_TEST_COUNT", "WEFT_TEST_SEED",
                       "WEFT_TEST_SHARE", "WEFT_VENV"})


def unknown_variables() -> dict[str, str | None]:
    """Environment variables ``WEFT_*`` that are not settings, each with the closest setting."""
    known = {knob.env for knob in knobs().values()}
    unknown = sorted(name for name in os.environ
                     if name.startswith("WEFT_") and name not in known | _OF_TOOLS)
    return {name: next(iter(nearest(name, known)), None) for name in unknown}


@functools.cache
def report_unknown_variables() -> None:
    """Warn about ``unknown_variables`` once per process: misspelled settings have no effect."""
    for name, close in unknown_variables().items():
        import logging  # takes a third of the time of `import weft`

        hint = f"; did you mean {close}?" if close else "; `weft doctor` lists the settings"
        logging.getLogger("weft.config").warning("%s is not a setting of weft%s", name, hint)


def knob_table() -> str:
    """The table of settings as Markdown, for the documentation and ``weft doctor``."""
    rows = [f"| `{k.env}` | `{name}` | {k.expected} | {_shown(k.default)} | {k.doc} |"
            for name, k in knobs().items()]
    head = ["| variable | option | values | default | meaning |", "|---|---|---|---|---|"]
    return "\n".join(head + rows)


def _shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    return str(int(default)) if isinstance(default, bool) else str(default)


config = Config()
