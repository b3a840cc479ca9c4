"""Text of words, such as the Penn Treebank: a dictionary, a corpus, batches for language models.

Files hold a sentence per line with words separated by spaces, as Mikolov prepared the treebank
(https://www.fit.vut.cz/person/imikolov/public/rnnlm/): ``train.txt``, ``valid.txt``, ``test.txt``,
or the same names with ``ptb.`` before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike

import numpy as np

from weft.data.files import find_file, read_bytes
from weft.support.errors import DataError

END = "<eos>"


class Dictionary:
    """Numbers of words: ``word2idx`` and ``idx2word``, in the order in which words were added."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self.word2idx: dict[str, int] = {}
        self.idx2word: list[str] = []
        for word in words:
            self.add_word(word)

    def add_word(self, word: str) -> int:
        """The number of a word, which is added if it is new."""
        number = self.word2idx.setdefault(word, len(self.idx2word))
        if number == len(self.idx2word):
            self.idx2word.append(word)
        return number

    def __len__(self) -> int:
        return len(self.idx2word)


class Corpus:
    """The numbers of the words of a text: ``train``, ``valid`` and ``test``, int32 arrays.

    Each line ends with the word ``<eos>``. The dictionary holds the words of all three files.
    ``max_lines`` bounds the lines read from each.
    """

    def __init__(self, base_dir: str | PathLike[str], max_lines: int | None = None) -> None:
        self.dictionary = Dictionary()
        self.train, self.valid, self.test = (
            self.tokenize(find_file(base_dir, f"{part}.txt", f"ptb.{part}.txt"), max_lines)
            for part in ("train", "valid", "test"))

    def tokenize(self, path: str | PathLike[str], max_lines: int | None = None) -> np.ndarray:
        """The numbers of the words of a file. ``DataError`` if it is not text in UTF-8."""
        data = read_bytes(path)
        try:
            lines = data.decode("utf-8").splitlines()[:max_lines]
        except UnicodeDecodeError as error:
            raise DataError("a file of text is not UTF-8", where=f"{path}, offset {error.start}",
                            got=data[error.start : error.end].hex(" ")) from None
        add = self.dictionary.add_word
        return np.fromiter((add(word) for line in lines for word in (*line.split(), END)),
                           np.int32)


def batchify(data: np.ndarray, batch_size: int) -> np.ndarray:
    """The text in ``batch_size`` columns: ``(len(data) // batch_size, batch_size)``.

    Column j holds part j of the text from top to bottom; the words that are left over are dropped.
    """
    rows = len(data) // batch_size
    if rows == 0:
        raise DataError("the text is shorter than a batch", expected=f"{batch_size} words",
                        got=len(data))
    return np.ascontiguousarray(data[: rows * batch_size].reshape(batch_size, rows).T)


def get_batch(batches: np.ndarray, i: int, bptt: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows ``i`` to ``i + bptt`` of ``batchify``'s result, and the words that follow each.

    The first result is ``(steps, batch)``, the second ``(steps * batch)``, where ``steps`` is
    ``bptt``, or what is left before the last row.
    """
    steps = min(bptt, len(batches) - 1 - i)
    if steps <= 0 or i < 0:
        raise DataError("get_batch: no rows at this position", got=i,
                        expected=f"0 to {len(batches) - 2}")
    return batches[i : i + steps], batches[i + 1 : i + 1 + steps].reshape(-1)
