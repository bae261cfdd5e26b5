"""How many rows an Arrow file (Feather) has, and how many bytes they unpack to, read from its headers.

pyarrow unpacks a batch before it tells its size. The headers are FlatBuffers: a table begins with the distance to a
list of the places of its fields. `Footer` lists blocks, a block is a `Message` and a body, and a message holds a
`RecordBatch` with the places of its buffers in the body; a packed buffer begins with its length when unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

DICTIONARY_BATCH = 2  # a message of this kind holds a `RecordBatch` as its second field
MAX_ROUNDS = 1_000_000  # buffers that are read, besides one for each byte: blocks of a hostile file may overlap


def count_rows_and_bytes(data: bytes) -> tuple[int, int]:
    """Rows of an Arrow file, and bytes that its batches take in memory; a struct.error where it is broken."""
    end = len(data) - 10  # the length of the footer and the six letters after it
    footer = _table(data, end - _read(data, "<i", end))
    rows = total = rounds = 0
    for place in (2, 3):  # dictionaries and batches
        for block in _entries(data, _field(data, footer, place), 24):
            offset, header = _read(data, "<q", block), _read(data, "<i", block + 8)
            batch = _batch(data, offset)
            length = _field(data, batch, 0)
            rows += _read(data, "<q", length) if place == 3 and length is not None else 0
            packed = _field(data, batch, 3) is not None
            for buffer in _entries(data, _field(data, batch, 2), 16):
                rounds += 1
                if rounds > MAX_ROUNDS + len(data):
                    raise ValueError("its blocks overlap")
                total += _buffer_bytes(data, offset + header, buffer, packed)
    return rows, total


def _batch(data: bytes, offset: int) -> int:
    """The place of the `RecordBatch` in the message at an offset."""
    message = _table(data, offset + (8 if _read(data, "<I", offset) == 0xFFFFFFFF else 4))
    kind, batch = _field(data, message, 1), _table(data, _field(data, message, 2) or 0)
    is_dictionary = kind is not None and _read(data, "<B", kind) == DICTIONARY_BATCH
    return _table(data, _field(data, batch, 1) or 0) if is_dictionary else batch


def _buffer_bytes(data: bytes, body: int, buffer: int, packed: bool) -> int:
    offset, length = _read(data, "<q", buffer), _read(data, "<q", buffer + 8)
    unpacked = _read(data, "<q", body + offset) if packed and length >= 8 else length
    return max(length if unpacked == -1 else unpacked, 0)  # -1: this one is not packed


def _read(data: bytes, form: str, place: int) -> int:
    if place < 0:
        raise ValueError("a place before the beginning of the file")
    (value,) = struct.unpack_from(form, data, place)
    return int(value)


def _table(data: bytes, place: int) -> int:
    return place + _read(data, "<I", place)


def _field(data: bytes, table: int, number: int) -> int | None:
    """The place of a field of a table, or None where the table leaves it out."""
    fields = table - _read(data, "<i", table)
    if 4 + 2 * number >= _read(data, "<H", fields):
        return None
    offset = _read(data, "<H", fields + 4 + 2 * number)
    return table + offset if offset else None


def _entries(data: bytes, place: int | None, size: int) -> Iterator[int]:
    """The places of the entries, of so many bytes, of a list."""
    if place is not None:
        first = _table(data, place)
        for i in range(_read(data, "<I", first)):
            yield first + 4 + size * i
