"""Tables from files and standard input: CSV, TSV, JSON lines, ``.npz``, Parquet, Feather and Excel, also compressed.

Text formats and ``.npz`` need numpy alone; the others need the extra ``data`` (``pip install 'relvec[data]'``). The
columns of a text file are read as text: `relvec.app.tables.kinds` decides what they are.
"""

from __future__ import annotations

import gzip
import importlib
import io
import sys
import zlib
from pathlib import Path
from typing import Any

from relvec.app.tables import binary
from relvec.app.tables.delimited import read_csv, read_jsonl, read_tsv, write_text
from relvec.app.tables.formats.excel import read_excel, write_excel
from relvec.app.tables.formats.npz import read_npz, write_npz
from relvec.app.tables.table import LIMITS, Table, TableError
from relvec.app.tables.text import escape_controls, on_terminal
from relvec.runtime.files import write_atomically

__all__ = ["FORMATS", "output_format", "read_table", "write_table"]

READERS = {
    "csv": read_csv, "tsv": read_tsv, "jsonl": read_jsonl, "npz": read_npz, "parquet": binary.read_parquet,
    "feather": binary.read_feather, "excel": read_excel,
}  # fmt: skip
FORMATS = tuple(READERS)
TEXT_FORMATS = ("csv", "tsv", "jsonl")
SUFFIXES = {
    ".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".npz": "npz", ".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather",
    ".xlsx": "excel",
}  # fmt: skip
COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd")


def read_table(path: str | Path, format: str | None = None) -> Table:
    r"""Read a table.

    Parameters
    ----------
    path : str or Path
        A file, or ``"-"`` for standard input. gzip and zstd are recognised by their content.
    format : {"csv", "tsv", "jsonl", "npz", "parquet", "feather", "excel"}, optional
        By default the suffix of the file decides, or its content where the suffix is unknown.

    Returns
    -------
    table : Table

    Raises
    ------
    TableError
        For a file that holds no table, or one far larger than the file (see `relvec.app.tables.table.TableLimits`).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = file.write_text("day,sold\n2024-01-01,3\n2024-01-02,\n")
    >>> table = read_table(file)
    >>> table["sold"].tolist()
    ['3', None]
    """
    source = "standard input" if str(path) == "-" else str(path)
    if format is not None and format not in FORMATS:
        raise TableError(f"unknown format {format!r}: one of {', '.join(FORMATS)}")
    known = format or SUFFIXES.get(_suffix(path))
    try:
        if str(path) != "-" and known == "parquet" and (large := binary.open_parquet(Path(path), source)) is not None:
            return large
        data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    except OSError as error:
        raise TableError(f"{source}: {error.strerror or error}") from error
    size, data = len(data), _decompress(data, source)
    if not data.strip():
        raise TableError(f"{source}: the file is empty; expected a table with a header and rows")
    table = READERS[known or _recognise(data)](data, source, size)
    if not table.columns:
        raise TableError(f"{source}: no columns found")
    if len(table) == 0:
        raise TableError(f"{source}: the table has a header and no rows")
    return table


def write_table(table: Table, path: str | Path, format: str | None = None) -> None:
    """Write a table; `format`, or the suffix of the file, decides how. ``"-"`` is standard output.

    Examples
    --------
    >>> import numpy as np
    >>> write_table(Table({"id": np.array(["a", "b"], dtype=object), "mean": np.array([0.5, np.nan])}), "-")
    id,mean
    a,0.5
    b,
    """
    chosen = format or output_format(path)
    if chosen in TEXT_FORMATS:
        data = write_text(table, chosen)
    else:
        writers = {"npz": write_npz, "excel": write_excel}
        data = writers[chosen](table) if chosen in writers else binary.write_arrow(table, chosen)
    if str(path) == "-":
        _write_to_standard_output(data, chosen)
        return
    try:
        write_atomically(path, gzip.compress(data) if Path(path).suffix.lower() == ".gz" else data)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error


def output_format(path: str | Path) -> str:
    """The format that the suffix of an output file names: CSV without a suffix, an error for an unknown one.

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
    """The last suffix of a file that does not name a compression, in small letters."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in compressed]
    return suffixes[-1] if suffixes else ""


def _write_to_standard_output(data: bytes, format: str) -> None:
    if sys.stdout is None:
        raise TableError("standard output is closed: name a file")
    if format not in TEXT_FORMATS:
        sys.stdout.buffer.write(data)
        return
    text = data.decode()
    sys.stdout.write(escape_controls(text) if on_terminal() else text)


def _recognise(data: bytes) -> str:
    """The format of a file, by its first bytes."""
    if data.startswith(b"PK") and b"xl/worksheets/" in data:
        return "excel"
    for magic, format in ((b"PK", "npz"), (b"PAR1", "parquet"), (b"ARROW1", "feather"), (b"FEA1", "feather")):
        if data.startswith(magic):
            return format
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    return "jsonl" if start[:1] in (b"{", b"[") else "csv"


def _decompress(data: bytes, source: str) -> bytes:
    kind = "gzip" if data[:2] == b"\x1f\x8b" else "zstd" if data[:4] == b"\x28\xb5\x2f\xfd" else ""
    if not kind:
        return data
    most, found = LIMITS.max_unpacked_bytes(len(data)), bytearray()
    try:
        stream = _open_compressed(data, kind)
        while len(found) <= most and (more := stream.read(1 << 20)):
            found += more
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{source}: the {kind} data are damaged ({error})") from error
    if len(found) > most:
        raise TableError(f"{source}: {len(data)} bytes of {kind} unpack to more than {most}: unpack the file yourself")
    return bytes(found)


def _open_compressed(data: bytes, kind: str) -> Any:
    if kind == "gzip":
        return gzip.GzipFile(fileobj=io.BytesIO(data))
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd").ZstdFile(io.BytesIO(data))
    arrow = binary.import_modules("a file compressed with zstd", *binary.ARROW)
    return arrow.CompressedInputStream(arrow.BufferReader(data), "zstd")
