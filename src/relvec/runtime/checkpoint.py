r"""Checkpoints: the state of a running fit, kept in a file, from which the same fit resumes after a crash.

`RelevanceVectorRegressor(checkpoint="folder")` writes one file for each fit there, every few seconds, named after a
fingerprint of its data and parameters. A fit of the same data and parameters finds the file of one that was killed and
resumes from it. The file holds the numbers of a model: atoms, precisions, noise, learned parameters and history.

A fit is a sequence of *cells*, each one search or one climb of the widths, in the same order in every run: a finished
cell is read, the unfinished one resumes, and the code above them does not notice.

    line       b"relvec-checkpoint 1\n"
    line       SHA-256 of the rest, in hexadecimal digits
    JSON       {"fit": fingerprint, "cells": {name: record}}, arrays as {"array": [dtype, shape, base64]}
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from relvec._version import __version__
from relvec.runtime.files import write_atomically
from relvec.runtime.fingerprint import fingerprint

__all__ = ["CheckpointError"]

SECONDS_BETWEEN_WRITES = 5.0  # a write of some hundred kilobytes takes milliseconds: below a thousandth of the time
_MAGIC = b"relvec-checkpoint 1\n"
_DTYPES = ("<f8", "<i8")

logger = logging.getLogger("relvec")


class CheckpointError(ValueError):
    """A checkpoint file that is damaged, or that belongs to another fit."""


class _File:
    """The checkpoint file of one fit: the records of its cells."""

    def __init__(self, path: Path, fit: str) -> None:
        self.path, self.fit = path, fit
        self.unfinished = False
        self._lock = threading.Lock()  # outputs of a model may be fitted in several threads
        self._opened: Counter[str] = Counter()
        self._written = time.monotonic()
        self._writable = True
        self.cells = self._read()

    def name_next(self, section: str) -> str:
        with self._lock:
            self._opened[section] += 1
            return f"{section}/{self._opened[section]}"

    def store(self, name: str, record: dict) -> None:
        with self._lock:
            self.cells[name] = record
            if time.monotonic() - self._written >= SECONDS_BETWEEN_WRITES:
                self._write()

    def write(self) -> None:
        with self._lock:
            self._write()

    def remove(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:  # the fit is done: a folder that became read-only does not undo it
            warnings.warn(f"the checkpoint {str(self.path)!r} could not be removed: {error}", stacklevel=2)

    def _write(self) -> None:
        if not self._writable or not self.cells:
            return
        text = json.dumps({"fit": self.fit, "cells": self.cells}, default=_encode_array).encode("ascii")
        try:
            write_atomically(self.path, _MAGIC + hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        except OSError as error:  # a full disk is no reason to lose a fit of minutes
            self._writable = False
            warnings.warn(f"the fit goes on without its checkpoint {str(self.path)!r}: {error}", stacklevel=2)
        self._written = time.monotonic()

    def _read(self) -> dict[str, dict]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            cells = _parse(data, self.fit)
        except CheckpointError as error:
            raise CheckpointError(
                f"the checkpoint {str(self.path)!r} cannot be used: {error}. Remove it to fit from the beginning"
            ) from error.__cause__
        logger.info("resuming the fit from %s", self.path)
        return cells


def _parse(data: bytes, fit: str) -> dict[str, dict]:
    """Cells in the bytes of the checkpoint file of a fit."""
    if not data.startswith(_MAGIC):
        raise CheckpointError("it is not a checkpoint file, or another version of relvec wrote it")
    checksum, _, text = data[len(_MAGIC) :].partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != checksum:
        raise CheckpointError("it is damaged or cut off: its checksum is wrong")
    try:
        found = json.loads(text, object_hook=_decode_array)
        cells, own = found["cells"], found["fit"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"it has invalid content: {error}") from error
    if own != fit:
        raise CheckpointError("it belongs to a fit of other data or parameters")
    if not isinstance(cells, dict) or not all(isinstance(record, dict) for record in cells.values()):
        raise CheckpointError("it has invalid content: the cells are not records")
    return cells


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        plain = np.ascontiguousarray(value, dtype="<i8" if value.dtype.kind in "iu" else "<f8")
        return {"array": [plain.dtype.str, list(plain.shape), base64.b64encode(plain.tobytes()).decode("ascii")]}
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__}")


def _decode_array(found: dict) -> Any:
    if set(found) != {"array"}:
        return found
    dtype, shape, text = found["array"]
    if dtype not in _DTYPES:
        raise ValueError(f"an array of {dtype!r}")
    flat = np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype)
    return flat.reshape(shape).astype(flat.dtype.newbyteorder("="))


# ---------------------------------------------------------------- the checkpoint of the fit that is running


class _Session:
    """A fit with a checkpoint folder; its file is opened once its data and parameters are known."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.file: _File | None = None


