"""Excel workbooks, through openpyxl, which is imported when it is needed."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any
from xml.parsers import expat

import numpy as np

from relvec.app.tables.binary import import_modules
from relvec.app.tables.delimited import python_cells, unique_names
from relvec.app.tables.table import LIMITS, Table, TableError, column_array, text_array
from relvec.app.tables.text import escape_controls

MAX_ROWS = 1_048_576  # of a sheet; a file with a larger row number would be read without limit
MAX_PARTS = 200_000  # elements of XML that openpyxl holds at once: of a row of 16,384 cells, or of all styles
GROUPS = ("row", "si")  # elements that openpyxl lets go of one by one: rows, and strings that cells share
CHUNK = 1 << 20
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that XML does not have


def read_excel(data: bytes, source: str, size: int) -> Table:
    """Read the first sheet of an Excel workbook, with the values that its formulas had when it was saved."""
    openpyxl = import_modules("reading Excel files", "openpyxl")
    filled, width, length = list[tuple[int, tuple[Any, ...]]](), 0, 0
    try:
        _check_archive(data, LIMITS.max_unpacked_bytes(size))
        sheets = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True).worksheets
        sheets[0].reset_dimensions()  # which a file may have wrong
        for i, row in enumerate(sheets[0].iter_rows(values_only=True), start=1):
            if i > MAX_ROWS:
                raise ValueError(f"it has a row beyond {MAX_ROWS:,}, the last of Excel's")
            if used := [j for j, cell in enumerate(row, start=1) if cell is not None]:
                filled.append((i, row[: used[-1]]))
                width = max(width, used[-1])
                LIMITS.check_cells(len(filled), width, size, source)
                length += sum(len(cell) for cell in row if isinstance(cell, str))
                LIMITS.check_text(length, size, source)
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


def _check_archive(data: bytes, most: int) -> None:
    """Refuse a workbook that unpacks to more than ``most`` bytes, or of which openpyxl would hold too much at once."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(member.file_size for member in archive.infolist()) > most:
            raise ValueError(f"it unpacks to more than {most} bytes")
        for member in archive.infolist():
            with archive.open(member) as file:
                _check_xml(file, member.filename)


def _check_xml(file: Any, name: str) -> None:
    """Refuse XML with more elements outside of rows, or in one row, than openpyxl may hold; pictures are no XML."""
    parser, open_, outside, inside = expat.ParserCreate(), 0, 0, 0

    def start(element: str, _: Any) -> None:
        nonlocal open_, outside, inside
        if element.rpartition(":")[2] in GROUPS:
            open_, inside = open_ + 1, 0 if open_ == 0 else inside
        elif open_:
            inside += 1
        else:
            outside += 1
        if max(outside, inside) > MAX_PARTS:
            raise ValueError(f"{name} holds more than {MAX_PARTS:,} parts in a row of cells, or outside of rows")

    def end(element: str) -> None:
        nonlocal open_
        open_ -= element.rpartition(":")[2] in GROUPS

    def refuse(*_: Any) -> None:
        raise ValueError(f"{name} declares a type of document, which no workbook does")

    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, refuse
    try:
        while chunk := file.read(CHUNK):
            parser.Parse(chunk, False)
    except expat.ExpatError:
        return


def _escape(found: re.Match[str]) -> str:
    return escape_controls(found[0])


def write_excel(table: Table) -> bytes:
    """Encode a table as an Excel workbook; text stays text where it begins like a formula."""
    openpyxl = import_modules("writing Excel files", "openpyxl")
    book = openpyxl.Workbook(write_only=True)
    sheet, out = book.create_sheet("predictions"), io.BytesIO()
    for row in zip(*([name, *python_cells(column)] for name, column in table.columns.items()), strict=True):
        cells = [
            openpyxl.cell.WriteOnlyCell(sheet, UNWRITABLE.sub(_escape, v) if isinstance(v, str) else v) for v in row
        ]
        for cell in cells:
            cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type
        sheet.append(cells)
    book.save(out)
    return out.getvalue()
