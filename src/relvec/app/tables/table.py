"""Tables in memory: named columns of equal length, made from data frames, mappings and arrays."""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relvec.app.tables.text import list_names

__all__ = ["Table", "TableError", "as_table"]

MAX_EXACT_FLOAT = 2**53  # larger whole numbers are not all doubles
MAX_SPELLING_CANDIDATES = 2_000  # names compared with a misspelt one: the comparison is slow
SURROGATE = re.compile("[\ud800-\udfff]")  # a half of a letter, which JSON may hold and no file takes
UNNAMED = re.compile(r"column \d+|[-+.,\d]+( \(\d+\))?")  # a name that was made up, or a number in place of one
BLOCK_CELLS = 500_000  # of a block of rows: some 4 MB as numbers, and less than 100 where all are categories


class TableError(ValueError):
    """A table that cannot be used. The message names the file and, where there is one, the column and the row."""


@dataclass(frozen=True)
class TableLimits:
    """Bounds on what a file may become, so that a small file cannot fill the memory.

    Attributes
    ----------
    max_columns : columns of a table.
    min_cells, cells_per_byte : a file of B bytes, compressed or not, may hold ``min_cells + cells_per_byte * B``
        cells of text. A cell of CSV takes a byte at least; JSON lines may leave out empty cells.
    min_unpacked_bytes, unpacked_per_byte : the same for the bytes that a compressed file becomes.
    """

    max_columns: int = 100_000
    min_cells: int = 1_000_000
    cells_per_byte: int = 4
    min_unpacked_bytes: int = 100_000_000
    unpacked_per_byte: int = 100

    def max_unpacked_bytes(self, n_bytes: int) -> int:
        """The most bytes that a compressed file of this size may become."""
        return self.min_unpacked_bytes + self.unpacked_per_byte * n_bytes

    def check_columns(self, n_columns: int, source: str) -> None:
        """Refuse a table with too many columns."""
        if n_columns > self.max_columns:
            raise TableError(f"{source}: {n_columns:,} columns, and at most {self.max_columns:,} can be read; check "
                             "the delimiter, and whether rows and columns are exchanged")  # fmt: skip

    def check_cells(self, n_rows: int, n_columns: int, n_bytes: int, source: str) -> None:
        """Refuse a table that holds many more cells than its file has bytes."""
        if n_rows * n_columns > self.min_cells + self.cells_per_byte * n_bytes:
            raise TableError(f"{source}: {n_rows:,} rows and {n_columns:,} columns are too many cells for a file of "
                             f"{n_bytes:,} bytes; unpack a compressed file yourself, and give records of JSON "
                             "the same keys")  # fmt: skip

    def check_numbers(self, n_rows: int, n_columns: int, n_bytes: int, source: str) -> None:
        """Refuse a table of numbers that takes more than a compressed file may become, at eight bytes each."""
        if n_rows * n_columns > (most := self.max_unpacked_bytes(n_bytes)) // 8:
            raise TableError(f"{source}: {n_bytes:,} bytes unpack to more than {most:,}: {n_rows:,} rows and "
                             f"{n_columns:,} columns of numbers; convert the file to CSV first")  # fmt: skip

    def check_text(self, length: int, n_bytes: int, source: str) -> None:
        """Refuse cells with more text than a compressed file may become."""
        if length > (most := self.max_unpacked_bytes(n_bytes)):
            raise TableError(f"{source}: {n_bytes:,} bytes unpack to more than {most:,} letters; convert the file to "
                             "CSV first")  # fmt: skip


LIMITS = TableLimits()


