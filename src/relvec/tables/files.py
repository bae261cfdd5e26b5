"""Tables from files and standard input: CSV, TSV, JSON lines, ``.npz``, Parquet and Feather, also compressed.

Text formats and ``.npz`` need nothing but numpy; Parquet, Feather and zstd need pyarrow (``pip install
'relvec[data]'``), imported when such a file is met. What is read stays as it was written: the columns of a text file
hold text, and `relvec.tables.columns` decides what they are.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import importlib
import io
import json
import math
import sys
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Table", "TableError", "as_table", "read_table", "write_table"]

FORMATS = ("csv", "tsv", "jsonl", "npz", "parquet", "feather")
SUFFIXES = {
    ".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".npz": "npz", ".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather",
}  # fmt: skip
DELIMITERS = (",", ";", "\t", "|")
_UNPACKED, _RATIO = 100_000_000, 100  # bytes that any compressed file may become, and those for each of its own
NEEDS_PYARROW = "{what} needs pyarrow, which is not installed: pip install 'relvec[data]'"


class TableError(ValueError):
    """A table that cannot be used; the message names the file and, where there is one, the column and the row."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    Attributes
    ----------
    columns : dict of arrays (n,)
        Text (object arrays of str, None where a cell is missing), numbers (NaN where missing), booleans or datetimes.
    source : str
        The file, for messages.
    lines : (n,) the line of the file each row began on, or None.
    notes : what was done to read the file, in words.
    rows : (n,) number of each row in the table that was read, from 1; None for all in order.

    Examples
    --------
    >>> import numpy as np
    >>> table = Table({"x": np.array([1.0, 2.0]), "city": np.array(["Ulm", None], dtype=object)})
    >>> len(table), table.names
    (2, ['x', 'city'])
    """

    columns: dict[str, np.ndarray]
    source: str = "table"
    lines: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def names(self) -> list[str]:
        """The columns' names, in order."""
        return list(self.columns)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.columns:
            close = difflib.get_close_matches(name, self.names, n=1, cutoff=0.6)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {_listed(self.names)}"
            raise TableError(f"{self.source}: there is no column {name!r}{hint}")
        return self.columns[name]

    def take(self, rows: Any) -> Table:
        """The same columns at some rows (indices or a mask)."""
        lines = None if self.lines is None else self.lines[rows]
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, columns=columns, lines=lines, rows=self.numbers[rows])

    @property
    def numbers(self) -> np.ndarray:
        """Number of each row (n,) in the table that was read, from 1."""
        return np.arange(1, len(self) + 1) if self.rows is None else self.rows

    def with_column(self, name: str, values: np.ndarray) -> Table:
        """The table with one column replaced or appended."""
        return replace(self, columns={**self.columns, name: values})

    def without(self, name: str) -> Table:
        """The table less one column."""
        return replace(self, columns={other: column for other, column in self.columns.items() if other != name})

    def place(self, row: int, column: str | None = None) -> str:
        """Where a cell is, for messages: file, line, row (the first row of data is 1), column."""
        line = "" if self.lines is None else f" (line {self.lines[row]})"
        return f"{self.source}, row {self.numbers[row]}{line}" + ("" if column is None else f", column {column!r}")


def read_table(path: str | Path, format: str | None = None) -> Table:
    r"""Read a table.

    Parameters
    ----------
    path : str or Path
        A file, or ``"-"`` for standard input. gzip and zstd are recognised by their content.
    format : {"csv", "tsv", "jsonl", "npz", "parquet", "feather"}, optional
        By default the file's ending decides, and the content where the ending says nothing.

    Returns
    -------
    table : Table

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = file.write_text("day,sold\n2024-01-01,3\n2024-01-02,\n")
    >>> table = read_table(file)
    >>> table["sold"].tolist()
    ['3', None]
    """
    name = "standard input" if str(path) == "-" else str(path)
    if format is not None and format not in FORMATS:
        raise TableError(f"unknown format {format!r}: one of {', '.join(FORMATS)}")
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    except OSError as error:
        raise TableError(f"{name}: {error.strerror or error}") from error
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in (".gz", ".zst", ".zstd")]
    data = _decompressed(data, name)
    chosen = format or SUFFIXES.get(suffixes[-1] if suffixes else "") or _sniffed(data)
    if not data.strip():
        raise TableError(f"{name}: the file is empty; expected a table with a header and rows")
    table = READERS[chosen](data, name)
    if not table.columns or len(table) == 0:
        raise TableError(
            f"{name}: the table has a header and no rows" if table.columns else f"{name}: no columns found"
        )
    return table


