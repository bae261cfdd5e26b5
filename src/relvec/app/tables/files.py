"""Tables from files and standard input, and to them: CSV, TSV, JSON lines, ``.npz``, Parquet, Feather and Excel."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from relvec.app.tables import readers
from relvec.app.tables.inputs import LIMITS, Limits, open_source
from relvec.app.tables.table import Table, TableError, import_optional, text_type
from relvec.app.tables.text import escape_controls, on_terminal
from relvec.runtime.files import write_atomically

__all__ = ["FORMATS", "output_format", "read_table", "write_table"]

READERS = {
    "csv": readers.read_csv, "tsv": readers.read_tsv, "jsonl": readers.read_json, "npz": readers.read_npz,
    "parquet": readers.read_parquet, "feather": readers.read_feather, "excel": readers.read_excel,
}  # fmt: skip
FORMATS = tuple(READERS)
TEXT_FORMATS = ("csv", "tsv", "jsonl")
SUFFIXES = {
    ".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".npz": "npz", ".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather",
    ".xlsx": "excel",
}  # fmt: skip
COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd")
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that XML does not have


def read_table(path: str | Path, format: str | None = None, sheet: str | None = None, limits: Limits = LIMITS) -> Table:
    r"""Read a table.

    Parameters
    ----------
    path : str or Path
        A file or a pipe, or ``"-"`` for standard input. gzip and zstd are recognised by their content.
    format : {"csv", "tsv", "jsonl", "npz", "parquet", "feather", "excel"}, optional
        By default the suffix of the file decides, or its content where the suffix is unknown.
    sheet : str, optional
        The sheet of a workbook, the first by default.
    limits : Limits
        How large a file and its table may be.

    Returns
    -------
    table : Table

    Raises
    ------
    TableError
        For a file that holds no table, or one beyond the limits.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = file.write_text("day,sold\n2024-01-01,3\n2024-01-02,\n")
    >>> table = read_table(file)
    >>> table["sold"].tolist()
    ['3', nan]
    """
    if format is not None and format not in FORMATS:
        raise TableError(f"unknown format {format!r}: one of {', '.join(FORMATS)}")
    source = open_source(path, sheet, limits)
    if not source.data.strip():
        raise TableError(f"{source.name}: the file is empty; expected a table with a header and rows")
    chosen = format or SUFFIXES.get(_suffix(path)) or _recognise(source.data)
    if sheet is not None and chosen != "excel":
        raise TableError(f"{source.name}: read as {chosen}, which has no sheets: leave --sheet out")
    table = READERS[chosen](source)
    readers.release_unused()
    if not table.names:
        raise TableError(f"{source.name}: no columns found")
    if len(table) == 0:
        raise TableError(f"{source.name}: the table has a header and no rows")
    return table


def write_table(table: Table, path: str | Path, format: str | None = None) -> None:
    """Write a table; `format`, or the suffix of the file, decides how. ``"-"`` is standard output.

    Examples
    --------
    >>> from relvec.app.tables import as_table
    >>> write_table(as_table({"id": ["a", "b"], "mean": [0.5, None]}), "-")
    id,mean
    a,0.5
    b,
    """
    chosen = format or output_format(path)
    data = _encode(table, chosen)
    if str(path) == "-":
        _write_to_standard_output(data, chosen)
        return
    try:
        write_atomically(path, gzip.compress(data) if Path(path).suffix.lower() == ".gz" else data)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error


def output_format(path: str | Path) -> str:
    """Return the format that the suffix of an output file names: CSV without a suffix, an error for an unknown one.

    >>> output_format("p.jsonl.gz"), output_format("predictions")
    ('jsonl', 'csv')
    """
    suffix = _suffix(path, (".gz",))
    if str(path) == "-" or not suffix or suffix[1:].isdecimal():  # "p.2024" has no suffix but a year
        return "csv"
    if suffix not in SUFFIXES:
        known = ", ".join(dict.fromkeys(SUFFIXES))
        raise TableError(f"{path}: tables cannot be written as {suffix!r}; use one of {known}, also followed by .gz")
    return SUFFIXES[suffix]


def _suffix(path: str | Path, compressed: tuple[str, ...] = COMPRESSED_SUFFIXES) -> str:
    """Return the last suffix of a file that does not name a compression, in small letters."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in compressed]
    return suffixes[-1] if suffixes else ""


def _recognise(data: bytes) -> str:
    """Recognise the format of a file by its first bytes."""
    if data.startswith(b"PK") and b"xl/worksheets/" in data:
        return "excel"
    for magic, format in ((b"PK", "npz"), (b"PAR1", "parquet"), (b"ARROW1", "feather")):
        if data.startswith(magic):
            return format
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    return "jsonl" if start[:1] in (b"{", b"[") else "csv"


# Writing ----------------------------------------------------------------------------------------------------------


def _encode(table: Table, format: str) -> bytes:
    out, frame = io.BytesIO(), table.frame
    if format in ("csv", "tsv"):
        return frame.to_csv(index=False, sep="\t" if format == "tsv" else ",", lineterminator="\n").encode()
    if format in ("parquet", "feather"):
        import_optional("pyarrow", f"writing {format.capitalize()}")
        getattr(frame.reset_index(drop=True), f"to_{format}")(out)
        return out.getvalue()
    if format == "npz":
        texts = frame.select_dtypes(text_type())
        np.savez(out, **{name: frame[name].to_numpy() if name not in texts else frame[name].fillna("").to_numpy("U")
                         for name in frame})  # fmt: skip
        return out.getvalue()
    cells = frame.astype(object).where(frame.notna(), None)
    if format == "excel":
        _write_excel([table.names, *cells.itertuples(index=False, name=None)], out)
        return out.getvalue()
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in cells.to_dict("records")).encode()


def _write_excel(rows: Iterable[Iterable[object]], out: io.BytesIO) -> None:
    """Write a workbook; text stays text where it begins like a formula."""
    openpyxl = import_optional("openpyxl", "writing Excel files")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    for row in rows:
        cells = [openpyxl.cell.WriteOnlyCell(sheet, UNWRITABLE.sub(_escape, v) if isinstance(v, str) else v)
                 for v in row]  # fmt: skip
        for cell in cells:
            cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type
        sheet.append(cells)
    book.save(out)


def _escape(found: re.Match[str]) -> str:
    return escape_controls(found[0])


def _write_to_standard_output(data: bytes, format: str) -> None:
    if sys.stdout is None:
        raise TableError("standard output is closed: name a file")
    if format not in TEXT_FORMATS:
        sys.stdout.buffer.write(data)
        return
    text = data.decode()
    sys.stdout.write(escape_controls(text) if on_terminal() else text)
