"""Binary formats: ``.npz``; Parquet and Feather through pyarrow and Excel through openpyxl, imported when needed."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from relvec.tables.delimited import python_cells, unique_names
from relvec.tables.table import LIMITS, StoredColumn, Table, TableError, column_array, text_array

ARROW = ("pyarrow", "pyarrow.feather", "pyarrow.parquet")
UNREADABLE = (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error, RuntimeError)
MAX_EXCEL_ROWS = 1_048_576  # of a sheet; a file with a larger row number would be read without limit
MAX_BATCH_ROWS = 10_000  # of a Parquet file read at a time, so that its size is known before there is much of it
MAX_HELD_CELLS = 5_000_000  # of a Parquet file, 40 MB as numbers: columns of a longer one are read when they are needed


def import_modules(what: str, *names: str) -> Any:
    """The first of the modules, with the others loaded, or a `TableError` that says what needs them."""
    try:
        first, *_ = [import_module(name) for name in names]
        return first
    except ImportError as error:
        raise TableError(f"{what} needs {names[0]}, which is not installed: pip install 'relvec[data]'") from error


def read_npz(data: bytes, source: str) -> Table:
    """Read numpy's ``.npz``: one array a column, or arrays (n, d) whose columns are named by ``feature_names``."""
    try:
        arrays = dict(_npz_members(data))
    except UNREADABLE as error:
        raise TableError(f"{source}: not a readable .npz file: {error}") from error
    labels = arrays.pop("feature_names", None)
    columns: dict[str, np.ndarray] = {}
    for key, array in arrays.items():
        if array.ndim not in (1, 2):
            raise TableError(f"{source}: the array {key!r} has shape {array.shape}; expected (n,) or (n, d)")
        if array.ndim == 1 or array.shape[1] == 1:
            columns[key] = column_array(array.ravel(), key)
            continue
        LIMITS.check_columns(len(columns) + array.shape[1], source)
        given = labels is not None and len(labels) == array.shape[1]
        names = [str(label) for label in labels] if given else [f"{key}{i + 1}" for i in range(array.shape[1])]  # type: ignore[union-attr]
        columns.update({name: column_array(array[:, i], name) for i, name in enumerate(names)})
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise TableError(f"{source}: the arrays differ in length: {lengths}")
    names, notes = unique_names(list(columns), source)
    return Table(dict(zip(names, columns.values(), strict=True)), source, None, notes)


def _npz_members(data: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Names and arrays of an ``.npz`` file. A header that promises more than there is is refused before allocating."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    most = left = LIMITS.max_unpacked_bytes(len(data))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                if version not in headers:
                    raise ValueError(f"{member.filename} has the unknown version {version}")
                shape, fortran, dtype = headers[version](file)
                if any(length < 0 for length in shape):
                    raise ValueError(f"{member.filename} has the impossible shape {shape}")
                if dtype.hasobject or dtype.names is not None:
                    raise ValueError(f"{member.filename} holds {dtype}; expected numbers, booleans, dates or text")
                size = math.prod(shape) * dtype.itemsize
                if size > member.file_size:
                    raise ValueError(f"{member.filename} promises {size} bytes and holds {member.file_size}")
                left -= size
                if left < 0:
                    raise ValueError(f"its arrays unpack to more than {most} bytes")
                flat = np.frombuffer(file.read(size), dtype=dtype)
                yield member.filename[:-4], flat.reshape(shape, order="F" if fortran else "C")


def write_npz(table: Table) -> bytes:
    """Encode a table as ``.npz``, one array a column."""
    arrays: dict[str, Any] = {
        name: np.array(["" if cell is None else cell for cell in column.tolist()]) if column.dtype == object else column
        for name, column in table.columns.items()
    }
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


# Excel -----------------------------------------------------------------------------------------------------------


def read_excel(data: bytes, source: str) -> Table:
    """Read the first sheet of an Excel workbook, with the values that its formulas had when it was saved."""
    openpyxl, most = import_modules("reading Excel files", "openpyxl"), LIMITS.max_unpacked_bytes(len(data))
    filled, width = list[tuple[int, tuple[Any, ...]]](), 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > most:
                raise ValueError(f"it unpacks to more than {most} bytes")
        sheets = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True).worksheets
        sheets[0].reset_dimensions()  # which a file may have wrong
        for i, row in enumerate(sheets[0].iter_rows(values_only=True), start=1):
            if i > MAX_EXCEL_ROWS:
                raise ValueError(f"it has a row beyond {MAX_EXCEL_ROWS:,}, the last of Excel's")
            if used := [j for j, cell in enumerate(row, start=1) if cell is not None]:
                filled.append((i, row[: used[-1]]))
                width = max(width, used[-1])
                LIMITS.check_cells(len(filled), width, len(data), source)
    except TableError:
        raise
    except Exception as error:  # openpyxl checks little: a damaged file may end in any error
        raise TableError(f"{source}: not a readable Excel file (.xlsx): {error}") from error
    rows = [[*row, *[None] * (width - len(row))] for _, row in filled]
    names, notes = unique_names(["" if cell is None else str(cell) for row in rows[:1] for cell in row], source)
    columns = {name: column_array(text_array([row[i] for row in rows[1:]]), name) for i, name in enumerate(names)}
    if len(sheets) > 1:
        notes += (f"the first of {len(sheets)} sheets was read, {sheets[0].title!r}",)
    return Table(columns, source, np.array([i for i, _ in filled[1:]], dtype=np.intp), notes)


