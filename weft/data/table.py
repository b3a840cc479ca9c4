"""Tables in CSV and Parquet files, read by pyarrow (``pip install weft[data]``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.arrays import ArrayDataset
from weft.support.errors import DataError


def read_table(
    path: str | PathLike[str], columns: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """The columns of a ``.csv`` (perhaps ``.csv.gz``) or ``.parquet`` file as arrays, in order.

    Numbers keep their dtype; text gives arrays of objects. Raises ``DataError`` for a file that
    cannot be read, a column that does not exist, and a column with missing values.
    """
    pa = _pyarrow()
    path = Path(path)
    try:
        table = _read(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError("a table cannot be read", where=path, got=error) from None
    names = list(table.column_names) if columns is None else list(columns)
    unknown = [name for name in names if name not in table.column_names]
    if unknown:
        raise DataError("a table lacks a column", where=path, expected=", ".join(unknown),
                        got=", ".join(table.column_names))
    return {name: _column(path, name, table.column(name)) for name in names}


def _read(path: Path) -> Any:
    if ".csv" in path.suffixes:
        from pyarrow import csv

        return csv.read_csv(path)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    raise DataError("a table of an unknown kind", where=path, expected=".csv or .parquet",
                    got=path.suffix)


def _column(path: Path, name: str, column: Any) -> np.ndarray:
    if column.null_count:
        position = column.is_null().to_numpy().argmax()
        raise DataError("a column has missing values", where=f"{path}, column {name}",
                        got=f"{column.null_count} of {len(column)}, the first in row {position}",
                        help="fill them, or read other columns")
    return column.to_numpy()


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise DataError("tables are read by pyarrow, which is not installed",
                        help="pip install weft[data]") from None
    return pa


class TableDataset(ArrayDataset):
    """Rows of a table: the features as one float32 vector, and the target if one is named.

    ``features`` are the names of columns of numbers, all but the target by default.
    """

    def __init__(self, path: str | PathLike[str], features: Sequence[str] | None = None,
                 target: str | None = None,
                 transform: Callable[[Any], Any] | None = None) -> None:
        table = read_table(path)
        self.features = tuple(features or (name for name in table if name != target))
        missing = [n for n in (*self.features, *([target] if target else [])) if n not in table]
        if missing:
            raise DataError("a table lacks a column", where=path, expected=", ".join(missing),
                            got=", ".join(table))
        for name in self.features:
            if table[name].dtype.kind not in "biuf":
                raise DataError("a feature is not a number", where=f"{path}, column {name}",
                                got=table[name].dtype, help="name the columns: features=[..]")
        rows = np.stack([table[name].astype(np.float32) for name in self.features], axis=1)
        targets = () if target is None else (table[target],)
        super().__init__(rows, *targets, transform=transform)
