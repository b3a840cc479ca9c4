"""A small network on a microcontroller: no system, no C library, the size of the linked program."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import op
from weft.ir import Function, const, var

pytest.importorskip("ziglang")
QEMU = shutil.which("qemu-arm")
TARGET = "llvm -mtriple=thumbv7em-none-eabihf -mcpu=cortex-m4"
MOST_BYTES = 50_000
# Linux under the emulator stands for the board: the program reads an image and writes the scores.
PROGRAM = """
#include "cnn.h"

static float image[28 * 28], scores[10];
static unsigned char memory[32768 + 64];

static int call(int number, int first, void *data, int size) {
  register int r7 __asm__("r7") = number, r0 __asm__("r0") = first, r2 __asm__("r2") = size;
  register void *r1 __asm__("r1") = data;
  __asm__ volatile("svc 0" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r7) : "memory");
  return r0;
}

void _start(void) {
  const void *inputs[] = {image};
  void *outputs[] = {scores};
  unsigned char *workspace = memory + (64 - (unsigned)memory % 64);
  int code = 9;
  call(3, 0, image, sizeof image);
  if (cnn_workspace_size() <= 32768) code = cnn_run(inputs, outputs, workspace);
  call(4, 1, scores, sizeof scores);
  call(1, code, 0, 0);
}
"""


def network() -> Function:
    """Two convolutions and a dense layer for images of 28 by 28 pixels."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> object:
        scale = np.float32(np.sqrt(np.prod(shape[1:])))
        return const(rng.standard_normal(shape).astype(np.float32) / scale)

    y = x = var("x", (1, 1, 28, 28))
    for shape in ((8, 1, 3, 3), (16, 8, 3, 3)):
        y = op.nn.relu(op.nn.conv2d(y, weights(*shape)))
        y = op.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2))
    y = op.nn.dense(op.reshape(y, newshape=(1, -1)), weights(10, 400))
    return Function((x,), op.nn.softmax(y))


def sections(elf: bytes) -> dict[str, int]:
    """The sizes of the sections of an ELF file of 32 bits that take memory."""
    table, size, count, names = (*struct.unpack_from("<I", elf, 32),
                                 *struct.unpack_from("<3H", elf, 46))
    rows = [struct.unpack_from("<6I", elf, table + n * size) for n in range(count)]
    text = rows[names][4]
    return {elf[text + row[0]:elf.index(b"\0", text + row[0])].decode(): row[5]
            for row in rows if row[2] & 2}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    module = weft.compile(network(), target=TARGET)
    module.export(folder / "cnn", format="c")
    (folder / "start.c").write_text(PROGRAM)
    zig = [sys.executable, "-m", "ziglang"]
    subprocess.run([*zig, "cc", "-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4", "-Os",
                    "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-I", "cnn", "-c", "start.c",
                    "-o", "start.o"], cwd=folder, check=True)
    subprocess.run([*zig, "ld.lld", "start.o", "cnn/cnn.o", "--gc-sections", "-o", "app"],
                   cwd=folder, check=True)
    return folder / "app"


def test_the_linked_program_is_small(program: Path) -> None:
    """Code and tables without weights, whose size the second figure is."""
    sizes = sections(program.read_bytes())
    constants = 4 * (8 * 9 + 16 * 8 * 9 + 10 * 400)
    whole = sum(size for name, size in sizes.items() if name != ".bss")
    print(f"sections {sizes}: {whole} bytes, {whole - constants} without {constants} of weights")
    assert whole - constants < MOST_BYTES // 2
    assert whole < MOST_BYTES


@pytest.mark.skipif(QEMU is None, reason="there is no emulator of Arm")
def test_it_gives_the_scores_of_this_machine(program: Path) -> None:
    image = np.random.default_rng(1).standard_normal((1, 1, 28, 28)).astype(np.float32)
    done = subprocess.run([QEMU, program], input=image.tobytes(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted = weft.compile(network())(image)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), wanted[0], rtol=1e-5)