def write_excel(table: Table) -> bytes:
    """Encode a table as an Excel workbook; text stays text where it begins like a formula."""
    openpyxl = import_modules("writing Excel files", "openpyxl")
    book = openpyxl.Workbook(write_only=True)
    sheet, out = book.create_sheet("predictions"), io.BytesIO()
    for row in zip(*([name, *python_cells(column)] for name, column in table.columns.items()), strict=True):
        cells = [openpyxl.cell.WriteOnlyCell(sheet, value) for value in row]
        for cell in cells:
            cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type
        sheet.append(cells)
    book.save(out)
    return out.getvalue()


# Parquet and Feather ---------------------------------------------------------------------------------------------


def read_parquet(data: bytes, source: str) -> Table:
    """Read Parquet."""
    arrow = import_modules("reading Parquet", *ARROW)

    def batches() -> Iterator[Any]:
        plain = arrow.parquet.ParquetFile(arrow.BufferReader(data))
        # Repeated text stays a dictionary: a small file may hold a long text a million times.
        text = [f.name for f in plain.schema_arrow if arrow.types.is_string(f.type) or arrow.types.is_binary(f.type)]
        file = arrow.parquet.ParquetFile(arrow.BufferReader(data), read_dictionary=text)
        yield file.schema_arrow, file.metadata.num_rows
        yield from file.iter_batches(MAX_BATCH_ROWS)

    return _read_arrow(arrow, batches, data, source, "Parquet")


def open_parquet(path: Path, source: str) -> Table | None:
    """The table of a large Parquet file, whose columns stay there; None for a small file, or one that cannot be used.

    `read_parquet` reads the former, and says what is wrong with the latter.
    """
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return None
    arrow = import_modules("reading Parquet", *ARROW)
    try:
        schema = arrow.parquet.read_schema(path)
        text = [f.name for f in schema if arrow.types.is_string(f.type) or arrow.types.is_binary(f.type)]
        file = arrow.parquet.ParquetFile(path, read_dictionary=text)
    except (OSError, ValueError, arrow.ArrowException):
        return None
    rows, given = file.metadata.num_rows, schema.names
    most = LIMITS.max_unpacked_bytes(path.stat().st_size)
    nested = any(arrow.types.is_nested(f.type) for f in schema)
    if not MAX_HELD_CELLS < rows * len(given) <= most // 8 or nested or len(set(given)) < len(given):
        return None
    names, notes = unique_names(given, source)
    columns = {
        name: _ParquetColumn(file, key, source, most, range(rows)) for name, key in zip(names, given, strict=True)
    }
    return Table(columns, source, None, notes)


@dataclass(frozen=True, eq=False)
class _ParquetColumn(StoredColumn):
    """Rows of a column of a Parquet file, by their numbers (n,)."""

    file: Any
    key: str
    source: str
    max_bytes: int
    rows: range | np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> _ParquetColumn:
        if isinstance(rows, slice):
            return replace(self, rows=self.rows[rows])
        chosen = np.arange(len(self))[rows] if rows.dtype == bool else rows
        whole = self.rows == range(self.file.metadata.num_rows)  # then columns share the numbers that are given
        return replace(self, rows=chosen if whole else np.asarray(self.rows)[chosen])

    def read(self) -> np.ndarray:
        arrow, meta = import_modules("reading Parquet", *ARROW), self.file.metadata
        if not len(self.rows):
            return np.empty(0)
        first, last = (int(end) for end in (np.min(self.rows), np.max(self.rows)))
        ends = np.cumsum([meta.row_group(i).num_rows for i in range(meta.num_row_groups)])
        begin, end = np.searchsorted(ends, (first, last), side="right")
        try:
            found = self.file.read_row_groups(range(begin, end + 1), columns=[self.key]).column(0)
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise TableError(f"{self.source}: not a readable Parquet file: {error}") from error
        if found.nbytes > self.max_bytes:
            raise TableError(f"{self.source}: column {self.key!r} unpacks to more than {self.max_bytes} bytes: convert "
                             "the file to CSV first")  # fmt: skip
        skipped = first - int(np.append(0, ends)[begin])
        values = _from_arrow(arrow, found.slice(skipped, last - first + 1), self.source, self.key)
        return (
            values if len(values) == len(self.rows) and first == self.rows[0] else values[np.asarray(self.rows) - first]
        )


