"""The bytes of a model file, and checks of them: magic number, checksum, header and arrays."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

import numpy as np

SCHEMA = 2
MAX_HEADER_BYTES = 1 << 25
MAX_HEADER_ITEMS = 1_000_000  # an item of JSON takes more memory than it has letters
MAX_NESTING = 64  # of the tree
MAX_KEYS = 10_000  # of a dictionary with keys that are not words: equal hashes can be made on purpose
MAGIC_START = b"relvec-model "
_MAGIC = b"relvec-model %02d\n"
_CHECKSUM = slice(16, 48)
_LENGTH = slice(48, 56)
_HEADER_START = 56
# types of arrays: numbers, words, dates, raw bytes
_ARRAY_TYPES = re.compile(r"[<>|][bBiufcSUVmM][1-9][0-9]{0,5}(\[[0-9]*[a-zA-Z]+\])?")


class ModelFileError(ValueError):
    """A file that is damaged, or was not written by `relvec.save`.

    Examples
    --------
    >>> import os, tempfile, relvec
    >>> from relvec.export.model_file import ModelFileError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "table.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("x,y")
    ...     try:
    ...         relvec.load(path)
    ...     except ModelFileError as error:
    ...         print(error)
    '...table.csv' was not written by relvec.save: it is not a model file
    """


def join_file(versions: dict[str, str], tree: object, arrays: list[np.ndarray]) -> bytes:
    """Return the bytes of a file."""
    table = [_describe_array(array) for array in arrays]
    header = json.dumps({"versions": versions, "arrays": table, "model": tree}, allow_nan=False).encode("ascii")
    header += b" " * _pad_length(len(header))
    if len(header) > MAX_HEADER_BYTES or _count_items(header) > MAX_HEADER_ITEMS:
        raise ValueError(
            f"the model holds {_count_items(header)} words and numbers outside of arrays ({len(header)} bytes), and a "
            f"file takes {MAX_HEADER_ITEMS} ({MAX_HEADER_BYTES} bytes): use fewer categories or terms, or pickle"
        )
    body = [len(header).to_bytes(8, "little"), header]
    for array in arrays:
        raw = array.tobytes("A")
        body += [raw, bytes(_pad_length(len(raw)))]
    rest = b"".join(body)
    return _MAGIC % SCHEMA + hashlib.sha256(rest).digest() + rest


def split_file(data: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the header and the arrays in the bytes of a file."""
    if not data.startswith(MAGIC_START):
        raise ModelFileError("not a model file of relvec.save")
    if len(data) < _HEADER_START:
        raise ModelFileError(f"the file is cut off: {len(data)} bytes")
    if data[: _CHECKSUM.start] != _MAGIC % SCHEMA:
        schema = data[len(MAGIC_START) : _CHECKSUM.start - 1].decode("ascii", "replace")
        raise ModelFileError(
            f"the file has schema {schema}, and this version of relvec reads {SCHEMA}: fit and save the model again, "
            "or read it with the version that wrote it"
        )
    view = memoryview(data)
    if hashlib.sha256(view[_LENGTH.start :]).digest() != data[_CHECKSUM]:
        raise ModelFileError("the file is damaged or cut off: its checksum is wrong; save or copy it again")
    length = int.from_bytes(data[_LENGTH], "little")
    if length > min(len(data) - _HEADER_START, MAX_HEADER_BYTES) or length % 8:
        raise ModelFileError(f"a header of {length} bytes does not fit into a file of {len(data)}")
    text = data[_HEADER_START : _HEADER_START + length]
    if (items := _count_items(text)) > MAX_HEADER_ITEMS:
        raise ModelFileError(f"a header of {items} items is too long")
    header = json.loads(text.decode("ascii"))
    return header, _read_arrays(header["arrays"], view[_HEADER_START + length :])


def _describe_array(array: np.ndarray) -> dict[str, object]:
    return {
        "dtype": describe_dtype(array.dtype),
        "shape": list(array.shape),
        "fortran": bool(array.flags.f_contiguous and not array.flags.c_contiguous),
        "readonly": not array.flags.writeable,
    }


def describe_dtype(dtype: np.dtype) -> str | list[list]:
    """Return a dtype as in a .npy file: "<f8", or [[name, "<f8"], ...]."""
    return dtype.str if dtype.names is None else [list(field) for field in dtype.descr]


def parse_dtype(descr: str | list[list]) -> np.dtype:
    """Return the dtype that `describe_dtype` describes; arrays of Python objects are refused."""
    fields = [("", descr)] if isinstance(descr, str) else [(str(name), part) for name, part in descr]
    if not all(isinstance(part, str) and _ARRAY_TYPES.fullmatch(part) for _, part in fields):
        raise ModelFileError(f"arrays of {descr!r} are not allowed")
    return np.dtype(descr) if isinstance(descr, str) else np.dtype(fields)


def check_shape(shape: object) -> tuple[int, ...]:
    """Return a shape from a file, refused unless it is one."""
    if not isinstance(shape, list) or len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
        raise ModelFileError(f"{shape!r} is not the shape of an array")
    if math.prod(max(n, 1) for n in shape) > 1 << 48:
        raise ModelFileError(f"an array of shape {shape} is too large")
    return tuple(shape)


def _read_arrays(table: list[dict[str, Any]], data: memoryview) -> list[np.ndarray]:
    """Return the arrays of the table. Their sizes must add up to the length of the data before any of them is made."""
    described, start = [], 0
    for entry in table:
        dtype, shape = parse_dtype(entry["dtype"]), check_shape(entry["shape"])
        length = math.prod(shape) * dtype.itemsize
        described.append((dtype, shape, entry["fortran"], entry["readonly"], slice(start, start + length)))
        start += length + _pad_length(length)
    if start != len(data):
        raise ModelFileError(f"its arrays take {start} bytes, {len(data)} are there")
    arrays = []
    for dtype, shape, fortran, readonly, part in described:
        flat = np.frombuffer(data[part], dtype) if part.stop > part.start else np.empty(math.prod(shape), dtype)
        native = dtype if dtype.isnative else dtype.newbyteorder("=")
        array = flat.reshape(shape, order="F" if fortran else "C").astype(native, order="K")
        array.flags.writeable = not readonly
        arrays.append(array)
    return arrays


def _count_items(header: bytes) -> int:
    """Return an upper bound for the number of values in a text of JSON."""
    return sum(header.count(mark) for mark in (b",", b"[", b"{"))


def _pad_length(length: int) -> int:
    return -length % 8
