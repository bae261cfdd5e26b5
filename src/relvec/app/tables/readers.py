"""Readers of the formats of tables, each through a library: from bytes to columns."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from itertools import zip_longest
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from relvec.app.tables.inputs import TableBytes
from relvec.app.tables.table import Table, TableError, as_text, import_optional, make_table, text_type, unique_names
from relvec.runtime.machine import release_memory

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet
    from pyarrow import ChunkedArray, DataType, RecordBatch, Schema
    from pyarrow import Table as ArrowTable
    from pyarrow.csv import InvalidRow

__all__ = [
    "read_csv",
    "read_excel",
    "read_feather",
    "read_json",
    "read_npz",
    "read_parquet",
    "read_tsv",
    "release_unused",
]

DELIMITERS = (",", ";", "\t", "|")
HEADER_BYTES = 4_000_000  # of a text, in which the header is looked for
SEPARATOR_LINE = re.compile(r"\s*sep=(.)\s*?\r?\n")  # by which Excel is told the delimiter
DECIMAL_COMMA = r"\s*[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+\s*"
BATCH_ROWS = 2_000  # of a Parquet file unpacked at a time, so that its size is known before there is much of it
MAX_EXCEL_ROWS = 1_048_576  # of a sheet; a file with a larger row number would be read without limit
FAILURES = (OSError, ValueError, KeyError, NotImplementedError, MemoryError)  # Arrow's own errors are among them


def read_csv(source: TableBytes, delimiter: str | None = None) -> Table:
    """Read delimited text by pyarrow; commas, semicolons, tabs and bars are told apart by the header."""
    arrow, arrow_csv = _arrow(), import_optional("pyarrow.csv", "reading tables")
    encoding, notes = _find_encoding(source)
    if encoding != "utf-16" and b"\0" in source.data:
        raise TableError(f"{source.name}: the file holds NUL bytes, so it is not text; name its format with --format")
    head = source.data[:HEADER_BYTES].decode(encoding, "ignore").lstrip("\ufeff\r\n")
    if told := SEPARATOR_LINE.match(head):
        head, delimiter = head[told.end() :], told[1]
    width, delimiter = _measure_header(head, delimiter, source)
    source.check(source.data.count(delimiter.encode()) + source.data.count(b"\n"), 1)
    wrong: list[str] = []

    def look_at(row: InvalidRow) -> str:
        if not row.text.strip():
            return "skip"
        wrong.append(f"row {row.number - 1 - bool(told)}: {row.actual_columns} cells where the header has {width}")
        return "error"

    names = [str(i) for i in range(width)]
    try:
        found = arrow_csv.read_csv(
            io.BytesIO(source.data),
            arrow_csv.ReadOptions(use_threads=False, column_names=names, skip_rows=int(bool(told)), encoding=encoding),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=look_at),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, arrow.string()), null_values=[""],
                                     strings_can_be_null=True),
        )  # fmt: skip
    except FAILURES as error:
        raise TableError(f"{source.name}, {wrong[0]}; check the quotes and the delimiter {delimiter!r} there" if wrong
                         else f"{source.name}: not a readable table of text: {error}") from error  # fmt: skip
    header = [as_text(column[0].as_py() or "") for column in found.columns]
    table = _from_arrow(found.slice(1).rename_columns(header), source, notes)
    return _point_decimals(table) if delimiter == ";" else table


def read_tsv(source: TableBytes) -> Table:
    """Read tab-separated values."""
    return read_csv(source, "\t")


def _find_encoding(source: TableBytes) -> tuple[str, tuple[str, ...]]:
    """Find the encoding of a text, with a note where it is not UTF-8."""
    wide = source.data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        source.data.decode("utf-16" if wide else "utf-8")
    except UnicodeDecodeError as error:
        if wide:
            raise TableError(f"{source.name}: not valid UTF-16 at byte {error.start}") from error
        line = source.data[: error.start].count(b"\n") + 1
        return "latin-1", (f"line {line} is not UTF-8, so the file was read as Latin-1",)
    return ("utf-16", ("read as UTF-16",)) if wide else ("utf-8", ())


def _measure_header(head: str, delimiter: str | None, source: TableBytes) -> tuple[int, str]:
    """Count the cells of the header, by the delimiter that splits it into most, the comma among equals."""
    try:
        counts = {d: len(next(csv.reader(io.StringIO(head, newline=""), delimiter=d), []))
                  for d in ([delimiter] if delimiter else DELIMITERS)}  # fmt: skip
    except csv.Error as error:
        raise TableError(f"{source.name}: not a readable header: {error}") from error
    chosen = max(counts, key=lambda d: counts[d])
    source.check(1, counts[chosen])
    return counts[chosen], chosen


def _point_decimals(table: Table) -> Table:
    """Write decimal commas as points, in a file whose cells are separated by semicolons."""
    for name in table.names:
        column = table[name]
        comma = column.str.fullmatch(DECIMAL_COMMA, na=False)
        if comma.any():
            points = column.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
            table = table.with_column(name, column.where(~comma, points))
    note = "cells are separated by semicolons, so 3,14 is read as a decimal number"
    return Table(table.frame, table.source, (*table.notes, note))


def read_json(source: TableBytes) -> Table:
    """Read JSON lines, one object a row, or one JSON list of such objects."""
    encoding, notes = _find_encoding(source)
    text = source.data.decode(encoding).lstrip("\ufeff")
    source.check(text.count("\n") + text.count("{"), 1)
    columns: dict[str, list[object]] = {}
    rows = 0
    for where, record in _load_records(text, source.name):
        if not isinstance(record, dict):
            raise TableError(f'{where}: expected an object such as {{"x": 1}}, got {type(record).__name__}')
        for key, value in record.items():
            cells = columns.setdefault(key, [])
            cells += [None] * (rows - len(cells))
            cells.append(value)
        rows += 1
        source.check(rows, len(columns))
    for cells in columns.values():
        cells += [None] * (rows - len(cells))
    names, renamed = unique_names(columns, source.name)
    return make_table(dict(zip(names, columns.values(), strict=True)), source.name, notes + renamed)


def _load_records(text: str, name: str) -> Iterator[tuple[str, object]]:
    """Yield the places and values of the lines of JSON, or of the items of a list."""
    whole = text.lstrip().startswith("[")
    for i, part in enumerate([text] if whole else text.split("\n"), start=1):
        if not part.strip():
            continue
        where = name if whole else f"{name}, line {i}"
        try:
            record = json.loads(part)
        except (ValueError, RecursionError) as error:
            raise TableError(f"{where}: not valid JSON: {error}") from error
        if whole:
            yield from ((f"{name}, row {row}", item) for row, item in enumerate(record, start=1))
        else:
            yield where, record


def read_excel(source: TableBytes) -> Table:
    """Read a sheet of an Excel workbook, the first or the one named, with the values that its formulas had."""
    openpyxl = import_optional("openpyxl", "reading Excel files")
    try:
        _check_archive(source)
        book = openpyxl.load_workbook(io.BytesIO(source.data), read_only=True, data_only=True)
        titles = [sheet.title for sheet in book.worksheets]
        if source.sheet is not None and source.sheet not in titles:
            raise TableError(f"{source.name}: there is no sheet {source.sheet!r}; there are {', '.join(titles)}")
        filled = list(_filled_rows(book.worksheets[titles.index(source.sheet or titles[0])], source))
    except TableError:
        raise
    except Exception as error:  # openpyxl checks little: a damaged file may end in any error
        raise TableError(f"{source.name}: not a readable Excel file (.xlsx): {error}") from error
    columns = list(zip_longest(*filled))
    names, notes = unique_names(("" if column[0] is None else column[0] for column in columns), source.name)
    if len(titles) > 1 and source.sheet is None:
        listed = ", ".join(map(repr, titles))
        notes += (f"the first of {len(titles)} sheets was read ({listed}); choose another with --sheet",)
    return make_table({name: column[1:] for name, column in zip(names, columns, strict=True)}, source.name, notes)


def _filled_rows(sheet: Worksheet, source: TableBytes) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a sheet that hold anything, up to their last cell that does."""
    width = text = filled = 0
    sheet.reset_dimensions()  # which a file may have wrong
    for i, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        if i > MAX_EXCEL_ROWS:
            raise ValueError(f"it has a row beyond {MAX_EXCEL_ROWS:,}, the last of Excel's")
        if used := [j for j, cell in enumerate(row, start=1) if cell is not None]:
            filled, width = filled + 1, max(width, used[-1])
            text += sum(len(cell) for cell in row if isinstance(cell, str))
            source.check(filled, width, text)
            yield row[: used[-1]]


