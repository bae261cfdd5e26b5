"""Fingerprints of parameters and data, by which a checkpoint knows the fit it belongs to."""

from __future__ import annotations

import functools
import hashlib
import types
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def fingerprint(*values: Any) -> str:
    """SHA-256 of the types and contents of values, in hexadecimal digits: the same in every process.

    >>> fingerprint(1, np.arange(3)) == fingerprint(1, np.array([0, 1, 2]))
    True
    >>> fingerprint(1.0) == fingerprint(1)
    False
    """
    digest = hashlib.sha256()
    _update(digest, values, frozenset())
    return digest.hexdigest()


def _update(digest: Any, value: Any, above: frozenset[int]) -> None:
    """Add the type and the content of a value to the digest; `above` holds the values it is part of."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    digest.update(f"({name}".encode())
    if isinstance(value, bool | int | float | complex | str | bytes | type(None) | np.generic | np.dtype):
        digest.update(repr(value).encode())
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data if value.size else b"")
    elif id(value) not in above:
        for part in _parts(value):
            _update(digest, part, above | {id(value)})
    digest.update(b")")


def _parts(value: Any) -> list:
    """The values that a compound value is made of."""
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
