"""Parquet and Feather, through pyarrow, which is imported when it is needed."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from relvec.app.tables.delimited import unique_names
from relvec.app.tables.formats.arrow_file import count_rows_and_bytes
from relvec.app.tables.table import LIMITS, StoredColumn, Table, TableError, as_text, column_array

ARROW = ("pyarrow", "pyarrow.feather", "pyarrow.parquet")
MAX_BATCH_ROWS = 10_000  # of a Parquet file read at a time, so that its size is known before there is much of it
MAX_BATCH_BYTES = 10_000_000  # of cells of a fixed width in such a batch
MAX_REPEATS = 10  # a text of a dictionary is held once, so that its cells may have ten times as much text
MAX_HELD_CELLS = 5_000_000  # of a Parquet file, 40 MB as numbers: columns of a longer one are read when they are needed


def import_modules(what: str, *names: str) -> Any:
    """The first of the modules, with the others loaded, or a `TableError` that says what needs them."""
    try:
        first, *_ = [import_module(name) for name in names]
        return first
    except ImportError as error:
        raise TableError(f"{what} needs {names[0]}, which is not installed: pip install 'relvec[data]'") from error


def read_parquet(data: bytes, source: str, size: int) -> Table:
    """Read Parquet."""
    arrow = import_modules("reading Parquet", *ARROW)

    def batches() -> Iterator[Any]:
        plain = arrow.parquet.ParquetFile(arrow.BufferReader(data))
        yield plain.schema_arrow, plain.metadata.num_rows, _packed_bytes(plain.metadata)
        file = arrow.parquet.ParquetFile(arrow.BufferReader(data), read_dictionary=_texts(arrow, plain.schema_arrow))
        widths = [f.type.byte_width for f in plain.schema_arrow if arrow.types.is_fixed_size_binary(f.type)]
        yield from file.iter_batches(max(1, min([MAX_BATCH_ROWS, *(MAX_BATCH_BYTES // (w + 1) for w in widths)])))

    return _read_arrow(arrow, batches, source, size, "Parquet")


def _texts(arrow: Any, schema: Any) -> list[str]:
    """Columns whose repeated text stays a dictionary: a small file may hold a long text a million times."""
    types = arrow.types
    kinds = (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
    return [f.name for f in schema if any(is_kind(f.type) for is_kind in kinds) or str(f.type).endswith("_view")]


def _packed_bytes(metadata: Any) -> int:
    """Bytes of all pages of a Parquet file when they are unpacked, before repetitions are written out."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return sum(g.column(j).total_uncompressed_size for g in groups for j in range(metadata.num_columns))


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
        file = arrow.parquet.ParquetFile(path, read_dictionary=_texts(arrow, schema))
    except (OSError, ValueError, arrow.ArrowException):
        return None
    rows, given = file.metadata.num_rows, schema.names
    most = LIMITS.max_unpacked_bytes(path.stat().st_size)
    odd = any(arrow.types.is_nested(f.type) or arrow.types.is_fixed_size_binary(f.type) for f in schema)
    fits = MAX_HELD_CELLS < rows * len(given) <= most // 8 and _packed_bytes(file.metadata) <= most
    if not fits or odd or len(set(given)) < len(given):
        return None
    names, notes = unique_names(given, source)
    columns = {
        name: _ParquetColumn(file, key, source, path.stat().st_size, range(rows))
        for name, key in zip(names, given, strict=True)
    }
    return Table(columns, source, None, notes)


@dataclass(frozen=True, eq=False)
class _ParquetColumn(StoredColumn):
    """Rows of a column of a Parquet file, by their numbers (n,)."""

    file: Any
    key: str
    source: str
    size: int
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
        if found.nbytes > (most := LIMITS.max_unpacked_bytes(self.size)):
            raise TableError(f"{self.source}: column {self.key!r} unpacks to more than {most} bytes: convert the file "
                             "to CSV first")  # fmt: skip
        skipped = first - int(np.append(0, ends)[begin])
        values = _from_arrow(arrow, found.slice(skipped, last - first + 1), self.source, self.key, self.size)
        return (
            values if len(values) == len(self.rows) and first == self.rows[0] else values[np.asarray(self.rows) - first]
        )


def read_feather(data: bytes, source: str, size: int) -> Table:
    """Read Feather, which is Arrow's file format."""
    arrow = import_modules("reading Feather", *ARROW)

    def batches() -> Iterator[Any]:
        if data[:4] == b"FEA1":  # the first version of the format
            table = arrow.feather.read_table(arrow.BufferReader(data))
            yield table.schema, table.num_rows, table.nbytes
            yield from table.to_batches()
            return
        file = arrow.ipc.open_file(arrow.BufferReader(data))
        yield file.schema, *count_rows_and_bytes(data)
        for i in range(file.num_record_batches):
            yield file.get_batch(i)

    return _read_arrow(arrow, batches, source, size, "Feather")


def _read_arrow(arrow: Any, batches: Any, source: str, size: int, format: str) -> Table:
    """Read batches of rows; the first item is the schema with the numbers of rows and bytes, so that too many are
    refused before they are unpacked.
    """
    most, held, parts = LIMITS.max_unpacked_bytes(size), 0, []
    too_much = f"{source}: {size} bytes of {format} unpack to more than {most}"
    try:
        stream = batches()
        schema, rows, packed = next(stream)
        LIMITS.check_columns(len(schema), source)
        for field in schema:
            if arrow.types.is_nested(field.type):
                raise TableError(f"{source}, column {field.name!r}: expected one value for each row, got {field.type}")
        if rows * len(schema) > most // 8:
            raise TableError(f"{too_much}: a table of {rows:,} rows and {len(schema):,} columns; convert it to CSV "
                             "first")  # fmt: skip
        for batch in stream if packed <= most else ():
            held += batch.nbytes
            if held > most:
                break
            parts.append(batch)
        if max(held, packed) > most:
            raise TableError(f"{too_much}: convert the file to CSV first")
        found = arrow.Table.from_batches(parts, schema=parts[0].schema if parts else schema)
    except (OSError, ValueError, struct.error, arrow.ArrowException) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{source}: not a readable {format} file: {error}") from error
    names, notes = unique_names(found.column_names, source)
    columns = {name: _from_arrow(arrow, found.column(i), source, name, size) for i, name in enumerate(names)}
    return Table(columns, source, None, notes)


def _from_arrow(arrow: Any, column: Any, source: str, name: str, size: int) -> np.ndarray:
    kind, types = column.type, arrow.types
    if types.is_dictionary(kind):
        column = column.unify_dictionaries().combine_chunks()
        chunk = column.chunk(0) if hasattr(column, "chunk") and column.num_chunks else column
        if not len(column):
            return column_array([], name)
        values = [*chunk.dictionary.to_pylist(), None]  # the last for missing cells
        codes = np.asarray(chunk.indices.fill_null(len(values) - 1))
        # Text is converted once, and looked at for every cell that holds it.
        values = [as_text(value) if isinstance(value, str | bytes) else value for value in values]
        lengths = np.array([len(value) if isinstance(value, str) else 0 for value in values])
        total = int(np.bincount(codes, minlength=len(values)) @ lengths)
        LIMITS.check_text(total // MAX_REPEATS, size, source)
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