def _check_archive(source: TableBytes) -> None:
    """Refuse a zip archive that unpacks to too much."""
    with zipfile.ZipFile(io.BytesIO(source.data)) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > source.most:
        raise TableError(f"{source.name}: unpacks to {size:,} bytes, more than the {source.most:,} for its size")


def read_npz(source: TableBytes) -> Table:
    """Read numpy's ``.npz``: one array a column, or arrays (n, d) whose columns are named by ``feature_names``."""
    try:
        _check_archive(source)
        with np.load(io.BytesIO(source.data), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except TableError:
        raise
    except Exception as error:  # of zipfile, of three decompressors and of the parser of Python's literals
        raise TableError(f"{source.name}: not a readable .npz file: {error}") from error
    labels = arrays.pop("feature_names", np.empty(0))
    columns: list[tuple[str, np.ndarray]] = []
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2) or array.dtype.kind not in "biufmMSU":
            raise TableError(f"{source.name}: the array {key!r} has shape {np.shape(array)} and holds "
                             f"{getattr(array, 'dtype', 'bytes')}; expected (n,) or (n, d) of numbers, dates or "
                             "text")  # fmt: skip
        wide = array if array.ndim == 2 else array[:, None]
        source.check(len(wide), len(columns) + wide.shape[1])
        own = labels if labels.shape == array.shape[1:] else [f"{key}{i + 1}" for i in range(wide.shape[1])]
        columns += zip([key] if wide.shape[1] == 1 else map(str, own), wide.T, strict=True)
    names, notes = unique_names((name for name, _ in columns), source.name)
    return make_table({name: values for name, (_, values) in zip(names, columns, strict=True)}, source.name, notes)


