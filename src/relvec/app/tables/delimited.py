"""Text formats: CSV, TSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from relvec.app.tables.table import LIMITS, Table, TableError, column_array, text_array
from relvec.app.tables.text import escape_controls

DELIMITERS = (",", ";", "\t", "|")
JSON_LINE = re.compile(r"[^\n]*\n|[^\n]+")
BLANKS = re.compile(r"[ \t\r\n]*")
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # io.StringIO would copy the text at four bytes a character


def read_csv(data: bytes, source: str, size: int) -> Table:
    """Read comma-separated values; semicolons, tabs and bars are recognised too."""
    text, notes = _decode(data, source)
    return _read_delimited(text, _find_delimiter(text, source), source, size, notes)


def read_tsv(data: bytes, source: str, size: int) -> Table:
    """Read tab-separated values."""
    text, notes = _decode(data, source)
    return _read_delimited(text, "\t", source, size, notes)


def read_jsonl(data: bytes, source: str, size: int) -> Table:
    """Read JSON lines, one flat object a row, or one JSON list of such objects."""
    text, notes = _decode(data, source)
    as_list = text.lstrip().startswith("[")
    found: dict[str, tuple[list[int], list[Any]]] = {}
    lines: list[int] = []
    for row, (line, record) in enumerate(_list_records(text, source) if as_list else _line_records(text, source, size)):
        where = f"{source}, row {row + 1}" + ("" if as_list else f" (line {line})")
        if not isinstance(record, dict):
            raise TableError(f'{where}: expected an object such as {{"x": 1}}, got {type(record).__name__}')
        for key, value in record.items():
            if isinstance(value, list | dict):
                raise TableError(f"{where}, column {key!r}: expected one value, got a {type(value).__name__}")
            rows, values = found.setdefault(key, ([], []))
            rows.append(row)
            values.append(value)
        lines.append(line)
        LIMITS.check_cells(row + 1, max(len(found), 1), size, source)
    names, renamed = unique_names(list(found), source)
    columns = {}
    for name, (rows, values) in zip(names, found.values(), strict=True):
        cells: list[Any] = [None] * len(lines)
        for row, value in zip(rows, values, strict=True):
            cells[row] = value
        columns[name] = column_array(cells, name)
    return Table(columns, source, None if as_list else np.array(lines, dtype=np.intp), notes + renamed)


def _line_records(text: str, source: str, size: int) -> Iterator[tuple[int, Any]]:
    """Number and value of every line of JSON that is not blank."""
    for i, found in enumerate(JSON_LINE.finditer(text), start=1):
        LIMITS.check_cells(i, 1, size, source)  # blank lines, too, take their time
        if not found[0].isspace():
            yield i, _parse_json(found[0], f"{source}, line {i}")


def _list_records(text: str, source: str) -> Iterator[tuple[int, Any]]:
    """The items of one JSON list, each with 0 for its line; one at a time, so that too many are noticed in time."""
    decoder, place = json.JSONDecoder(), text.index("[") + 1
    after = _skip_blanks(text, place)
    while text[after : after + 1] != "]" or text[place - 1] == ",":
        try:
            record, place = decoder.raw_decode(text, after)
        except (ValueError, RecursionError) as error:
            raise TableError(f"{source}: not valid JSON: {error}") from error
        yield 0, record
        after = _skip_blanks(text, place)
        if text[after : after + 1] == ",":
            place, after = after + 1, _skip_blanks(text, after + 1)
        elif text[after : after + 1] != "]":
            raise TableError(f"{source}: not valid JSON: expected a comma or ] at character {after + 1}")
    if text[after + 1 :].strip():
        raise TableError(f"{source}: not valid JSON: there is more after the end of the list")


def _skip_blanks(text: str, place: int) -> int:
    found = BLANKS.match(text, place)
    return place if found is None else found.end()


def write_text(table: Table, format: str) -> bytes:
    """Encode a table as CSV, TSV or JSON lines."""
    out = io.StringIO()
    rows = zip(*[python_cells(column) for column in table.columns.values()], strict=True)
    if format == "jsonl":
        for row in rows:
            out.write(json.dumps(dict(zip(table.names, row, strict=True)), ensure_ascii=False) + "\n")
    else:
        writer = csv.writer(out, delimiter="\t" if format == "tsv" else ",", lineterminator="\n")
        writer.writerow(table.names)
        writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return out.getvalue().encode()


def unique_names(header: Sequence[str], source: str) -> tuple[list[str], tuple[str, ...]]:
    r"""Give every column a printable name of its own, with a note for each name that had to be changed.

    >>> unique_names(["x", "", "x"], "t.csv")[0]
    ['x', 'column 2', 'x (2)']
    """
    LIMITS.check_columns(len(header), source)
    names: dict[str, None] = {}  # an ordered set
    counts: dict[str, int] = {}
    notes = []
    for i, cell in enumerate(header):
        given = " ".join(cell.split())
        base = name = escape_controls(given) or f"column {i + 1}"
        while name in names:
            counts[base] = counts.get(base, 1) + 1
            name = f"{base} ({counts[base]})"
        if name != given:
            notes.append(f"column {i + 1} is called {given!r} in the header; here it is {name!r}")
        names[name] = None
    return list(names), tuple(notes)


def _decode(data: bytes, source: str) -> tuple[str, tuple[str, ...]]:
    """The text of a file, and a note where it is not UTF-8."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return data.decode("utf-16"), ("read as UTF-16",)
        except UnicodeDecodeError as error:
            raise TableError(f"{source}: not valid UTF-16 at byte {error.start}") from error
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return data.decode("latin-1"), (f"line {line} is not UTF-8, so the file was read as Latin-1",)


