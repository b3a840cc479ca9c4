"""Models written once for ``torch.nn`` and ``weft.nn``, whose names are the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

VOCABULARY = 1000
CLASSES = 10


def mlp(nn: Any) -> Any:
    """784 numbers, two hidden layers."""
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                         nn.Linear(256, CLASSES))


def resnet9(nn: Any) -> Any:
    """Needle's ResNet9 for images of 32x32."""
    class Residual(nn.Module):
        def __init__(self, *layers: Any) -> None:
            super().__init__()
            self.body = nn.Sequential(*layers)

        def forward(self, x: Any) -> Any:
            return x + self.body(x)

    def block(c_in: int, c_out: int, kernel: int = 3, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2), nn.BatchNorm2d(c_out),
                nn.ReLU()]

    def pair(size: int) -> Any:
        return Residual(*block(size, size), *block(size, size))

    return nn.Sequential(*block(3, 16, 7, 4), *block(16, 32, 3, 2), pair(32), *block(32, 64, 3, 2),
                         *block(64, 128, 3, 2), pair(128), nn.Flatten(), nn.Linear(128, 128),
                         nn.ReLU(), nn.Linear(128, CLASSES))


def resnet18(nn: Any) -> Any:
    """ResNet-18 for images of ImageNet."""
    def block(c_in: int, c_out: int, kernel: int, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False),
                nn.BatchNorm2d(c_out)]

    class Basic(nn.Module):
        def __init__(self, c_in: int, c_out: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(*block(c_in, c_out, 3, stride), nn.ReLU(),
                                      *block(c_out, c_out, 3))
            same = stride == 1 and c_in == c_out
            self.skip = nn.Identity() if same else nn.Sequential(*block(c_in, c_out, 1, stride))
            self.last = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.last(self.body(x) + self.skip(x))

    layers, c_in = [*block(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage in range(4):
        for index in range(2):
            layers.append(Basic(c_in, 64 << stage, 2 if stage and not index else 1))
            c_in = 64 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c_in, 1000))


def _recurrent(nn: Any, layer: Any) -> Any:
    """A language model: embedding, two recurrent layers, projection."""
    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, 128)
            self.layers = layer(128, 128, num_layers=2, batch_first=True)
            self.last = nn.Linear(128, VOCABULARY)

        def forward(self, x: Any) -> Any:
            return self.last(self.layers(self.embedding(x))[0])

    return LanguageModel()


def lstm(nn: Any) -> Any:
    return _recurrent(nn, nn.LSTM)


def gru(nn: Any) -> Any:
    return _recurrent(nn, nn.GRU)


def _transformer(nn: Any, functional: Any, *, causal: bool, depth: int = 4) -> Any:
    """Pre-norm blocks of width 256 with four heads, as GPT-2 (causal) or BERT."""
    size, heads, length = 256, 4, 64

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
            self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
            self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

        def forward(self, x: Any) -> Any:
            batch = x.shape[0]
            parts = self.qkv(self.norm1(x)).reshape(batch, length, 3, heads, size // heads)
            q, k, v = (parts[:, :, i].permute(0, 2, 1, 3) for i in range(3))
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            x = x + self.out(seen.permute(0, 2, 1, 3).reshape(batch, length, size))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(VOCABULARY, size)
            self.places = nn.Embedding(length, size)
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
            self.norm = nn.LayerNorm(size)
            self.last = nn.Linear(size, VOCABULARY, bias=False)

        def forward(self, x: Any) -> Any:
            return self.last(self.norm(self.blocks(self.words(x) + self.places.weight)))

    return Transformer()


def gpt2(nn: Any) -> Any:
    return _transformer(nn, nn.functional, causal=True)


def bert(nn: Any) -> Any:
    return _transformer(nn, nn.functional, causal=False)


def transformer6(nn: Any) -> Any:
    return _transformer(nn, nn.functional, causal=True, depth=6)


MODELS: Mapping[str, Callable[[Any], Any]] = {
    "mlp": mlp, "resnet9": resnet9, "resnet18": resnet18, "lstm": lstm, "gru": gru, "gpt2": gpt2,
    "bert": bert,
    "transformer6": transformer6}
LENGTH = 64


def loss_of(functional: Any, model: Any, x: Any, y: Any) -> Any:
    """The cross entropy of classes in the last dimension."""
    result = model(x)
    return functional.cross_entropy(result.reshape(-1, result.shape[-1]), y.reshape(-1))
