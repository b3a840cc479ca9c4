"""All converters of ONNX operators; importing this module registers them."""

from __future__ import annotations

from weft.frontend.common.registry import import_converters

import_converters("weft.frontend.onnx.contrib", "weft.frontend.onnx.ops")
