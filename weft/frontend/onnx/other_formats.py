"""Files of other formats that users give for ONNX models, and how weft takes each."""

from __future__ import annotations

import io

from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError


@dataclass(frozen=True)
class OtherFormat:
    """A format, and what its owner does."""

    what: str
    help: str


_STATE = OtherFormat(
    "what torch.save writes",
    "make the module, module.load_state_dict(torch.load(path)), then "
    "weft.compile(module.eval(), example_inputs=(x,)); or write a .pt2 by torch.export.save")
_SCRIPT = OtherFormat(
    "a program of TorchScript",
    "weft.compile(torch.jit.load(path), example_inputs=(x,))")
_EXPORTED = OtherFormat(
    "what torch.export.save writes", "name it .pt2, or give what torch.export.load returns")
_KERAS = OtherFormat(
    "a model of Keras",
    "load it with KERAS_BACKEND=torch: weft.compile(keras.models.load_model(path), "
    "example_inputs=(x,))")
_ARTIFACT = OtherFormat("a compiled artifact", "run it with weft.load(path)")
_PICKLE = OtherFormat(
    "a pickle of Python objects",
    "load it in Python; skl2onnx converts models of scikit-learn to ONNX, onnxmltools those of "
    "LightGBM and XGBoost")
_WEIGHTS = OtherFormat(
    "weights of safetensors, without a model",
    "load them into a module; language models: weft.models.load(folder)")
# What a file begins with.
_MAGIC = (
    (b"\x89HDF\r\n\x1a\n", _KERAS),
    (b"GGUF", OtherFormat("a language model of GGUF", "weft.models.load(path), or weft chat path")),
    (b"ML\xefR", OtherFormat("bytecode of MLIR", "name it .mlirbc")),
    (b"\x80\x02", _PICKLE), (b"\x80\x03", _PICKLE), (b"\x80\x04", _PICKLE), (b"\x80\x05", _PICKLE),
)
# A member of an archive, or the end of its name; earlier ones decide.
_MEMBERS = (("artifact.json", _ARTIFACT), ("models/model.json", _EXPORTED),
            ("constants.pkl", _SCRIPT), ("data.pkl", _STATE), ("config.json", _KERAS))


def other_format(data: memoryview) -> OtherFormat | None:
    """The format of a file that is not ONNX but that its first bytes, or its members, name."""
    if data[4:8] == b"TFL3":
        return OtherFormat("a model of TensorFlow Lite", "name it .tflite")
    if data[:4] == b"PK\x03\x04":
        return _of_archive(data)
    if data[8:9] == b"{" and 2 <= int.from_bytes(data[:8], "little") <= len(data) - 8:
        return _WEIGHTS
    return next((kind for magic, kind in _MAGIC if data[:len(magic)] == magic), None)


def _of_archive(data: memoryview) -> OtherFormat | None:
    import zipfile  # no file of ONNX needs it

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return None
    return next((kind for end, kind in _MEMBERS if any(
        name == end or name.endswith("/" + end) for name in names)), None)


def refuse_other_format(data: memoryview, source: str) -> None:
    """Raise ``InvalidModelError`` for a file of a known format that is not ONNX."""
    found = other_format(data)
    if found is not None:
        raise InvalidModelError(f"the model file is not an ONNX model but {found.what}",
                                where=source, help=found.help)
