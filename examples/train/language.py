"""Language models on the documentation that Python ships (``pydoc_data``).

Characters by an RNN or LSTM, words by a transformer:

    python -m examples.train.language --model lstm --steps 300
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import weft
from examples.train import models
from examples.train.training import arguments, compiled_step, fit, show_curve
from weft import data, nn, optim

MODELS = ("rnn", "lstm", "transformer")
TOPICS = ("assignment", "class", "compound", "exceptions", "function", "if", "import", "numbers",
          "operator-summary", "strings", "try", "while", "with", "yield")


def read_text() -> str:
    """The chapters on the language that ``help()`` shows."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in TOPICS if name in topics)


def characters(text: str) -> tuple[np.ndarray, int]:
    """Numbers of the characters, and how many there are."""
    known = {c: i for i, c in enumerate(sorted(set(text)))}
    return np.array([known[c] for c in text], np.int64), len(known)


def words(text: str, size: int = 500) -> tuple[np.ndarray, int]:
    """Numbers of the words, of which the most frequent have one of their own."""
    found = re.findall(r"\w+|[^\w\s]", text.lower())
    frequent = [w for w, _ in collections.Counter(found).most_common(size - 1)]
    dictionary = data.Dictionary(["<unk>", *frequent])
    return np.array([dictionary.word2idx.get(w, 0) for w in found], np.int64), len(dictionary)


def batches_of(numbers: np.ndarray, batch: int, length: int) -> Iterator[tuple[Any, Any]]:
    """Pieces of ``length`` symbols and the symbols that follow, over and over."""
    columns = data.batchify(numbers, batch)
    while True:
        for start in range(0, len(columns) - length - 1, length):
            yield data.get_batch(columns, start, length)


def build(library: Any, make: Any, name: str, symbols: int, length: int) -> Any:
    """A model of ``library``; ``make`` turns an array into its tensor."""
    if name != "transformer":
        return models.recurrent_model(library, name.upper(), symbols)
    hidden = np.triu(np.full((length, length), -np.inf, np.float32), 1)
    return models.transformer_model(library, symbols, make(hidden), make(np.arange(length)))


def main(argv: list[str] | None = None) -> list[float]:
    """Train, and print the perplexity over the last steps."""
    parser = arguments(__doc__, MODELS, epochs=1)
    parser.add_argument("--length", type=int, default=16)
    options = parser.parse_args(argv)
    text = read_text()
    numbers, symbols = words(text) if options.model == "transformer" else characters(text)
    weft.manual_seed(options.seed)
    model = build(nn, weft.tensor, options.model, symbols, options.length)
    per_epoch = (len(numbers) // options.batch_size - 1) // options.length
    total = options.steps or options.epochs * per_epoch
    optimizer = optim.Adam(model.parameters(), lr=3 * options.lr)
    step = compiled_step(model, optimizer, nn.CrossEntropyLoss())
    batches = batches_of(numbers, options.batch_size, options.length)
    losses = fit(step, batches, total, options.model)
    show_curve(losses, options.curve, f"{options.model} on Python's documentation")
    last = losses[-20:]
    print(f"{symbols} symbols, perplexity {math.exp(sum(last) / len(last)):.2f}")
    return losses


if __name__ == "__main__":
    main()
