"""The checksum CRC-32C (Castagnoli), computed in many lanes at once by NumPy."""

from __future__ import annotations

import numpy as np

from weft.frontend.common import arrays

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_LANE_BYTES = 1024


def _table() -> np.ndarray:
    values = arrays.arange(256).astype(np.uint32)
    for _ in range(8):
        values = np.where(values & 1, values >> np.uint32(1) ^ np.uint32(_POLYNOMIAL),
                          values >> np.uint32(1))
    return values


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The checksum of ``data``.

    The register is linear in the data, and zeros in front leave it zero. So the data, filled up
    with zeros in front, are split into lanes; the registers of two neighbours combine into one by
    the matrix that moves a register past the length of a lane.
    """
    count = 1
    while len(data) > count * _LANE_BYTES:
        count *= 2
    length = -(-len(data) // count)
    padded = arrays.zeros(count * length, np.uint8)
    offset = len(padded) - len(data)
    padded[offset:] = np.frombuffer(data, np.uint8)
    first = min(len(data), 4)
    padded[offset:offset + first] ^= np.uint8(0xFF)  # the register starts as ones
    state = arrays.zeros(count, np.uint32)
    for column in padded.reshape(count, length).T:
        state = _TABLE[(state ^ column) & np.uint32(0xFF)] ^ state >> np.uint32(8)
    matrix = _shift_matrix(length)
    while len(state) > 1:
        state = _times(matrix, state[::2]) ^ state[1::2]
        matrix = _times(matrix, matrix)
    return int(state[0]) ^ (0xFFFFFFFF >> 8 * first if first < 4 else 0) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as TensorFlow's files store it, so that it may itself be part of data."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _shift_matrix(length: int) -> np.ndarray:
    """What ``length`` zero bytes make of each bit of a register."""
    columns = np.uint32(1) << arrays.arange(32).astype(np.uint32)
    step = _TABLE[columns & np.uint32(0xFF)] ^ columns >> np.uint32(8)
    result = columns
    while length:
        if length & 1:
            result = _times(step, result)
        step = _times(step, step)
        length >>= 1
    return result


def _times(matrix: np.ndarray, registers: np.ndarray) -> np.ndarray:
    """Each register times a matrix over single bits."""
    result = np.zeros_like(registers)
    for bit in range(32):
        chosen = registers >> np.uint32(bit) & np.uint32(1)
        result ^= np.where(chosen, matrix[bit], np.uint32(0))
    return result
