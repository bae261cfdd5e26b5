r"""Fits that outlive their process: what a search needs to go on, kept in a file while it runs.

`RelevanceVectorRegressor(checkpoint="folder")` writes there, every few seconds, one file for each fit, named after a
fingerprint of its data and parameters. A fit of the same data and parameters finds the file of one that was killed and
goes on from it. What is kept are the numbers of a model: atoms, precisions, noise, learned parameters, the way there.

A fit is a sequence of *cells*, each one search or one climb of the widths, that come in the same order in every run: a
cell that is finished is read, the one that was open goes on, and nothing above them needs to know.

    line       b"relvec-checkpoint 1\n"
    line       SHA-256 of all that follows, in hexadecimal digits
    JSON       {"fit": fingerprint, "cells": {name: record}}, arrays as {"array": [dtype, shape, base64]}
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import logging
import os
import secrets
import threading
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relvec._version import __version__

__all__ = ["CheckpointError"]

EVERY = 5.0  # seconds between two writes of a cell
_MAGIC = b"relvec-checkpoint 1\n"
_DTYPES = ("<f8", "<i8")

logger = logging.getLogger("relvec")


class CheckpointError(ValueError):
    """A file of a fit that is damaged, or that was written for another fit."""


def write_in_place(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file beside its place and move it there when complete, so that a crash leaves the old one."""
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".relvec-{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            os.chmod(temporary, place.stat().st_mode & 0o777)
        os.replace(temporary, place)
    except BaseException:
        os.unlink(temporary)
        raise


class _File:
    """The file of one fit: the records of its cells, and when they were last written."""

    def __init__(self, path: Path, fit: str) -> None:
        self.path, self.fit = path, fit
        self.unfinished = False
        self._lock = threading.Lock()  # outputs of a model may be fitted in several threads
        self._opened: Counter[str] = Counter()
        self._written = time.monotonic()
        self._works = True
        self.cells = self._read()

    def name_of_next(self, part: str) -> str:
        with self._lock:
            self._opened[part] += 1
            return f"{part}/{self._opened[part]}"

    def keep(self, name: str, record: dict) -> None:
        with self._lock:
            self.cells[name] = record
            if time.monotonic() - self._written >= EVERY:
                self._write()

    def write(self) -> None:
        with self._lock:
            self._write()

    def _write(self) -> None:
        if not self._works or not self.cells:
            return
        text = json.dumps({"fit": self.fit, "cells": self.cells}, default=_encoded).encode("ascii")
        try:
            write_in_place(self.path, _MAGIC + hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        except OSError as error:  # a full disk is no reason to lose a fit of minutes
            self._works = False
            warnings.warn(f"the fit goes on without its checkpoint {str(self.path)!r}: {error}", stacklevel=2)
        self._written = time.monotonic()

    def _read(self) -> dict[str, dict]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            cells = _cells_of(data, self.fit)
        except CheckpointError as error:
            raise CheckpointError(
                f"the checkpoint {str(self.path)!r} cannot be used: {error}. Remove it to fit from the beginning"
            ) from error.__cause__
        logger.info("the fit goes on from %s", self.path)
        return cells


def _cells_of(data: bytes, fit: str) -> dict[str, dict]:
    """Records in the bytes of a file written for a fit."""
    if not data.startswith(_MAGIC):
        raise CheckpointError("it does not begin with the mark of one, or comes from another version of relvec")
    seal, _, text = data[len(_MAGIC) :].partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != seal:
        raise CheckpointError("it is damaged or cut off: its checksum is wrong")
    try:
        found = json.loads(text, object_hook=_decoded)
        cells, own = found["cells"], found["fit"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"it is not what a fit writes: {error}") from error
    if own != fit:
        raise CheckpointError("it belongs to a fit of other data or parameters")
    if not isinstance(cells, dict) or not all(isinstance(record, dict) for record in cells.values()):
        raise CheckpointError("it is not what a fit writes")
    return cells


def _encoded(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        plain = np.ascontiguousarray(value, dtype="<i8" if value.dtype.kind in "iu" else "<f8")
        return {"array": [plain.dtype.str, list(plain.shape), base64.b64encode(plain.tobytes()).decode("ascii")]}
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__}")


def _decoded(found: dict) -> Any:
    if set(found) != {"array"}:
        return found
    dtype, shape, text = found["array"]
    if dtype not in _DTYPES:
        raise ValueError(f"an array of {dtype!r}")
    flat = np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype)
    return flat.reshape(shape).astype(flat.dtype.newbyteorder("="))


# ---------------------------------------------------------------- where a fit keeps its state