def read_feather(data: bytes, source: str) -> Table:
    """Read Feather, which is Arrow's file format."""
    arrow = import_modules("reading Feather", *ARROW)

    def batches() -> Iterator[Any]:
        if data[:4] == b"FEA1":  # the first version of the format
            table = arrow.feather.read_table(arrow.BufferReader(data))
            yield table.schema, table.num_rows
            yield from table.to_batches()
            return
        no_columns = arrow.ipc.IpcReadOptions(included_fields=[])  # how many rows there are, without unpacking them
        counted = arrow.ipc.open_file(arrow.BufferReader(data), options=no_columns)
        rows = sum(counted.get_batch(i).num_rows for i in range(counted.num_record_batches))
        file = arrow.ipc.open_file(arrow.BufferReader(data))
        yield file.schema, rows
        for i in range(file.num_record_batches):
            yield file.get_batch(i)

    return _read_arrow(arrow, batches, data, source, "Feather")


def _read_arrow(arrow: Any, batches: Any, data: bytes, source: str, format: str) -> Table:
    """Read batches of rows; the first item is the schema and the number of rows, so that too many are refused."""
    most, size, parts = LIMITS.max_unpacked_bytes(len(data)), 0, []
    try:
        stream = batches()
        schema, rows = next(stream)
        LIMITS.check_columns(len(schema), source)
        if rows * len(schema) > most // 8:
            raise TableError(f"{source}: {len(data)} bytes of {format} unpack to more than {most}: a table of {rows:,} "
                             f"rows and {len(schema):,} columns; convert it to CSV first")  # fmt: skip
        for batch in stream:
            size += batch.nbytes
            if size > most:
                raise TableError(f"{source}: {len(data)} bytes of {format} unpack to more than {most}: convert the "
                                 "file to CSV first")  # fmt: skip
            parts.append(batch)
        found = arrow.Table.from_batches(parts, schema=parts[0].schema if parts else schema)
    except (OSError, ValueError, arrow.ArrowException) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{source}: not a readable {format} file: {error}") from error
    names, notes = unique_names(found.column_names, source)
    columns = {name: _from_arrow(arrow, found.column(i), source, name) for i, name in enumerate(names)}
    return Table(columns, source, None, notes)


def _from_arrow(arrow: Any, column: Any, source: str, name: str) -> np.ndarray:
    kind, types = column.type, arrow.types
    if types.is_nested(kind) and not types.is_dictionary(kind):
        raise TableError(f"{source}, column {name!r}: expected one value for each row, got {kind}")
    if types.is_dictionary(kind):
        column = column.unify_dictionaries().combine_chunks()
        chunk = column.chunk(0) if hasattr(column, "chunk") and column.num_chunks else column
        if not len(column):
            return column_array([], name)
        values = [*chunk.dictionary.to_pylist(), None]  # the last for missing cells
        codes = np.asarray(chunk.indices.fill_null(len(values) - 1))
        return column_array(np.array([*(values[i] for i in codes), None], dtype=object)[:-1], name)
    if types.is_decimal(kind):
        column = column.cast(arrow.float64())
    if types.is_timestamp(kind) or types.is_date(kind):
        return column.cast(arrow.timestamp("us", tz=getattr(kind, "tz", None))).to_numpy().astype("datetime64[us]")
    if types.is_floating(kind):
        return column.to_numpy().astype(float)
    return column_array(np.array([*column.to_pylist(), None], dtype=object)[:-1], name)


def write_arrow(table: Table, format: str) -> bytes:
    """Encode a table as Parquet or Feather."""
    arrow = import_modules(f"writing {format.capitalize()}", *ARROW)
    made = arrow.table({name: arrow.array(column, from_pandas=True) for name, column in table.columns.items()})
    out = io.BytesIO()
    if format == "parquet":
        arrow.parquet.write_table(made, out)
    else:
        arrow.feather.write_feather(made, out)
    return out.getvalue()
