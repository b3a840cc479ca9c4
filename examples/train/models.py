"""The models of the examples, written once for any library with torch's names.

Each function takes the library's ``nn``: ``weft.nn``, or ``torch.nn`` to compare with.
"""

from __future__ import annotations

from typing import Any


def residual(nn: Any, inner: Any) -> Any:
    """X + inner(x)"""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fn = inner

        def forward(self, x: Any) -> Any:
            return x + self.fn(x)

    return Residual()


def softmax_regression(nn: Any, inputs: int, classes: int) -> Any:
    """Logits that are linear in the pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))


def mlp_resnet(nn: Any, inputs: int, classes: int, width: int = 100, blocks: int = 3,
               dropout: float = 0.1) -> Any:
    """Residual blocks of two layers (Needle's second homework)."""
    def block() -> Any:
        inner = nn.Sequential(
            nn.Linear(width, width // 2), nn.LayerNorm(width // 2), nn.ReLU(),
            nn.Dropout(dropout), nn.Linear(width // 2, width), nn.LayerNorm(width))
        return nn.Sequential(residual(nn, inner), nn.ReLU())

    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(),
                         *(block() for _ in range(blocks)), nn.Linear(width, classes))


def resnet9(nn: Any, channels: int, classes: int, width: int = 16) -> Any:
    """Convolutions with two residual connections (Needle's fourth homework)."""
    def conv(into: int, out: int, kernel: int, stride: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(into, out, kernel, stride=stride, padding=kernel // 2),
            nn.BatchNorm2d(out), nn.ReLU())

    def pair(size: int) -> Any:
        return residual(nn, nn.Sequential(conv(size, size, 3, 1), conv(size, size, 3, 1)))

    return nn.Sequential(
        conv(channels, width, 7, 4), conv(width, 2 * width, 3, 2), pair(2 * width),
        conv(2 * width, 4 * width, 3, 2), conv(4 * width, 8 * width, 3, 2), pair(8 * width),
        nn.Flatten(), nn.Linear(8 * width, 8 * width), nn.ReLU(), nn.Linear(8 * width, classes))


def recurrent_model(nn: Any, kind: str, symbols: int, size: int = 32, hidden: int = 64) -> Any:
    """A language model of an RNN or LSTM: (length, N) of symbols to (length * N, symbols)."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(symbols, size)
            self.rnn = getattr(nn, kind)(size, hidden)
            self.head = nn.Linear(hidden, symbols)

        def forward(self, x: Any) -> Any:
            states, _ = self.rnn(self.embedding(x))
            return self.head(states.reshape((-1, hidden)))

    return Recurrent()


def transformer_model(nn: Any, symbols: int, mask: Any, positions: Any, size: int = 32,
                      heads: int = 4, layers: int = 2, hidden: int = 64) -> Any:
    """A language model of transformer layers; ``mask`` (length, length) hides later words.

    ``positions`` are the numbers from 0 to length - 1.
    """

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(symbols, size)
            self.position = nn.Embedding(len(positions), size)
            layer = nn.TransformerEncoderLayer(size, heads, hidden, 0.0, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(size)
            self.head = nn.Linear(size, symbols)

        def forward(self, x: Any) -> Any:
            place = self.position(positions).unsqueeze(1)
            states = self.layers(self.embedding(x) + place, mask=mask)
            return self.head(self.norm(states).reshape((-1, size)))

    return Transformer()