# Arrow ------------------------------------------------------------------------------------------------------------


def release_unused() -> None:
    """Return the memory that pyarrow has freed to the system, where it was used."""
    if "pyarrow" in sys.modules:
        _arrow().default_memory_pool().release_unused()
    release_memory()


def _arrow() -> ModuleType:
    return import_optional("pyarrow", "reading tables")


def read_parquet(source: TableBytes) -> Table:
    """Read Parquet, a few rows at a time, so that a small file does not become a large table."""
    parquet = import_optional("pyarrow.parquet", "reading Parquet")

    def batches() -> Iterator[Schema | RecordBatch]:
        schema = parquet.read_schema(_arrow().BufferReader(source.data))
        texts = [field.name for field in schema if _is_text(field.type)]  # one that repeats is unpacked once
        file = parquet.ParquetFile(_arrow().BufferReader(source.data), read_dictionary=texts)
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        packed = sum(g.column(j).total_uncompressed_size for g in groups for j in range(g.num_columns))
        source.check(file.metadata.num_rows, len(schema))
        source.check(0, 0, packed)
        yield file.schema_arrow
        yield from file.iter_batches(BATCH_ROWS)

    return _read_batches(batches(), source, "Parquet")


def read_feather(source: TableBytes) -> Table:
    """Read Feather, which is Arrow's file format."""
    ipc = import_optional("pyarrow.ipc", "reading Feather")

    def batches() -> Iterator[Schema | RecordBatch]:
        file = ipc.open_file(_arrow().BufferReader(source.data))
        yield file.schema
        yield from (file.get_batch(i) for i in range(file.num_record_batches))

    return _read_batches(batches(), source, "Feather")


def _read_batches(stream: Iterator[Schema | RecordBatch], source: TableBytes, format: str) -> Table:
    """Read a schema and batches of rows, each checked in full before a cell of it is touched."""
    rows, size, parts = 0, 0, []
    try:
        schema = next(stream)
        for batch in stream:
            batch.validate(full=True)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            source.check(rows, len(schema))
            source.check(0, 0, size)
            parts.append(batch)
        return _from_arrow(_arrow().Table.from_batches(parts, parts[0].schema if parts else schema), source)
    except TableError:
        raise
    except FAILURES as error:
        raise TableError(f"{source.name}: not a readable {format} file: {error}") from error


def _is_text(kind: DataType) -> bool:
    return _arrow().types.is_string(kind) or _arrow().types.is_large_string(kind)


def _from_arrow(found: ArrowTable, source: TableBytes, notes: tuple[str, ...] = ()) -> Table:
    """Make a table of Arrow's columns; nested ones, which are left out whatever they hold, are not converted."""
    names, renamed = unique_names(found.column_names, source.name)
    texts = {_arrow().string(): text_type(), _arrow().large_string(): text_type()}
    columns = {}
    for name, column in zip(names, found.columns, strict=True):
        if _arrow().types.is_dictionary(column.type):
            source.check(0, 0, _unpacked_text(column))
            column = column.cast(column.type.value_type)
        nested = _arrow().types.is_nested(column.type)
        columns[name] = (
            [()] * len(column) if nested else column.to_pandas(types_mapper=texts.get, integer_object_nulls=True)
        )
    return make_table(columns, source.name, notes + renamed)


def _unpacked_text(column: ChunkedArray) -> int:
    """Count the bytes of a column of text that is kept as a dictionary, each repetition counted."""
    if not _is_text(column.type.value_type):
        return 0
    compute = import_optional("pyarrow.compute", "reading tables")
    lengths = (compute.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    return sum(compute.sum(found).as_py() or 0 for found in lengths)
