"""Tables in memory: named columns of equal length, made from data frames, mappings and arrays."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from relvec.app.tables.text import escape_controls, list_names

if TYPE_CHECKING:
    from pandas import DataFrame, Series, StringDtype

__all__ = ["Table", "TableError", "as_table"]

MAX_EXACT_FLOAT = 2**53  # larger whole numbers are not all doubles
MAX_INTEGER = 2**62
MAX_SPELLING_CANDIDATES = 2_000  # names compared with a misspelt one: the comparison is slow
SURROGATE = re.compile("[\ud800-\udfff]")  # a half of a letter, which JSON may hold and no file takes
UNNAMED = re.compile(r"column \d+|[-+.,\d]+( \(\d+\))?")  # a name that was made up, or a number in place of one
NESTED = (list, tuple, dict, set, np.ndarray)  # what a cell of a column of no use may hold


TableLike = Any  # what `as_table` takes: a `Table`, a data frame of any library, a mapping of columns, an array (n, d)


class TableError(ValueError):
    """A table that cannot be used. The message names the file and, where there is one, the column and the row.

    Examples
    --------
    >>> from relvec.app.tables.table import as_table
    >>> try:
    ...     as_table({"x": [1.0, 2.0]})["y"]
    ... except TableError as error:
    ...     print(type(error).__mro__[1].__name__)
    ValueError
    """


def import_optional(name: str, purpose: str) -> ModuleType:
    """Import a package of the extra ``tables``, or raise an ImportError that says what to install."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise ImportError(f"{purpose} needs {package}, which is not installed: pip install 'relvec[tables]'") from error