def write_table(table: Table, path: str | Path, format: str | None = None) -> None:
    """Write a table; the ending of the file, or `format`, decides how. ``"-"`` is standard output.

    Examples
    --------
    >>> import numpy as np
    >>> write_table(Table({"id": np.array(["a", "b"], dtype=object), "mean": np.array([0.5, np.nan])}), "-")
    id,mean
    a,0.5
    b,
    """
    chosen = format or SUFFIXES.get(next((s for s in reversed(Path(path).suffixes) if s != ".gz"), ""), "csv")
    if chosen in ("parquet", "feather"):
        data = _written_arrow(table, chosen)
    elif chosen == "npz":
        data = _written_npz(table)
    else:
        data = _written_text(table, chosen)
    if str(path) == "-":
        if chosen in ("csv", "tsv", "jsonl"):
            sys.stdout.write(data.decode())
        else:
            sys.stdout.buffer.write(data)
        return
    path = Path(path)
    data = gzip.compress(data) if path.suffix == ".gz" else data
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(data)
        part.replace(path)  # a reader never sees half a table
    except OSError as error:
        part.unlink(missing_ok=True)
        raise TableError(f"{path}: {error.strerror or error}") from error


def as_table(X: Any) -> Table:
    """A table from a `Table`, a pandas or polars data frame, a mapping of columns or an array (n, d).

    Examples
    --------
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
    table = Table({name: _column(values, name) for name, values in columns.items()})
    if len({len(column) for column in table.columns.values()}) > 1:
        raise TableError("the columns differ in length")
    return table


# Bytes -----------------------------------------------------------------------------------------------------------


def _decompressed(data: bytes, name: str) -> bytes:
    kind = "gzip" if data[:2] == b"\x1f\x8b" else "zstd" if data[:4] == b"\x28\xb5\x2f\xfd" else ""
    if not kind:
        return data
    most, found = _most_unpacked(data), bytearray()
    try:
        stream = _opened(data, kind)
        while len(found) <= most and (more := stream.read(1 << 20)):
            found += more
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{name}: the {kind} data are damaged ({error})") from error
    if len(found) > most:
        raise TableError(f"{name}: {len(data)} bytes of {kind} unpack to more than {most}: unpack the file yourself")
    return bytes(found)


def _opened(data: bytes, kind: str) -> Any:
    """A stream of what is compressed."""
    if kind == "gzip":
        return gzip.GzipFile(fileobj=io.BytesIO(data))
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd").ZstdFile(io.BytesIO(data))
    arrow = _pyarrow("a file compressed with zstd")
    return arrow.CompressedInputStream(arrow.BufferReader(data), "zstd")


def _most_unpacked(data: bytes) -> int:
    """Bytes that a compressed file may become."""
    return _UNPACKED + _RATIO * len(data)


def _sniffed(data: bytes) -> str:
    for magic, format in ((b"PK", "npz"), (b"PAR1", "parquet"), (b"ARROW1", "feather"), (b"FEA1", "feather")):
        if data.startswith(magic):
            return format
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    return "jsonl" if start[:1] in (b"{", b"[") else "csv"


def _text(data: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    """The text of a file and what was assumed of its encoding."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
    try:
        return data.decode(encoding), ("read as UTF-16",) if encoding == "utf-16" else ()
    except UnicodeDecodeError as error:
        if encoding == "utf-16":
            raise TableError(f"{name}: not valid UTF-16 at byte {error.start}") from error
        line = data[: error.start].count(b"\n") + 1
        return data.decode("latin-1"), (f"line {line} is not UTF-8: the file was read as Latin-1",)


# Text ------------------------------------------------------------------------------------------------------------


def _read_csv(data: bytes, name: str) -> Table:
    text, notes = _text(data, name)
    return _delimited(text, _delimiter(text), name, notes)


def _read_tsv(data: bytes, name: str) -> Table:
    text, notes = _text(data, name)
    return _delimited(text, "\t", name, notes)


