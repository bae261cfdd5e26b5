"""Values as the tree of a model file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass

import numpy as np
from sklearn.utils._metadata_requests import SIMPLE_METHODS

from relvec.estimators.base import BaseModel
from relvec.export.model_file.classes import PLAIN_TYPES, find_name
from relvec.export.model_file.layout import MAX_KEYS, MAX_NESTING, describe_dtype

REQUESTS = "_metadata_request"  # attribute of scikit-learn for the requests of set_fit_request and its like


class TreeWriter:
    """Turns values into the tree, and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._indices: dict[int, tuple[int, object]] = {}

    def encode(self, value: object, where: str, depth: int) -> object:
        """Return the tree of a value; ``where`` names it in messages."""
        if depth > MAX_NESTING:
            raise ValueError(f"{where} is nested more than {MAX_NESTING} deep")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        for kinds, encoder in _ENCODERS.items():
            if type(value) in kinds or (kinds in _WITH_SUBCLASSES and isinstance(value, kinds)):
                return encoder(self, value, where, depth + 1)
        if find_name(type(value)) is not None:
            return self._object(value, where, depth + 1)
        if (type(value).__module__.split(".")[0], type(value).__name__) == ("pandas", "Index"):  # names of columns
            return self._array(np.asarray(value, dtype=object), where, depth + 1)
        raise TypeError(_explain_refusal(value, where))

    def _list(self, value: list | tuple, where: str, depth: int) -> object:
        items = [self.encode(item, f"{where}[{i}]", depth) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}

    def _dict(self, value: dict, where: str, depth: int) -> object:
        if len(value) > MAX_KEYS and not all(isinstance(key, str) for key in value):
            raise ValueError(f"{where} has {len(value)} keys that are not all words; at most {MAX_KEYS} can be saved")
        return {
            "dict": [[self.encode(part, f"{where}[{key!r}]", depth) for part in (key, v)] for key, v in value.items()]
        }

    def _array(self, value: np.ndarray, where: str, depth: int) -> object:
        if value.dtype.hasobject:
            items = [self.encode(item, f"{where}[{i}]", depth) for i, item in enumerate(value.ravel().tolist())]
            return {"objects": {"shape": list(value.shape), "items": items}}
        return {"array": self._index_array(value)}

    def _scalar(self, value: np.generic, where: str, depth: int) -> object:
        return {"scalar": self._index_array(np.asarray(value))}

    def _index_array(self, array: np.ndarray) -> int:
        """Index of an array in the table; the same array, met again, keeps its index."""
        if id(array) not in self._indices:
            self._indices[id(array)] = len(self.arrays), array
            self.arrays.append(array)
        return self._indices[id(array)][0]

    def _slice(self, value: slice, where: str, depth: int) -> object:
        return {"slice": [self.encode(part, where, depth) for part in (value.start, value.stop, value.step)]}

    def _type(self, value: type, where: str, depth: int) -> object:
        if PLAIN_TYPES.get(value.__name__) is value or vars(np).get(value.__name__) is value:
            return {"type": value.__name__}
        raise TypeError(_explain_refusal(value, where))

    def _dtype(self, value: np.dtype, where: str, depth: int) -> object:
        return {"dtype": describe_dtype(value)}

    def _ufunc(self, value: np.ufunc, where: str, depth: int) -> object:
        if vars(np).get(value.__name__) is not value:
            raise TypeError(_explain_refusal(value, where))
        return {"ufunc": value.__name__}

    def _object(self, value: object, where: str, depth: int) -> object:
        cls = type(value)
        if is_dataclass(cls):
            state = {f.name: getattr(value, f.name) for f in fields(cls)}
        elif isinstance(value, BaseModel):
            state = value.stored_state()
        else:
            state = {name: part for name, part in vars(value).items() if name != "_skl_callbacks"}
        if REQUESTS in state:
            state[REQUESTS] = {method: getattr(state[REQUESTS], method).requests for method in SIMPLE_METHODS}
        if (folder := state.get("memory")) is not None:
            raise TypeError(f"{where} caches its steps in {folder!r}: set memory=None to save it")
        encoded = {name: self.encode(part, f"{where}.{name}", depth) for name, part in state.items()}
        return {"object": {"class": find_name(cls), "state": encoded}}


_WITH_SUBCLASSES = ((np.generic,), (type,), (np.dtype,), (np.ufunc,))  # other values must be of the very class
_ENCODERS: dict[tuple[type, ...], Callable[..., object]] = {
    (np.generic,): TreeWriter._scalar,
    (np.ndarray, np.memmap): TreeWriter._array,
    (list, tuple): TreeWriter._list,
    (dict,): TreeWriter._dict,
    (slice,): TreeWriter._slice,
    (type,): TreeWriter._type,
    (np.dtype,): TreeWriter._dtype,
    (np.ufunc,): TreeWriter._ufunc,
}


def _explain_refusal(value: object, where: str) -> str:
    content = (
        f"the function {value!r}"
        if callable(value)
        else "a generator of random numbers (give random_state a whole number)"
        if isinstance(value, np.random.RandomState | np.random.Generator)
        else f"an object of {type(value).__module__}.{type(value).__name__}"
    )
    return (
        f"{where} holds {content}, which a file that runs no code cannot hold; use a kernel or basis of relvec, or "
        "save the model with pickle or skops and load it only where you trust the file"
    )