def import_pandas() -> ModuleType:
    """Import pandas, or raise an ImportError that says how to install it."""
    return import_optional("pandas", "working with tables")


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    Attributes
    ----------
    frame : pandas.DataFrame
        Columns of text, numbers, booleans or dates, NaN where a cell is missing; rows are labelled by their numbers in
        the table that was read, from 1.
    source : str
        Name of the file, for messages.
    notes : how the file was read, in words.

    Examples
    --------
    >>> table = as_table({"x": [1.0, 2.0], "city": ["Ulm", None]})
    >>> len(table), table.names
    (2, ['x', 'city'])
    """

    frame: DataFrame
    source: str = "table"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return self.frame.columns.tolist()

    @property
    def numbers(self) -> np.ndarray:
        """Number of each row (n,) in the table that was read, from 1."""
        return self.frame.index.to_numpy()

    def __getitem__(self, name: str) -> Series:
        if name in self.frame.columns:
            return self.frame[name]
        close = difflib.get_close_matches(name, self.names[:MAX_SPELLING_CANDIDATES], n=1, cutoff=0.6)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {list_names(self.names)}"
        if sum(UNNAMED.fullmatch(other) is not None for other in self.names) > len(self.names) / 2:
            hint += "; the names come from the first line, which does not look like a header: correct the file"
        hint += "".join(f"; {note}" for note in self.notes)  # such as which sheet was read
        raise TableError(f"{self.source}: there is no column {name!r}{hint}")

    def take(self, rows: ArrayLike) -> Table:
        """Return some of the rows, by their indices or a mask."""
        return replace(self, frame=self.frame.iloc[rows])

    def with_column(self, name: str, values: Series | ArrayLike) -> Table:
        """Return a copy with one column replaced or appended."""
        column = as_column(values, name).set_axis(self.frame.index)
        return replace(self, frame=self.frame.assign(**{name: column}))

    def without(self, name: str) -> Table:
        """Return a copy without one column."""
        return replace(self, frame=self.frame.drop(columns=name))

    def locate(self, row: int, column: str) -> str:
        """Say where a cell is, for messages: file, row (the first row of data is 1) and column."""
        return f"{self.source}, row {self.numbers[row]}, column {column!r}"


def as_table(X: TableLike) -> Table:
    """Make a table of a `Table`, a pandas or polars data frame, a mapping of columns or an array (n, d).

    >>> as_table({"x": [1.0, 2.0], "city": ["Ulm", None]}).names
    ['x', 'city']
    >>> as_table([[1.0, 2.0], [3.0, 4.0]]).names
    ['x1', 'x2']
    """
    if isinstance(X, Table):
        return X
    names = X.keys() if isinstance(X, Mapping) else getattr(X, "columns", None)
    if names is not None:
        return make_table({str(name): X[name] for name in names})
    array = np.asarray(X)
    if array.ndim != 2:
        raise TableError(f"expected a table, a data frame or an array (n, d), got an array of shape {array.shape}")
    return make_table({f"x{i + 1}": array[:, i] for i in range(array.shape[1])})


def make_table(columns: Mapping[str, Series | ArrayLike], source: str = "table", notes: tuple[str, ...] = ()) -> Table:
    """Make a table of columns in any form."""
    pd = import_pandas()
    made = {name: as_column(values, name) for name, values in columns.items()}
    if len({len(column) for column in made.values()}) > 1:
        raise TableError(f"{source}: the columns differ in length")
    frame = pd.DataFrame(made, copy=False)
    return Table(frame.set_axis(pd.RangeIndex(1, len(frame) + 1)), source, notes)


def text_type() -> StringDtype:
    """Return the type of columns of text, NaN where a cell is missing: compact, where pyarrow is installed."""
    return import_pandas().StringDtype(na_value=np.nan)


def as_column(values: Series | ArrayLike, name: str) -> Series:
    """Make a series of numbers, booleans, dates or text; cells that are lists or objects stay as they are.

    >>> as_column([1, None], "x").tolist(), as_column(["a", None], "x").tolist()
    ([1.0, nan], ['a', nan])
    """
    pd = import_pandas()
    if not isinstance(values, pd.Series):
        if isinstance(values, list | tuple):  # of objects, so that nothing is rounded or turned into text
            return _from_objects(pd.Series(values, dtype=object))
        array = np.asarray(values)
        if array.ndim != 1:
            raise TableError(f"column {name!r}: expected one value for each row, got an array of shape {array.shape}")
        if array.dtype.kind == "m" and np.datetime_data(array.dtype)[0] in ("Y", "M"):
            raise TableError(f"column {name!r}: durations in months or years, whose lengths differ; give them in days")
        if array.dtype.kind == "M":
            array = array.astype("datetime64[us]")
        values = pd.Series(array.astype(object) if array.dtype.kind in "SUcV" else array)
    column = values.reset_index(drop=True)
    kind = column.dtype.kind if isinstance(column.dtype, np.dtype) else "O"
    if kind in "biu":
        return column
    if kind == "f":
        return column.astype(float)
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return column.dt.tz_convert("UTC").dt.tz_localize(None)
    if kind == "m":
        return column.dt.total_seconds()
    return column if kind == "M" or column.dtype == text_type() else _from_objects(column.astype(object))


def _from_objects(column: Series) -> Series:
    """Make a column of Python objects one of booleans, numbers or text, if it holds no lists or objects."""
    pd = import_pandas()
    if any(isinstance(value, NESTED) for value in column):
        return column
    column = column.where(column.notna(), None)
    known = column[column.notna()]
    kinds = {_kind_of(value) for value in known}
    if kinds == {"b"} and len(known) == len(column):
        return column.astype(bool)
    if kinds in ({"i"}, {"f"}, {"i", "f"}):
        largest = max((abs(int(value)) for value in known if _kind_of(value) == "i"), default=0)
        if kinds == {"i"} and len(known) == len(column) and largest < MAX_INTEGER:
            return column.astype(np.int64)
        if largest <= MAX_EXACT_FLOAT:
            return column.astype(float)
    return pd.Series([None if value is None else as_text(value) for value in column], dtype=text_type())


def _kind_of(value: object) -> str:
    """Return a letter, as NumPy has it, for a boolean, a whole number, another number, or any other object."""
    for kind, types in (("b", bool | np.bool_), ("i", int | np.integer), ("f", float | np.floating)):
        if isinstance(value, types):
            return kind
    return "O"


def unique_names(header: Iterable[object], source: str) -> tuple[list[str], tuple[str, ...]]:
    r"""Give every column a printable name of its own, with a note for each name that had to be changed.

    >>> unique_names(["x", "", "x"], "t.csv")[0]
    ['x', 'column 2', 'x (2)']
    """
    names: dict[str, None] = {}  # an ordered set
    counts: dict[str, int] = {}
    notes = []
    for i, cell in enumerate(header):
        given = " ".join(str(cell).split())
        base = name = escape_controls(given) or f"column {i + 1}"
        while name in names:
            counts[base] = counts.get(base, 1) + 1
            name = f"{base} ({counts[base]})"
        if name != given:
            notes.append(f"column {i + 1} is called {given!r} in the header; here it is {name!r}")
        names[name] = None
    return list(names), tuple(notes)


def as_text(value: object) -> str:
    r"""Write a value as text, without blanks around it; bytes are UTF-8, and what is no letter becomes U+FFFD.

    >>> as_text(b" a\xff"), as_text("half \ud83d"), as_text(True)
    ('a�', 'half �', 'true')
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    text = str(value).lower() if isinstance(value, bool | np.bool_) else str(value).strip()
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)
