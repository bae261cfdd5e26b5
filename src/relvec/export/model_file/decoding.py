"""The tree of a model file as values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from relvec.export.model_file.checks import check_record
from relvec.export.model_file.classes import PLAIN_TYPES, find_class
from relvec.export.model_file.encoding import REQUESTS
from relvec.export.model_file.layout import MAX_KEYS, MAX_NESTING, ModelFileError, check_shape, parse_dtype


class TreeReader:
    """Turns the tree back into values; `estimators` are those it has made."""

    def __init__(self, arrays: list[np.ndarray], versions: dict[str, str]) -> None:
        self.arrays = arrays
        self.estimators: list[BaseEstimator] = []
        self.sklearn_version = versions["sklearn"]

    def decode(self, tree: Any, depth: int) -> Any:
        """The value of a tree."""
        if depth > 2 * MAX_NESTING:
            raise ModelFileError("it is nested too deep")
        if isinstance(tree, list):
            return [self.decode(item, depth + 1) for item in tree]
        if not isinstance(tree, dict):
            return tree
        ((kind, content),) = tree.items()
        return _DECODERS[kind](self, content, depth + 1)

    def _float(self, content: str, depth: int) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]

    def _array(self, content: int, depth: int) -> np.ndarray:
        if type(content) is not int or content < 0:
            raise ModelFileError(f"{content!r} is not the number of an array")
        return self.arrays[content]

    def _scalar(self, content: int, depth: int) -> Any:
        array = self._array(content, depth)
        if array.shape != ():
            raise ModelFileError(f"an array of shape {array.shape} is not one number")
        return array[()]

    def _objects(self, content: dict[str, Any], depth: int) -> np.ndarray:
        shape, items = check_shape(content["shape"]), content["items"]
        if math.prod(shape) != len(items):
            raise ModelFileError(f"{len(items)} objects do not make an array of shape {shape}")
        array = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):
            array[i] = self.decode(item, depth)
        return array.reshape(shape)

    def _tuple(self, content: list, depth: int) -> tuple:
        return tuple([self.decode(item, depth) for item in content])

    def _dict(self, content: list, depth: int) -> dict:
        if len(content) > MAX_KEYS and not all(isinstance(key, str) for key, _ in content):
            raise ModelFileError(f"a dictionary of {len(content)} keys that are not words")
        return {self.decode(key, depth): self.decode(value, depth) for key, value in content}

    def _slice(self, content: list, depth: int) -> slice:
        start, stop, step = (self.decode(part, depth) for part in content)
        return slice(start, stop, step)

    def _type(self, content: str, depth: int) -> type:
        found = PLAIN_TYPES.get(content) or vars(np)[content]
        if not isinstance(found, type) or not (found in PLAIN_TYPES.values() or issubclass(found, np.generic)):
            raise ModelFileError(f"{content!r} is not a type of numbers")
        return found

    def _dtype(self, content: Any, depth: int) -> np.dtype:
        return np.dtype(object) if content == "|O" else parse_dtype(content)

    def _ufunc(self, content: str, depth: int) -> np.ufunc:
        found = vars(np)[content]
        if not isinstance(found, np.ufunc):
            raise ModelFileError(f"{content!r} is not a function of numpy")
        return found

    def _random(self, content: Any, depth: int) -> np.random.RandomState:
        random = np.random.RandomState(0)
        random.set_state(self.decode(content, depth))
        return random

    def _object(self, content: dict[str, Any], depth: int) -> Any:
        cls: Any = find_class(content["class"])
        state = {field: self.decode(part, depth) for field, part in content["state"].items()}
        if is_dataclass(cls):
            record = cls(**state)  # type: ignore[operator]
            check_record(record)
            return record
        if state.get("memory") is not None:
            raise ModelFileError("a folder to write a cache to is not allowed")
        made = cls.__new__(cls)
        if REQUESTS in state:
            state[REQUESTS] = _restore_requests(made, state[REQUESTS])
        if isinstance(made, BaseEstimator):
            later = {name: value for name, value in _default_parameters(cls).items() if name not in state}
            made.__setstate__({**state, **later, "_sklearn_version": self.sklearn_version})
            made.__dict__.pop("_sklearn_version", None)  # taken out by scikit-learn for its own classes only
            self.estimators.append(made)
        else:
            made.__dict__.update(state)
        return made


_DECODERS: dict[str, Callable[..., Any]] = {
    "array": TreeReader._array,
    "scalar": TreeReader._scalar,
    "objects": TreeReader._objects,
    "float": TreeReader._float,
    "tuple": TreeReader._tuple,
    "dict": TreeReader._dict,
    "slice": TreeReader._slice,
    "type": TreeReader._type,
    "dtype": TreeReader._dtype,
    "ufunc": TreeReader._ufunc,
    "random_state": TreeReader._random,
    "object": TreeReader._object,
}


def _restore_requests(part: Any, wanted: dict[str, dict[str, Any]]) -> Any:
    """The requests of a part of a model to scikit-learn's metadata routing."""
    request = part.get_metadata_routing()
    for method, requests in wanted.items():
        for name, alias in requests.items():
            getattr(request, method).add_request(param=name, alias=alias)
    return request


def _default_parameters(cls: type) -> dict[str, Any]:
    """Default values of an estimator's parameters: a file of an older version may not know all of them."""
    signature = inspect.signature(cls)
    return {name: p.default for name, p in signature.parameters.items() if p.default is not p.empty}
