"""The elements of quantised blocks, one by one, as the GGUF specification describes them."""

from __future__ import annotations

import numpy as np


def half(data: bytes, at: int) -> float:
    return float(np.frombuffer(data, np.float16, 1, at)[0])


def q8_0(b: bytes) -> list[float]:
    return [half(b, 0) * (byte - 256 * (byte > 127)) for byte in b[2:]]


def q4_0(b: bytes) -> list[float]:
    return [half(b, 0) * (quant - 8) for quant in
            [byte & 15 for byte in b[2:]] + [byte >> 4 for byte in b[2:]]]


def q4_k(b: bytes) -> list[float]:
    found: list[float] = []
    scales, quants = b[4:16], b[16:]
    for group in range(8):
        if group < 4:
            scale, low = scales[group] & 63, scales[group + 4] & 63
        else:
            scale = (scales[group + 4] & 15) | (scales[group - 4] >> 6 << 4)
            low = (scales[group + 4] >> 4) | (scales[group] >> 6 << 4)
        part = quants[group // 2 * 32:group // 2 * 32 + 32]
        values = [byte >> 4 if group % 2 else byte & 15 for byte in part]
        found += [half(b, 0) * scale * value - half(b, 2) * low for value in values]
    return found


def q6_k(b: bytes) -> list[float]:
    low, high, scales = b[:128], b[128:192], np.frombuffer(b, np.int8, 16, 192)
    found = [0.0] * 256
    for part in range(2):
        for i in range(32):
            bits = high[32 * part + i]
            for quarter in range(4):
                byte = low[64 * part + 32 * (quarter % 2) + i]
                quant = (byte >> 4 if quarter > 1 else byte & 15) | (bits >> 2 * quarter & 3) << 4
                scale = half(b, 208) * int(scales[8 * part + 2 * quarter + i // 16])
                found[128 * part + 32 * quarter + i] = scale * (quant - 32)
    return found


READERS = {"q8_0": q8_0, "q4_0": q4_0, "q4_k": q4_k, "q6_k": q6_k}


def elements(kind: str, data: np.ndarray, size: int) -> np.ndarray:
    """[rows, K] of rows of blocks of ``size`` bytes."""
    return np.array([[value for at in range(0, len(row), size)
                      for value in READERS[kind](row[at:at + size].tobytes())] for row in data])
