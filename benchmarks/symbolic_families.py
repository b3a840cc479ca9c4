"""The programs of ``benchmarks.symbolic_kernels``, by operator family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LENGTHS = (1, 7, 16, 64, 128, 197, 1000)


@dataclass(frozen=True)
class SymbolicKernel:
    """A program in text form whose sizes in braces are symbols, or numbers from ``points``.

    ``{n}`` becomes ``n`` in the symbolic program and 7 in the program of the point ``{"n": 7}``.
    ``ranges`` gives a symbol a range: ``{"n": "1..16"}``.
    """

    family: str
    name: str
    text: str
    points: tuple[Mapping[str, int], ...]
    ranges: Mapping[str, str] | None = None

    def symbolic(self) -> str:
        """The program over symbols."""
        ranges = self.ranges or {}
        return self._program({name: f"{name}{{{ranges[name]}}}" if name in ranges else name
                              for name in self.points[0]})

    def fixed(self, point: Mapping[str, int]) -> str:
        """The program of one point."""
        return self._program({name: str(size) for name, size in point.items()})

    def _program(self, sizes: Mapping[str, str]) -> str:
        text = self.text
        for name, size in sizes.items():
            text = text.replace("{" + name + "}", size)
        return text


def over(name: str, sizes: Sequence[int], **others: int) -> tuple[Mapping[str, int], ...]:
    """A point for each size of the symbol ``name``; the ``others`` have one size."""
    return tuple({name: size, **others} for size in sizes)


def batches(*points: tuple[Mapping[str, int], ...]) -> tuple[Mapping[str, int], ...]:
    """Several series of points as one."""
    return tuple(point for series in points for point in series)


def main(params: str, body: str) -> str:
    """``def @main(params) { body }``; ``params`` as ``x: (b, n); i: (n,) int64``."""
    made = []
    for param in params.split(";"):
        name, _, rest = param.partition(":")
        shape, _, dtype = rest.strip().rpartition(")")
        made.append(f"%{name.strip()}: Tensor[{shape}), {dtype.strip() or 'float32'}]")
    return f"def @main({', '.join(made)}) {{ {body} }}"


SEQUENCES = batches(over("n", LENGTHS, b=1), over("n", (7, 128), b=8))
IMAGES = batches(over("h", (7, 28, 56, 197), b=1), over("h", (7, 28), b=8))

ELEMENTWISE = (
    SymbolicKernel("elementwise", "relu(x + y)",
                   main("x: ({b}, {n}, 64); y: ({b}, {n}, 64)", "nn.relu(add(%x, %y))"),
                   SEQUENCES),
    SymbolicKernel("elementwise", "x * y, length innermost",
                   main("x: ({b}, 16, {n}); y: ({b}, 16, {n})", "multiply(%x, %y)"), SEQUENCES),
    SymbolicKernel("elementwise", "gelu by erf",
                   main("x: ({b}, {n}, 256)", "multiply(%x, add(erf(%x), 1f))"), SEQUENCES),
    SymbolicKernel("elementwise", "sigmoid, length innermost",
                   main("x: ({b}, 8, {n})", "multiply(%x, sigmoid(%x))"), SEQUENCES),
    SymbolicKernel("elementwise", "x + bias of 256",
                   main("x: ({b}, {n}, 256); y: (256,)", "add(%x, %y)"), SEQUENCES),
    SymbolicKernel("elementwise", "mask over scores",
                   main("x: ({b}, 12, {n}, {n}); m: ({b}, 1, 1, {n})", "add(%x, %m)"), SEQUENCES),
    SymbolicKernel("elementwise", "scale by channels",
                   main("x: ({b}, 32, {h}, {h}); s: (32, 1, 1)", "nn.relu(multiply(%x, %s))"),
                   IMAGES),
    SymbolicKernel("elementwise", "cast to int8",
                   main("x: ({b}, {n}, 64)", 'cast(%x, dtype="int8")'), SEQUENCES),
)

MOVEMENT = (
    SymbolicKernel("movement", "split heads",
                   main("x: ({b}, {n}, 12, 64)", "transpose(%x, axes=[0, 2, 1, 3])"), SEQUENCES),
    SymbolicKernel("movement", "transpose (n, 64)",
                   main("x: ({b}, {n}, 64)", "transpose(%x, axes=[0, 2, 1])"), SEQUENCES),
    SymbolicKernel("movement", "transpose (64, n)",
                   main("x: ({b}, 64, {n})", "transpose(%x, axes=[0, 2, 1])"), SEQUENCES),
    SymbolicKernel("movement", "transpose (n, n)",
                   main("x: ({b}, {n}, {n})", "transpose(%x, axes=[0, 2, 1])"), SEQUENCES),
    SymbolicKernel("movement", "concatenate along n",
                   main("x: ({b}, {n}, 64); y: ({b}, 1, 64)",
                        "concatenate((%x, %y), axis=1)"), SEQUENCES),
    SymbolicKernel("movement", "pad (h, h)",
                   main("x: ({b}, 16, {h}, {h})",
                        "nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]])"), IMAGES),
    SymbolicKernel("movement", "stack",
                   main("x: ({b}, {n}); y: ({b}, {n})", "stack((%x, %y), axis=1)"), SEQUENCES),
    SymbolicKernel("movement", "embedding",
                   main("t: (512, 256); i: ({b}, {n}) int64", "take(%t, %i, axis=0)"), SEQUENCES),
    SymbolicKernel("movement", "slice of heads",
                   main("x: ({b}, {n}, 768)",
                        "strided_slice(%x, begin=[256], end=[512], axes=[2])"), SEQUENCES),
)

REDUCTIONS = (
    SymbolicKernel("rows", "softmax, rows of n",
                   main("x: ({b}, 12, {n})", "nn.softmax(%x)"), SEQUENCES),
    SymbolicKernel("rows", "softmax of scores (n, n)",
                   main("x: ({b}, 4, {n}, {n})", "nn.softmax(%x)"), SEQUENCES),
    SymbolicKernel("rows", "log softmax, n rows of 1000",
                   main("x: ({b}, {n}, 1000)", "nn.log_softmax(%x)"), SEQUENCES),
    SymbolicKernel("rows", "layer norm, n rows of 768",
                   main("x: ({b}, {n}, 768); g: (768,); s: (768,)",
                        "nn.layer_norm(%x, %g, %s)"), SEQUENCES),
    SymbolicKernel("rows", "rms norm, n rows of 2048",
                   main("x: ({b}, {n}, 2048); g: (2048,)", "nn.rms_norm(%x, %g)"), SEQUENCES),
    SymbolicKernel("rows", "layer norm, rows of n",
                   main("x: ({b}, 12, {n}); g: ({n},); s: ({n},)",
                        "nn.layer_norm(%x, %g, %s)"), SEQUENCES),
    SymbolicKernel("rows", "sum, n rows of 64",
                   main("x: ({b}, {n}, 64)", "sum(%x, axis=[2])"), SEQUENCES),
    SymbolicKernel("rows", "max, rows of n",
                   main("x: ({b}, 12, {n})", "max(%x, axis=[2])"), SEQUENCES),
    SymbolicKernel("rows", "argmax, rows of n",
                   main("x: ({b}, 12, {n})", "argmax(%x, axis=[2])"), SEQUENCES),
    SymbolicKernel("rows", "mean, n rows of 768",
                   main("x: ({b}, {n}, 768)", "mean(%x, axis=[2])"), SEQUENCES),
    SymbolicKernel("rows", "instance norm (h, h)",
                   main("x: ({b}, 16, {h}, {h}); g: (16,); s: (16,)",
                        "nn.instance_norm(%x, %g, %s)"), IMAGES),
    SymbolicKernel("rows", "group norm (h, h)",
                   main("x: ({b}, 32, {h}, {h}); g: (32,); s: (32,)",
                        "nn.group_norm(%x, %g, %s, num_groups=8)"), IMAGES),
    SymbolicKernel("rows", "global average pool (h, h)",
                   main("x: ({b}, 64, {h}, {h})", "nn.global_avg_pool2d(%x)"), IMAGES),
)

COLUMNS = (
    SymbolicKernel("columns", "sum over n, 256 columns",
                   main("x: ({b}, {n}, 256)", "sum(%x, axis=[1])"), SEQUENCES),
    SymbolicKernel("columns", "sum over 64, n columns",
                   main("x: ({b}, 64, {n})", "sum(%x, axis=[1])"), SEQUENCES),
    SymbolicKernel("columns", "softmax over 64, n columns",
                   main("x: ({b}, 64, {n})", "nn.softmax(%x, axis=1)"), SEQUENCES),
    SymbolicKernel("columns", "sum over everything",
                   main("x: ({b}, {n}, 256)", "sum(%x)"), SEQUENCES),
)

POOLS = (
    SymbolicKernel("pooling", "max 3x3 stride 2",
                   main("x: ({b}, 16, {h}, {h})",
                        "nn.max_pool2d(%x, pool_size=[3, 3], strides=[2, 2], "
                        "padding=[1, 1, 1, 1])"), IMAGES),
    SymbolicKernel("pooling", "max 2x2 stride 2",
                   main("x: ({b}, 16, {h}, {h})",
                        "nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2])"), IMAGES),
    SymbolicKernel("pooling", "average 3x3, channels last",
                   main("x: ({b}, {h}, {h}, 32)",
                        "nn.avg_pool2d(%x, pool_size=[3, 3], strides=[1, 1], "
                        'padding=[1, 1, 1, 1], layout="NHWC")'), IMAGES),
    SymbolicKernel("pooling", "max 3x3 stride 2, blocked channels",
                   main("x: ({b}, 2, {h}, {h}, 16)",
                        "nn.max_pool2d(%x, pool_size=[3, 3], strides=[2, 2], "
                        'padding=[1, 1, 1, 1], layout="NCHW16c")'), IMAGES),
)

RESAMPLING = (
    SymbolicKernel("resampling", "upsampling by 2",
                   main("x: ({b}, 16, {h}, {h})", "nn.upsampling(%x, scale_h=2.0, scale_w=2.0)"),
                   IMAGES),
    SymbolicKernel("resampling", "resize to 64x64",
                   main("x: ({b}, 16, {h}, {h})", "image.resize2d(%x, size=[64, 64])"), IMAGES),
)

# Rows of a dense layer with a weight (K, N) in panels of ``nr`` columns, as the general decision of
# a CPU with AVX-512 packs it: the kernels for one size read the same panels.
ROWS = (1, 2, 4, 7, 16, 33, 64, 100, 128, 197, 256, 500, 512, 1000)


def dense(k: int, n: int, nr: int = 48) -> SymbolicKernel:
    """A dense layer with any number of rows, for BERT, GPT-2 and Llama."""
    weight = f'weight_layout="NK{nr}n", units={n}'
    return SymbolicKernel("gemm", f"dense {k} to {n}",
                          main(f"x: ({{m}}, {k}); w: ({-(-n // nr)}, {k}, {nr})",
                               f"nn.dense(%x, %w, {weight})"), over("m", ROWS))


GEMM = (
    dense(768, 768), dense(768, 3072), dense(3072, 768), dense(2048, 5632), dense(768, 50257),
    SymbolicKernel("gemm", "queries by keys, 12 heads of 64",
                   main("q: (12, {m}, 64); k: (12, {m}, 64)", "nn.batch_matmul(%q, %k)"),
                   over("m", LENGTHS)),
    SymbolicKernel("gemm", "one query by keys, 12 heads of 64",
                   main("q: (12, 1, 64); k: (12, {m}, 64)", "nn.batch_matmul(%q, %k)"),
                   over("m", LENGTHS)),
    SymbolicKernel("gemm", "scores by values, 12 heads of 64",
                   main("s: (12, {m}, {m}); v: (12, {m}, 64)",
                        "nn.batch_matmul(%s, %v, transpose_b=False)"), over("m", LENGTHS)),
    SymbolicKernel("gemm", "step of an LSTM, 256 to 1024",
                   main("h: ({m}, 256); w: (256, 1024)", "nn.matmul(%h, %w)"), over("m", ROWS)),
    SymbolicKernel("gemm", "gradient of a weight",
                   main("x: ({m}, 768); dy: ({m}, 768)", "nn.matmul(%x, %dy, transpose_a=True)"),
                   over("m", LENGTHS)),
)

_QKV = "q: ({b}, 12, {n}, 64); k: ({b}, 12, {n}, 64); v: ({b}, 12, {n}, 64)"
_DECODE = "q: (1, 12, 1, 64); k: (1, 12, {s}, 64); v: (1, 12, {s}, 64)"
_GROUPED = "q: (1, 32, {n}, 128); k: (1, 8, {s}, 128); v: (1, 8, {s}, 128)"
_STEPS = over("s", (16, 128, 1000))

ATTENTION = (
    SymbolicKernel("attention", "12 heads of 64",
                   main(_QKV, "nn.attention(%q, %k, %v, scale=0.125)"), SEQUENCES),
    SymbolicKernel("attention", "12 heads of 64, causal",
                   main(_QKV, "nn.attention(%q, %k, %v, scale=0.125, causal=True)"), SEQUENCES),
    SymbolicKernel("attention", "12 heads of 64, padding mask",
                   main(f"{_QKV}; m: ({{b}}, 1, 1, {{n}})",
                        "nn.masked_attention(%q, %k, %v, %m, scale=0.125)"), SEQUENCES),
    SymbolicKernel("attention", "1 query, 12 heads of 64",
                   main(_DECODE, "nn.attention(%q, %k, %v, scale=0.125)"), _STEPS),
    SymbolicKernel("attention", "32 heads of 128 share 8",
                   main(_GROUPED, "nn.attention(%q, %k, %v, scale=0.1)"),
                   batches(over("s", (128, 1000), n=1), over("s", (128, 512), n=128))),
    SymbolicKernel("attention", "rotary embedding, 32 heads of 128",
                   main("x: ({b}, 32, {n}, 128); i: ({b}, {n}) int64; c: (4096, 64); s: (4096, 64)",
                        "nn.rotary_embedding(%x, %i, %c, %s)"), SEQUENCES),
)

IMAGES = batches(over("h", (7, 13, 14, 25, 56), n=1), over("h", (7, 14), n=8))


def convolution(name: str, channels: int, taps: int, **attrs: object) -> SymbolicKernel:
    """Blocked images of height and width ``h`` through a packed kernel, ReLU behind."""
    blocks, groups = channels // 16, attrs.get("groups", 1)
    inner = f"({blocks}, 1, {taps}, {taps}, 1, 16)" if groups != 1 else (
        f"({blocks}, {taps}, {blocks}, {taps}, 16, 16)")
    layout = "OIHW1i16o" if groups != 1 else "OHIW16i16o"
    padding = taps // 2
    given = ", ".join(f"{key}={value}" for key, value in attrs.items())
    body = (f'nn.relu(nn.conv2d(%x, %w, padding=[{padding}, {padding}], data_layout="NCHW16c", '
            f'kernel_layout="{layout}", finite_kernel=True{", " if given else ""}{given}))')
    return SymbolicKernel("convolution", name,
                          main(f"x: ({{n}}, {blocks}, {{h}}, {{h}}, 16); w: {inner}", body), IMAGES)


CONVOLUTIONS = (
    convolution("1x1, 256 channels", 256, 1),
    convolution("3x3, 64 channels", 64, 3),
    convolution("3x3, 128 channels, stride 2", 128, 3, strides=[2, 2]),
    convolution("depthwise 3x3, 256 channels", 256, 3, groups=256),
    convolution("depthwise 3x3, 256 channels, stride 2", 256, 3, groups=256, strides=[2, 2]),
    SymbolicKernel("convolution", "Winograd 3x3, 64 channels",
                   main("x: ({n}, 4, {h}, {h}, 16); w: (6, 6, 4, 64, 16)",
                        'nn.relu(nn.winograd_conv2d(%x, %w, padding=[1, 1], '
                        'data_layout="NCHW16c", kernel_layout="HWOI16o", out_layout="NCHW16c"))'),
                   IMAGES),
)

KERNELS: tuple[SymbolicKernel, ...] = (
    *ELEMENTWISE, *MOVEMENT, *REDUCTIONS, *COLUMNS, *POOLS, *RESAMPLING, *GEMM,
    *ATTENTION, *CONVOLUTIONS,
)
