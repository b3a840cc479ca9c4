"""The child process of ``contained``: one call of onnx's C++ module on what comes in.

Arguments: how many seconds of a CPU's time it may take, the file of the module, the function, its
options, and where Python finds modules. It imports nothing of weft, and of onnx the C++ module
alone where that is possible.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import sys
from types import ModuleType

_NAME = "onnx.onnx_cpp2py_export"


def load(file: str, path: list[str]) -> ModuleType:
    """The C++ module; by way of the whole package where it does not load by itself."""
    spec = importlib.util.spec_from_file_location(_NAME, file)
    try:
        if spec is None or spec.loader is None:
            raise ImportError(file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception:  # noqa: BLE001 - its initialisation may fail in any way
        sys.path[:] = path
        module = importlib.import_module(_NAME)
    return module


def limit_cpu_time(seconds: int) -> None:
    """Let the system end this process once it has computed for so long."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # or a lower limit is set already
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def main() -> None:
    """Read a model, write the changed one and the mark of the end."""
    seconds, file, function, options, *path = sys.argv[1:]
    limit_cpu_time(int(seconds))
    faulthandler.disable()
    module = load(file, path)
    proto, numbers = sys.stdin.buffer.read(), map(int, options.split())
    if function == "infer_shapes":
        result = module.shape_inference.infer_shapes(proto, *map(bool, numbers))
    else:
        result = module.version_converter.convert_version(proto, *numbers)
    sys.stdout.buffer.write(result + b"complete")


if __name__ == "__main__":
    main()