def _delimiter(text: str) -> str:
    """The candidate that splits the header into most cells, outside quotes; the comma among equals."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    return max(DELIMITERS, key=lambda d: len(next(csv.reader([header], delimiter=d), [])))


def _delimited(text: str, delimiter: str, name: str, notes: tuple[str, ...]) -> Table:
    if "\0" in text:
        raise TableError(f"{name}: holds NUL bytes, so it is no text table; give its kind with --format")
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    cells: list[list[str]] = []
    lines, header, line = [], None, 1
    try:
        for record in reader:
            begun, line = line, reader.line_num + 1
            if not any(cell.strip() for cell in record):
                continue
            if header is None:
                header, more = _header(record)
                notes += more
                continue
            if len(record) > len(header) and not any(cell.strip() for cell in record[len(header) :]):
                record = record[: len(header)]  # trailing delimiters
            if len(record) != len(header):
                raise TableError(
                    f"{name}, row {len(cells) + 1} (line {begun}): {len(record)} cells where the header has "
                    f"{len(header)}; check the quotes and the delimiter {delimiter!r} there"
                )
            cells.append(record)
            lines.append(begun)
    except csv.Error as error:
        raise TableError(f"{name}, line {reader.line_num}: {error}") from error
    if delimiter == ";":
        notes += ("cells are separated by semicolons, so 3,14 is read as a decimal number",)
    columns = {
        column: np.array([_decimal(record[i].strip(), delimiter) or None for record in cells] + [None], object)[:-1]
        for i, column in enumerate(header or [])
    }
    return Table(columns, name, np.array(lines, dtype=np.intp), notes)


def _decimal(cell: str, delimiter: str) -> str:
    """A decimal comma becomes a point in files whose cells are not separated by commas but by semicolons."""
    if delimiter != ";" or cell.count(",") != 1:
        return cell
    point = cell.replace(".", "").replace(",", ".")
    return point if _is_number(point) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _header(record: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Names that are not empty and all different, and a note for each that was changed."""
    names: list[str] = []
    notes = []
    for i, cell in enumerate(record):
        name = given = " ".join(cell.split())
        if not name:
            name = f"column {i + 1}"
        count = 2
        while name in names:
            name, count = f"{given or f'column {i + 1}'} ({count})", count + 1
        if name != given:
            notes.append(f"column {i + 1} is called {given!r} in the header; here it is {name!r}")
        names.append(name)
    return names, tuple(notes)