# the session and the section of the fit that runs in this context
_current: ContextVar[tuple[_Session, str] | None] = ContextVar("checkpoint", default=None)


@contextmanager
def session(folder: Any) -> Iterator[None]:
    """Keep the state of the fit within in a folder, from `identify` on; the file is removed when the fit completes.

    An interruption, an error, a time limit or a killed process leaves it. None keeps nothing.
    """
    if folder is None:
        yield
        return
    if not isinstance(folder, str | os.PathLike):
        raise ValueError(f"checkpoint must be None or the path of a folder, got {folder!r}")
    here = _Session(folder)
    token = _current.set((here, "fit"))
    try:
        yield
    except BaseException:
        if here.file is not None:
            here.file.write()
        raise
    finally:
        _current.reset(token)
    if here.file is not None and here.file.unfinished:
        here.file.write()
    elif here.file is not None:
        here.file.remove()


def identify(*values: Any) -> None:
    """Name the file of the open session, if any, after all that decides how the fit goes, and read it."""
    if (found := _current.get()) is not None:
        here, fit = found[0], fingerprint(__version__, *values)
        here.folder.mkdir(parents=True, exist_ok=True)
        here.file = _File(here.folder / f"{fit[:32]}.checkpoint", fit)


@contextmanager
def section(name: str) -> Iterator[None]:
    """A part of a fit that may run in parallel with others: its cells are numbered by themselves."""
    found = _current.get()
    token = _current.set(None if found is None else (found[0], name))
    try:
        yield
    finally:
        _current.reset(token)


class Cell:
    """The record of one search in the checkpoint file; without a file nothing is kept.

    Attributes
    ----------
    saved : record that an earlier process wrote, or None.
    """

    def __init__(self, file: _File | None = None, name: str = "") -> None:
        self._file, self._name, self._stored = file, name, time.monotonic()
        self.saved: dict | None = None if file is None else file.cells.get(name)

    def store(self, make_record: Callable[..., dict], *arguments: Any, now: bool = False) -> None:
        """Store ``make_record(*arguments)`` if the last record is some seconds old, or ``now``."""
        if self._file is not None and (now or time.monotonic() - self._stored >= SECONDS_BETWEEN_WRITES):
            self._file.store(self._name, make_record(*arguments))
            self._stored = time.monotonic()

    def mark_unfinished(self) -> None:
        """Say that the search was cut short: the file stays, so that another fit may resume it."""
        if self._file is not None:
            self._file.unfinished = True


@contextmanager
def open_cell() -> Iterator[Cell]:
    """The next cell of the current section; searches inside it have no cells of their own."""
    found = _current.get()
    if found is None or found[0].file is None:
        yield Cell()
        return
    file = found[0].file
    token = _current.set(None)
    try:
        yield Cell(file, file.name_next(found[1]))
    finally:
        _current.reset(token)


@contextmanager
def refuse_bad_record() -> Iterator[None]:
    """Turn errors met while a record is read into a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"the checkpoint of this fit has invalid content ({error!r}): remove its file to fit from the beginning"
        ) from error


def recall(name: str, compute: Callable[[], dict[str, Any]], fields: Sequence[str]) -> dict[str, Any]:
    """Numbers that are computed under a name, from the checkpoint where an earlier process left them there."""
    with section(name), open_cell() as cell:
        if cell.saved is not None:
            with refuse_bad_record():
                return {field: cell.saved[field] for field in fields}
        found = compute()
        cell.store(dict, found, now=True)
        return found


def check_model(active: np.ndarray, alpha: np.ndarray, n_atoms: int) -> None:
    """Raise ValueError unless active (k,) are different numbers below n_atoms with precisions alpha (k,)."""
    if not (active.ndim == 1 and active.shape == alpha.shape and active.dtype.kind == "i"):
        raise ValueError(f"atoms of shape {active.shape} with precisions of shape {alpha.shape}")
    inside = active.size == 0 or (active.min() >= 0 and active.max() < n_atoms)
    if not inside or len(np.unique(active)) < len(active):
        raise ValueError(f"atoms that are not different numbers from 0 to {n_atoms - 1}")
    if not (np.all(alpha > 0.0) and np.all(np.isfinite(alpha))):
        raise ValueError("precisions that are not positive numbers")