def _find_delimiter(text: str, source: str) -> str:
    """The delimiter that splits the header into most cells, outside quotes; the comma among equals."""
    header = next((found[0] for found in LINE.finditer(text) if not found[0].isspace()), "")
    for delimiter in DELIMITERS:
        _check_line(header, delimiter, source)
    return max(DELIMITERS, key=lambda d: len(next(_split_cells([header], d), [])))


def _check_line(line: str, delimiter: str, source: str) -> str:
    """The line, refused if it has more cells than a table may have columns; delimiters in quotes separate no cells."""
    LIMITS.check_columns(line.count(delimiter) // (10 if '"' in line else 1), source)
    return line


def _split_cells(lines: Iterable[str], delimiter: str) -> Any:
    """A reader of the cells of lines; Python's own limit on the length of a cell would refuse a long header."""
    csv.field_size_limit(2**31 - 1)
    return csv.reader(lines, delimiter=delimiter)


def _read_delimited(text: str, delimiter: str, source: str, size: int, notes: tuple[str, ...]) -> Table:
    if "\0" in text:
        raise TableError(f"{source}: the file holds NUL bytes, so it is not text; name its format with --format")
    reader = _split_cells((_check_line(found[0], delimiter, source) for found in LINE.finditer(text)), delimiter)
    header: list[str] | None = None
    columns: list[list[str | None]] = []
    lines: list[int] = []
    next_line = 1
    try:
        for record in reader:
            line, next_line = next_line, reader.line_num + 1
            LIMITS.check_cells(line, 1, size, source)  # blank lines, too, take their time
            if not any(cell.strip() for cell in record):
                continue
            if header is None:
                header, renamed = unique_names(record, source)
                notes, columns = notes + renamed, [[] for _ in header]
                continue
            lines.append(line)
            LIMITS.check_cells(len(lines), len(header), size, source)
            matched = _match_header(record, len(header), delimiter, f"{source}, row {len(lines)} (line {line})")
            for column, cell in zip(columns, matched, strict=True):
                column.append(_decimal_point(cell.strip(), delimiter) or None)
    except csv.Error as error:
        raise TableError(f"{source}, line {reader.line_num}: {error}") from error
    if delimiter == ";":
        notes += ("cells are separated by semicolons, so 3,14 is read as a decimal number",)
    found = {name: text_array(columns.pop(0)) for name in header or []}
    return Table(found, source, np.array(lines, dtype=np.intp), notes)


def _match_header(record: list[str], width: int, delimiter: str, where: str) -> list[str]:
    """The record, without the empty cells that trailing delimiters make."""
    if len(record) > width and not any(cell.strip() for cell in record[width:]):
        return record[:width]
    if len(record) != width:
        raise TableError(f"{where}: {len(record)} cells where the header has {width}; check the quotes and the "
                         f"delimiter {delimiter!r} there")  # fmt: skip
    return record


def _decimal_point(cell: str, delimiter: str) -> str:
    """Write a decimal comma as a point, in files whose cells are separated by semicolons."""
    if delimiter != ";" or cell.count(",") != 1:
        return cell
    point = cell.replace(".", "").replace(",", ".")
    try:
        float(point)
    except ValueError:
        return cell
    return point


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{where}: not valid JSON: {error}") from error


def python_cells(column: np.ndarray) -> list[Any]:
    """The cells as Python values, None where missing."""
    if column.dtype.kind == "M":
        return [None if np.isnat(value) else str(value) for value in column]
    return [None if isinstance(value, float) and math.isnan(value) else value for value in column.tolist()]