class _Session:
    """A fit that may keep its state in a folder, once it is known what it fits."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.file: _File | None = None


_open: ContextVar[tuple[_Session, str] | None] = ContextVar("checkpoint", default=None)


@contextmanager
def session(folder: Any) -> Iterator[None]:
    """A fit that keeps its state in a folder, from `identify` on; the file goes when the fit has ended by itself.

    An interruption, an error, a time limit or a killed process leaves it. None keeps nothing.
    """
    if folder is None:
        yield
        return
    if not isinstance(folder, str | os.PathLike):
        raise ValueError(f"checkpoint must be None or the path of a folder, got {folder!r}")
    here = _Session(folder)
    token = _open.set((here, "fit"))
    try:
        yield
    except BaseException:
        if here.file is not None:
            here.file.write()
        raise
    finally:
        _open.reset(token)
    if here.file is not None and here.file.unfinished:
        here.file.write()
    elif here.file is not None:
        here.file.path.unlink(missing_ok=True)


def identify(*values: Any) -> None:
    """Tell the open session, if there is one, all that decides how the fit goes: what it kept earlier is read."""
    if (found := _open.get()) is not None:
        here, fit = found[0], fingerprint(__version__, *values)
        here.folder.mkdir(parents=True, exist_ok=True)
        here.file = _File(here.folder / f"{fit[:32]}.checkpoint", fit)


@contextmanager
def part(name: str) -> Iterator[None]:
    """A part of a fit that may run beside others: its cells are counted by themselves."""
    found = _open.get()
    token = _open.set(None if found is None else (found[0], name))
    try:
        yield
    finally:
        _open.reset(token)


class Cell:
    """The place of one search in the file of its fit; nothing is kept where there is no file.

    Attributes
    ----------
    saved : what an earlier process kept of it, or None.
    """

    def __init__(self, file: _File | None = None, name: str = "") -> None:
        self._file, self._name, self._kept = file, name, time.monotonic()
        self.saved: dict | None = None if file is None else file.cells.get(name)

    def keep(self, record: Callable[..., dict], *arguments: Any, now: bool = False) -> None:
        """Keep what a function of the arguments gives, if the last time is long enough ago, or ``now``."""
        if self._file is not None and (now or time.monotonic() - self._kept >= EVERY):
            self._file.keep(self._name, record(*arguments))
            self._kept = time.monotonic()

    def leave_open(self) -> None:
        """The search was cut short: the file stays, so that another fit may go on."""
        if self._file is not None:
            self._file.unfinished = True


NOWHERE = Cell()


@contextmanager
def cell() -> Iterator[Cell]:
    """The next cell of the open part of a fit; searches within it keep nothing of their own."""
    found = _open.get()
    if found is None or found[0].file is None:
        yield NOWHERE
        return
    file = found[0].file
    token = _open.set(None)
    try:
        yield Cell(file, file.name_of_next(found[1]))
    finally:
        _open.reset(token)


@contextmanager
def checked() -> Iterator[None]:
    """Whatever fails within while a record is read is the fault of the file."""
    try:
        yield
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"the checkpoint of this fit holds what no fit has written ({error!r}): remove its file to fit from the "
            "beginning"
        ) from error


def check_model(active: np.ndarray, alpha: np.ndarray, n_atoms: int) -> None:
    """An error unless active (k,) are different numbers below n_atoms with precisions alpha (k,)."""
    if not (active.ndim == 1 and active.shape == alpha.shape and active.dtype.kind == "i"):
        raise ValueError(f"atoms of shape {active.shape} with precisions of shape {alpha.shape}")
    inside = active.size == 0 or (active.min() >= 0 and active.max() < n_atoms)
    if not inside or len(np.unique(active)) < len(active):
        raise ValueError(f"atoms that are not different numbers from 0 to {n_atoms - 1}")
    if not (np.all(alpha > 0.0) and np.all(np.isfinite(alpha))):
        raise ValueError("precisions that are not positive numbers")


# ---------------------------------------------------------------- what a fit is


def fingerprint(*values: Any) -> str:
    """Hexadecimal digits that are the same in every process for values of the same content.

    >>> fingerprint(1, np.arange(3)) == fingerprint(1, np.array([0, 1, 2]))
    True
    >>> fingerprint(1.0) == fingerprint(1)
    False
    """
    digest = hashlib.sha256()
    _take(digest, values, frozenset())
    return digest.hexdigest()


def _take(digest: Any, value: Any, above: frozenset[int]) -> None:
    """Add the content of a value: its type, and what it is made of."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    digest.update(f"({name}".encode())
    if isinstance(value, bool | int | float | complex | str | bytes | type(None) | np.generic | np.dtype):
        digest.update(repr(value).encode())
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data if value.size else b"")
    elif id(value) not in above:
        for piece in _pieces(value):
            _take(digest, piece, above | {id(value)})
    digest.update(b")")


def _pieces(value: Any) -> list:
    """What a value that is more than a number is made of."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, np.ndarray):
        return [value.shape, value.tolist()]
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [value.__qualname__, value.__code__, value.__defaults__, value.__kwdefaults__, cells]
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_consts, value.co_names]
    if isinstance(value, type | types.BuiltinFunctionType | np.ufunc):
        return [getattr(value, "__module__", ""), value.__name__]
    if isinstance(value, np.random.RandomState):
        return [value.get_state(legacy=True)]
    if isinstance(value, np.random.Generator):
        return [value.bit_generator.state]
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return sorted(vars(value).items()) if hasattr(value, "__dict__") else [repr(value)]
