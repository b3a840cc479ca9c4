"""Pages of the public names: each with its signature and its docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple, get_origin


class Namespace(NamedTuple):
    """A module whose ``__all__`` is public, and what the page of contents says of it."""

    name: str
    about: str


NAMESPACES = (
    Namespace("weft", "compile, tensors and functions of tensors"),
    Namespace("weft.nn", "layers and losses as modules"),
    Namespace("weft.nn.functional", "layers and losses as functions"),
    Namespace("weft.optim", "optimisers"),
    Namespace("weft.optim.lr_scheduler", "schedules of learning rates"),
    Namespace("weft.data", "datasets, samplers and the data loader"),
    Namespace("weft.linalg", "linear algebra"),
    Namespace("weft.fft", "Fourier transforms"),
    Namespace("weft.special", "special functions"),
    Namespace("weft.signal.windows", "windows of signals"),
    Namespace("weft.masked", "functions over the elements where a mask holds"),
    Namespace("weft.autograd", "gradients of tensors, and functions with gradients of their own"),
    Namespace("weft.cuda", "the GPUs of this machine"),
    Namespace("weft.array_api", "the array API standard"),
    Namespace("weft.amp", "mixed precision"),
    Namespace("weft.checkpoints", "checkpoints of training"),
    Namespace("weft.generation", "text generation"),
    Namespace("weft.serving", "models behind HTTP"),
    Namespace("weft.distributed", "many devices, processes and machines"),
    Namespace("weft.models", "models of transformers, compiled"),
    Namespace("weft.quantization", "models in fewer bits"),
    Namespace("weft.graph", "graphs in the style of TensorFlow"),
    Namespace("weft.debug", "comparison of every tensor with another evaluation"),
    Namespace("weft.export", "files that run without a compiler"),
    Namespace("weft.torch_backend", "the back end of torch.compile"),
    Namespace("weft.runtime", "arrays and loaded modules"),
    Namespace("weft.target", "targets"),
    Namespace("weft.tune", "records of measured kernels"),
    Namespace("weft.ir", "the typed intermediate representation"),
    Namespace("weft.transform", "passes"),
    Namespace("weft.strategy", "implementations of operators, and decisions"),
    Namespace("weft.te", "tensor expressions and schedules"),
    Namespace("weft.tir", "the loop-level representation"),
    Namespace("weft.codegen", "code generators"),
)

_LITERAL = re.compile(r"``(.+?)``", re.DOTALL)


def markdown_of(docstring: str) -> str:
    """A docstring as Markdown: double backquotes are single, and ``::`` before code is a colon."""
    text = _LITERAL.sub(lambda m: "`" + " ".join(m[1].split()) + "`", inspect.cleandoc(docstring))
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


def public_names(module: ModuleType) -> list[str]:
    """``__all__``, or else the functions and classes that a module itself defines."""
    own = [name for name, value in vars(module).items() if not name.startswith("_")
           and callable(value) and getattr(value, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", own))


def page_of(namespace: Namespace) -> str:
    """The page of a namespace. Raises ``ValueError`` for public names without documentation."""
    module = importlib.import_module(namespace.name)
    names = [n for n in public_names(module) if not isinstance(getattr(module, n), ModuleType)
             and not n.startswith("__")]
    silent = [n for n in names if _is_documented(getattr(module, n))
              and not (getattr(module, n).__doc__ or "").strip()]
    if silent:
        raise ValueError(f"{namespace.name}: no docstring: {', '.join(sorted(silent))}")
    parts = [f"# {namespace.name}", markdown_of(module.__doc__ or namespace.about)]
    for name in sorted(names, key=str.lower):
        parts += _entry(namespace.name, name, getattr(module, name))
    return "\n\n".join(parts) + "\n"


def _entry(module: str, name: str, value: Any) -> Iterator[str]:
    yield f"## {name}"
    kind = "class " if inspect.isclass(value) else ""
    yield f"```text\n{kind}{module}.{name}{_signature(value)}\n```"
    yield markdown_of(_docstring(value))
    if inspect.isclass(value):
        for member, method in _methods(value):
            yield f"`{member}{_signature(method, bound=True)}`"
            yield _indented(markdown_of(method.__doc__))


def _is_documented(value: Any) -> bool:
    """Whether a value can have a docstring of its own: values and aliases of types have none."""
    return callable(value) and get_origin(value) is None


def _docstring(value: Any) -> str:
    if not _is_documented(value):
        if get_origin(value) is not None:
            return f"The type `{value}`."
        text = repr(value)  # objects that say only where they are say what they are instead
        return f"A `{type(value).__name__}`." if " at 0x" in text else f"The value `{text}`."
    own = value.__doc__ or ""
    if own.startswith(f"{getattr(value, '__name__', '')}(") and inspect.isclass(value):
        return "A record of these fields."  # what dataclasses write by themselves
    return own


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """The documented public methods that a class itself defines, in order."""
    for name, value in vars(cls).items():
        plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if not name.startswith("_") and inspect.isfunction(plain) and plain.__doc__:
            yield name, plain


def _signature(value: Any, *, bound: bool = False) -> str:
    """The parameters in parentheses; nothing for values that are not called."""
    if not _is_documented(value):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [p.replace(annotation=inspect.Parameter.empty)
                  for p in signature.parameters.values()]
    if bound and parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    text = str(inspect.Signature(parameters))
    return re.sub(r"<[^<>]* at 0x[0-9a-f]+>|<function ([\w.]+)[^>]*>", r"\1...", text)


def _indented(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