class StoredColumn(ABC):
    """A column (n,) of a table that stays in its file; rows are chosen by slices, indices or a mask, and then read."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, rows: Any) -> StoredColumn: ...

    @abstractmethod
    def read(self) -> np.ndarray:
        """The cells of the rows chosen."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    Attributes
    ----------
    columns : dict of arrays (n,)
        Text (object arrays of str, None where a cell is missing), numbers (NaN where missing), booleans or datetimes.
        A `StoredColumn` in place of an array is read when it is asked for by ``table[name]``.
    source : str
        Name of the file, for messages.
    lines : (n,) line of the file on which each row began, or None.
    notes : how the file was read, in words.
    rows : (n,) number of each row in the table that was read, from 1; None for all rows in order.

    Examples
    --------
    >>> import numpy as np
    >>> table = Table({"x": np.array([1.0, 2.0]), "city": np.array(["Ulm", None], dtype=object)})
    >>> len(table), table.names
    (2, ['x', 'city'])
    """

    columns: dict[str, Any]
    source: str = "table"
    lines: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.columns)

    @property
    def is_stored(self) -> bool:
        """Whether columns are in a file and read when they are asked for."""
        return any(isinstance(column, StoredColumn) for column in self.columns.values())

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.columns:
            close = difflib.get_close_matches(name, self.names[:MAX_SPELLING_CANDIDATES], n=1, cutoff=0.6)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {list_names(self.names)}"
            if sum(UNNAMED.fullmatch(other) is not None for other in self.names) > len(self.names) / 2:
                hint += "; the names come from the first line, which does not look like a header: correct the file"
            raise TableError(f"{self.source}: there is no column {name!r}{hint}")
        column = self.columns[name]
        return column.read() if isinstance(column, StoredColumn) else column

    def take(self, rows: Any) -> Table:
        """Some of the rows, by their indices or a mask."""
        lines = None if self.lines is None else self.lines[rows]
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, columns=columns, lines=lines, rows=self.numbers[rows])

    def blocks(self) -> Iterator[Table]:
        """The rows in order, some ten thousand at a time: whatever is summed up so is the same from file and memory."""
        rows = max(BLOCK_CELLS // max(len(self.columns), 1), 1)
        for start in range(0, len(self), rows):
            yield self.take(slice(start, start + rows))

    @property
    def numbers(self) -> np.ndarray:
        """Number of each row (n,) in the table that was read, from 1."""
        return np.arange(1, len(self) + 1) if self.rows is None else self.rows

    def with_column(self, name: str, values: np.ndarray) -> Table:
        """A copy with one column replaced or appended."""
        return replace(self, columns={**self.columns, name: values})

    def without(self, name: str) -> Table:
        """A copy without one column."""
        return replace(self, columns={other: column for other, column in self.columns.items() if other != name})

    def locate(self, row: int, column: str | None = None) -> str:
        """Where a cell is, for messages: file, row (the first row of data is 1), line of the file, column."""
        return f"{self.source}, row {self.row_and_line(row)}" + ("" if column is None else f", column {column!r}")

    def row_and_line(self, row: int) -> str:
        """Number of a row, with its line of the file where there is one."""
        return f"{self.numbers[row]}" + ("" if self.lines is None else f" (line {self.lines[row]})")


def as_table(X: Any) -> Table:
    """Make a table of a `Table`, a pandas or polars data frame, a mapping of columns or an array (n, d).

    >>> as_table({"x": [1.0, 2.0], "city": ["Ulm", None]}).names
    ['x', 'city']
    >>> as_table([[1.0, 2.0], [3.0, 4.0]]).names
    ['x1', 'x2']
    """
    if isinstance(X, Table):
        return X
    if isinstance(X, Mapping):
        columns = {str(name): X[name] for name in X}
    elif hasattr(X, "columns"):  # a data frame
        columns = {str(name): X[name] for name in X.columns}
    else:
        array = np.asarray(X)
        if array.ndim != 2:
            raise TableError(f"expected a table, a data frame or an array (n, d), got an array of shape {array.shape}")
        columns = {f"x{i + 1}": array[:, i] for i in range(array.shape[1])}
    table = Table({name: column_array(values, name) for name, values in columns.items()})
    if len({len(column) for column in table.columns.values()}) > 1:
        raise TableError("the columns differ in length")
    return table


def column_array(values: Any, name: str) -> np.ndarray:
    """Convert a column to one of the kinds of array that a `Table` holds.

    >>> column_array([1, None], "x"), column_array(["a", None], "x")
    (array([ 1., nan]), array(['a', None], dtype=object))
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise TableError(f"column {name!r}: expected one value for each row, got an array of shape {array.shape}")
    if array.dtype.kind in "biufM":
        return array
    if array.dtype.kind == "m" and np.datetime_data(array.dtype)[0] in ("Y", "M"):
        raise TableError(f"column {name!r}: durations in months or years, whose lengths differ; give them in days")
    if array.dtype.kind == "m":  # durations, in seconds; NaT becomes NaN
        return array / np.timedelta64(1, "s")
    cells = [None if _is_missing(value) else value for value in array.tolist()]
    present = [value for value in cells if value is not None]
    if present and all(isinstance(value, bool | np.bool_) for value in present) and len(present) == len(cells):
        return np.array(cells, dtype=bool)
    if present and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        if len(present) == len(cells) and all(isinstance(value, int) and abs(value) < 2**62 for value in present):
            return np.array(cells, dtype=np.int64)
        if not any(isinstance(value, int) and abs(value) > MAX_EXACT_FLOAT for value in present):
            return np.array([np.nan if value is None else value for value in cells], dtype=float)
    return text_array([None if value is None else as_text(value) for value in cells])


def text_array(cells: list[str | None]) -> np.ndarray:
    """An array of text, None where a cell is missing."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA: the last three are not equal to themselves, or cannot be compared."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def as_text(value: Any) -> str:
    r"""A value as text, without blanks around it; bytes are read as UTF-8, and what is no letter becomes U+FFFD.

    >>> as_text(b" a\xff"), as_text("half \ud83d"), as_text(True)
    ('a�', 'half �', 'true')
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    text = str(value).lower() if isinstance(value, bool | np.bool_) else str(value).strip()
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)
