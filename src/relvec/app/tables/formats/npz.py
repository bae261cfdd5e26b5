"""NumPy's ``.npz``: an archive of arrays."""

from __future__ import annotations

import io
import math
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from relvec.app.tables.delimited import unique_names
from relvec.app.tables.table import LIMITS, Table, TableError, column_array

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
KINDS = "biufmMSU"  # of dtypes: numbers, booleans, dates, durations and text


def read_npz(data: bytes, source: str, size: int) -> Table:
    """Read numpy's ``.npz``: one array a column, or arrays (n, d) whose columns are named by ``feature_names``."""
    try:
        arrays = dict(_members(data, source, size))
    except TableError:
        raise
    except Exception as error:  # of zipfile, of three decompressors and of the parser of Python's literals
        raise TableError(f"{source}: not a readable .npz file: {error}") from error
    labels = arrays.pop("feature_names", None)
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise TableError(f"{source}: the arrays differ in length: {lengths}")
    given: list[str] = []
    columns: list[np.ndarray] = []
    for key, array in arrays.items():
        if array.ndim == 1 or array.shape[1] == 1:
            given.append(key)
            columns.append(column_array(array.ravel(), key))
            continue
        named = labels is not None and labels.shape == array.shape[1:]
        names = [str(label) for label in labels] if named else [f"{key}{i + 1}" for i in range(array.shape[1])]  # type: ignore[union-attr]
        given += names
        columns += [column_array(array[:, i], name) for i, name in enumerate(names)]
    names, notes = unique_names(given, source)
    return Table(dict(zip(names, columns, strict=True)), source, None, notes)


def _members(data: bytes, source: str, size: int) -> Iterator[tuple[str, np.ndarray]]:
    """Names and arrays of an ``.npz`` file. A header that promises more than there is is refused before allocating."""
    most = left = LIMITS.max_unpacked_bytes(size)
    n_columns = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as file:
                shape, fortran, dtype = _read_header(file, member.filename)
                length = math.prod(shape) * dtype.itemsize
                if length > member.file_size:
                    raise ValueError(f"{member.filename} promises {length} bytes and holds {member.file_size}")
                left -= length
                if left < 0:
                    raise ValueError(f"its arrays unpack to more than {most} bytes")
                name = member.filename[:-4]
                if name != "feature_names":
                    n_columns += _count_columns(name, shape, dtype, size, source)
                    LIMITS.check_columns(n_columns, source)
                flat = np.frombuffer(file.read(length), dtype=dtype)
                letters = flat.view(np.dtype("u4").newbyteorder(dtype.byteorder)) if dtype.kind == "U" else flat[:0]
                if letters.size and letters.max() > sys.maxunicode:
                    raise ValueError(f"{member.filename} holds numbers that are no letters")
                yield name, flat.reshape(shape, order="F" if fortran else "C")


def _read_header(file: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and dtype of an array in an archive."""
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"{name} has the unknown version {version}")
    shape, fortran, dtype = HEADERS[version](file)
    if any(length < 0 for length in shape):
        raise ValueError(f"{name} has the impossible shape {shape}")
    if dtype.kind not in KINDS:
        raise ValueError(f"{name} holds {dtype}; expected numbers, booleans, dates or text")
    return shape, fortran, dtype


def _count_columns(name: str, shape: tuple[int, ...], dtype: np.dtype, size: int, source: str) -> int:
    """How many columns an array makes; one that makes too many cells for a file of this size is refused."""
    if len(shape) not in (1, 2):
        raise TableError(f"{source}: the array {name!r} has shape {shape}; expected (n,) or (n, d)")
    n_columns = 1 if len(shape) == 1 else shape[1]
    LIMITS.check_columns(n_columns, source)
    check = LIMITS.check_cells if dtype.kind in "SU" else LIMITS.check_numbers
    check(shape[0], n_columns, size, source)
    return n_columns


def write_npz(table: Table) -> bytes:
    """Encode a table as ``.npz``, one array a column."""
    arrays: dict[str, Any] = {
        name: np.array(["" if cell is None else cell for cell in column.tolist()]) if column.dtype == object else column
        for name, column in table.columns.items()
    }
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()
