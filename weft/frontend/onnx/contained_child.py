"""Child process of ``contained``: call a function of onnx's C++ module on the model from stdin.

Arguments: the CPU time limit in seconds, the file of the C++ module, the function name, its
options, and the entries of ``sys.path``. The script does not import weft, and imports only the C++
module of onnx if that can be loaded alone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import sys
from types import ModuleType

_NAME = "onnx.onnx_cpp2py_export"


def load(file: str, path: list[str]) -> ModuleType:
    """Load the C++ module alone; if that fails, import it through the ``onnx`` package."""
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
    """Limit the CPU time of this process; the system kills it at the limit."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # such as a lower hard limit
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def main() -> None:
    """Read a model from stdin; write the result and the end marker to stdout."""
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