def _read_jsonl(data: bytes, name: str) -> Table:
    text, notes = _text(data, name)
    if text.lstrip().startswith("["):
        records = _parsed(text, name)
        lines = None
    else:
        numbered = [(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
        records = [_parsed(line, f"{name}, line {i}") for i, line in numbered]
        lines = np.array([i for i, _ in numbered], dtype=np.intp)
    values: dict[str, list[Any]] = {}
    for row, record in enumerate(records):
        where = f"{name}, row {row + 1}" + ("" if lines is None else f" (line {lines[row]})")
        if not isinstance(record, dict):
            raise TableError(f'{where}: expected an object such as {{"x": 1}}, got {type(record).__name__}')
        for key, value in record.items():
            if isinstance(value, list | dict):
                raise TableError(f"{where}, column {key!r}: expected one value, got a {type(value).__name__}")
            values.setdefault(key, [None] * row).append(value)
        for column in values.values():
            column.extend([None] * (row + 1 - len(column)))
    header, more = _header(list(values))
    columns = {column: _column(found, column) for column, found in zip(header, values.values(), strict=True)}
    return Table(columns, name, lines, notes + more)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{where}: not valid JSON: {error}") from error


def _written_text(table: Table, format: str) -> bytes:
    out = io.StringIO()
    rows = zip(*[_cells(column) for column in table.columns.values()], strict=True)
    if format == "jsonl":
        for row in rows:
            out.write(json.dumps(dict(zip(table.names, row, strict=True)), ensure_ascii=False) + "\n")
    else:
        writer = csv.writer(out, delimiter="\t" if format == "tsv" else ",", lineterminator="\n")
        writer.writerow(table.names)
        writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return out.getvalue().encode()


def _cells(column: np.ndarray) -> list[Any]:
    """The cells as Python values, None where missing."""
    if column.dtype.kind == "M":
        return [None if np.isnat(value) else str(value) for value in column]
    return [None if isinstance(value, float) and math.isnan(value) else value for value in column.tolist()]


# Arrays ----------------------------------------------------------------------------------------------------------


def _column(values: Any, name: str) -> np.ndarray:
    """A column as one of the kinds that `Table` holds."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise TableError(f"column {name!r}: expected one value for each row, got an array of shape {array.shape}")
    if array.dtype.kind in "biufM":
        return array
    if array.dtype.kind == "m":  # durations, in seconds; NaT becomes NaN
        return array / np.timedelta64(1, "s")
    cells = [None if _is_missing(value) else value for value in array.tolist()]
    present = [value for value in cells if value is not None]
    if present and all(isinstance(value, bool | np.bool_) for value in present) and len(present) == len(cells):
        return np.array(cells, dtype=bool)
    if present and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        if len(present) == len(cells) and all(isinstance(value, int) and abs(value) < 2**62 for value in present):
            return np.array(cells, dtype=np.int64)
        if not any(isinstance(value, int) and abs(value) > 2**53 for value in present):
            return np.array([np.nan if value is None else value for value in cells], dtype=float)
    text = [None if value is None else _as_text(value) for value in cells]
    return np.array([*text, None], dtype=object)[:-1]


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA: the last three are not equal to themselves, or do not say."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value).strip()


def _read_npz(data: bytes, name: str) -> Table:
    try:
        arrays = _npz_arrays(data)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise TableError(f"{name}: not a readable .npz file: {error}") from error
    labels = arrays.pop("feature_names", None)
    columns: dict[str, np.ndarray] = {}
    for key, array in arrays.items():
        if array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1):
            columns[key] = _column(array.ravel(), key)
        elif array.ndim == 2:
            given = labels is not None and len(labels) == array.shape[1]
            parts = [str(label) for label in labels] if given else [f"{key}{i + 1}" for i in range(array.shape[1])]  # type: ignore[union-attr]
            columns.update({part: _column(array[:, i], part) for i, part in enumerate(parts)})
        else:
            raise TableError(f"{name}: the array {key!r} has shape {array.shape}; expected (n,) or (n, d)")
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise TableError(f"{name}: the arrays differ in length: {lengths}")
    return Table(columns, name)


def _npz_arrays(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of an .npz file. A header that promises more than its member holds is refused before allocating."""
    arrays: dict[str, np.ndarray] = {}
    left = _most_unpacked(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                if version not in header:
                    raise ValueError(f"{member.filename} has the unknown version {version}")
                shape, fortran, dtype = header[version](file)
                if dtype.hasobject or dtype.names is not None:
                    raise ValueError(f"{member.filename} holds {dtype}; expected numbers, booleans, dates or text")
                size = math.prod(shape) * dtype.itemsize
                if size > member.file_size:
                    raise ValueError(f"{member.filename} promises {size} bytes and holds {member.file_size}")
                left -= size
                if left < 0:
                    raise ValueError(f"its arrays unpack to more than {_most_unpacked(data)} bytes")
                flat = np.frombuffer(file.read(size), dtype=dtype)
                arrays[member.filename[:-4]] = flat.reshape(shape, order="F" if fortran else "C")
    return arrays


def _written_npz(table: Table) -> bytes:
    out = io.BytesIO()
    arrays: dict[str, Any] = {
        name: np.array(["" if cell is None else cell for cell in column.tolist()]) if column.dtype == object else column
        for name, column in table.columns.items()
    }
    np.savez(out, **arrays)
    return out.getvalue()


# Parquet and Feather ---------------------------------------------------------------------------------------------


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow
        import pyarrow.feather
        import pyarrow.parquet
    except ImportError as error:
        raise TableError(NEEDS_PYARROW.format(what=what)) from error
    return pyarrow


def _read_parquet(data: bytes, name: str) -> Table:
    return _read_arrow(data, name, "parquet")


def _read_feather(data: bytes, name: str) -> Table:
    return _read_arrow(data, name, "feather")


def _read_arrow(data: bytes, name: str, format: str) -> Table:
    arrow = _pyarrow(f"reading {format.capitalize()}")
    try:
        found = getattr(arrow, format).read_table(arrow.BufferReader(data))
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise TableError(f"{name}: not a readable {format.capitalize()} file: {error}") from error
    header, notes = _header(found.column_names)
    return Table({column: _from_arrow(arrow, found.column(i), name, column) for i, column in enumerate(header)}, name,
                 None, notes)  # fmt: skip


def _from_arrow(arrow: Any, column: Any, source: str, name: str) -> np.ndarray:
    kind, types = column.type, arrow.types
    if types.is_nested(kind) and not types.is_dictionary(kind):
        raise TableError(f"{source}, column {name!r}: expected one value for each row, got {kind}")
    if types.is_decimal(kind):
        column = column.cast(arrow.float64())
    if types.is_timestamp(kind) or types.is_date(kind):
        return column.cast(arrow.timestamp("us", tz=getattr(kind, "tz", None))).to_numpy().astype("datetime64[us]")
    if types.is_floating(kind):
        return column.to_numpy().astype(float)
    return _column(np.array([*column.to_pylist(), None], dtype=object)[:-1], name)


def _written_arrow(table: Table, format: str) -> bytes:
    arrow = _pyarrow(f"writing {format.capitalize()}")
    made = arrow.table({name: arrow.array(column, from_pandas=True) for name, column in table.columns.items()})
    out = io.BytesIO()
    if format == "parquet":
        arrow.parquet.write_table(made, out)
    else:
        arrow.feather.write_feather(made, out)
    return out.getvalue()


def _listed(names: Iterable[str], most: int = 12) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


READERS = {
    "csv": _read_csv, "tsv": _read_tsv, "jsonl": _read_jsonl, "npz": _read_npz, "parquet": _read_parquet,
    "feather": _read_feather,
}  # fmt: skip
