"""Bytes of files and of standard input, within limits that are checked before anything is read or unpacked."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from relvec.app.tables.table import TableError, import_optional

if TYPE_CHECKING:
    from pyarrow import NativeFile

__all__ = ["LIMITS", "Limits", "TableBytes", "open_source"]

CHUNK = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Limits:
    """Bounds on what is read, so that no file fills the memory.

    Attributes
    ----------
    max_bytes : of a file, or of standard input.
    max_columns : of a table.
    min_unpacked_bytes, unpacked_per_byte : a file of B bytes may become
        ``min_unpacked_bytes + unpacked_per_byte * B`` bytes, and `max_bytes` at most; a cell counts as eight.
    """

    max_bytes: int = 2_000_000_000
    max_columns: int = 100_000
    min_unpacked_bytes: int = 100_000_000
    unpacked_per_byte: int = 100


LIMITS = Limits()


@dataclass(frozen=True)
class TableBytes:
    """The bytes of a table, and what they may become.

    Attributes
    ----------
    name : of the file, for messages.
    data : its bytes, unpacked.
    most : bytes that its table may take.
    max_columns : that it may have.
    sheet : the sheet of a workbook to read, or None for the first.
    """

    name: str
    data: bytes
    most: int
    max_columns: int
    sheet: str | None = None

    def check(self, rows: int, columns: int, text: int = 0) -> None:
        """Refuse a table with too many columns, cells or bytes of text."""
        if columns > self.max_columns:
            raise TableError(f"{self.name}: {columns:,} columns, and at most {self.max_columns:,} can be read; check "
                             "the delimiter, and whether rows and columns are exchanged")  # fmt: skip
        if 8 * rows * columns + text > self.most:
            raise TableError(f"{self.name}: {rows:,} rows and {columns:,} columns unpack to more than {self.most:,} "
                             "bytes, the most for a file of this size; take a part of the rows")  # fmt: skip


def open_source(path: str | Path, sheet: str | None = None, limits: Limits = LIMITS) -> TableBytes:
    """Read a file, or ``"-"`` for standard input, and unpack gzip and zstd."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        if str(path) == "-":
            data = _read_bytes(sys.stdin.buffer, name, limits.max_bytes)
        else:
            with open(path, "rb", buffering=0) as file:
                data = _read_bytes(file, name, limits.max_bytes)
    except OSError as error:
        raise TableError(f"{name}: {error.strerror or error}") from error
    most = min(limits.max_bytes, limits.min_unpacked_bytes + limits.unpacked_per_byte * len(data))
    return TableBytes(name, _unpack(data, name, most), most, limits.max_columns, sheet)


def _read_bytes(file: BinaryIO, name: str, most: int) -> bytes:
    """Read a regular file or a pipe; devices are refused, for many never end."""
    too_large = f"{name}: larger than {most:,} bytes, the most that is read; take a part of the rows"
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):  # a buffer in memory
        status = None
    if status is not None:
        device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
        if device and not os.isatty(file.fileno()):
            raise TableError(f"{name}: neither a file nor a pipe; give the name of a table")
        if stat.S_ISREG(status.st_mode) and status.st_size > most:
            raise TableError(too_large)
    found = _read_up_to(file, most)
    if len(found) > most:
        raise TableError(too_large)
    return bytes(found)


def _read_up_to(stream: BinaryIO, most: int) -> bytearray:
    """Read a stream until it ends or gives more than `most` bytes."""
    found = bytearray()
    while len(found) <= most and (more := stream.read(CHUNK)):
        found += more
    return found


def _unpack(data: bytes, name: str, most: int) -> bytes:
    """Unpack gzip and zstd, up to so many bytes."""
    kind = "gzip" if data[:2] == b"\x1f\x8b" else "zstd" if data[:4] == b"\x28\xb5\x2f\xfd" else ""
    if not kind:
        return data
    stream: BinaryIO | NativeFile = gzip.GzipFile(fileobj=io.BytesIO(data))
    if kind == "zstd":
        arrow = import_optional("pyarrow", "a file compressed with zstd")
        stream = arrow.CompressedInputStream(arrow.BufferReader(data), "zstd")
    try:
        found = _read_up_to(stream, most)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{name}: the {kind} data are damaged ({error})") from error
    if len(found) > most:
        raise TableError(f"{name}: {len(data):,} bytes of {kind} unpack to more than {most:,}: unpack the file "
                         "yourself")  # fmt: skip
    return bytes(found)
