"""Each line marked ``# error`` is a mistake that a type checker must report; never imported."""

from __future__ import annotations

import weft

weft.compile("net.onnx", target=3)  # error
weft.compile("net.onnx", opt_level="3")  # error
weft.compile("net.onnx", passes="fold_constant")  # error
weft.nonsense  # error
weft.parse(b"")  # error
weft.pass_at("x", behind="y")  # error
weft.op_case((3,)).nonsense  # error
weft.compile("net.onnx").nonsense()  # error
