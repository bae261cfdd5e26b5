"""Values as the tree of a model file, and the tree as values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._metadata_requests import SIMPLE_METHODS

from relvec.estimators.base import STORED, BaseModel
from relvec.export.model_file.checks import check_fitted, check_record, check_step
from relvec.export.model_file.layout import (
    MAX_KEYS,
    MAX_NESTING,
    ModelFileError,
    check_shape,
    describe_dtype,
    parse_dtype,
)
from relvec.export.model_file.names import PLAIN_TYPES, find_class, find_name

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


class TreeReader:
    """Turns the tree back into values."""

    def __init__(self, arrays: list[np.ndarray], versions: dict[str, str], max_numbers: int) -> None:
        self.arrays, self.max_numbers = arrays, max_numbers
        self.sklearn_version = versions["sklearn"]

    def decode(self, tree: object, depth: int) -> object:
        """Return the value of a tree."""
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

    def _scalar(self, content: int, depth: int) -> object:
        array = self._array(content, depth)
        if array.shape != ():
            raise ModelFileError(f"an array of shape {array.shape} is not one number")
        return array[()]

    def _objects(self, content: dict[str, list], depth: int) -> np.ndarray:
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

    def _dtype(self, content: str | list[list], depth: int) -> np.dtype:
        return np.dtype(object) if content == "|O" else parse_dtype(content)

    def _ufunc(self, content: str, depth: int) -> np.ufunc:
        found = vars(np)[content]
        if not isinstance(found, np.ufunc):
            raise ModelFileError(f"{content!r} is not a function of numpy")
        return found

    def _object(self, content: dict[str, Any], depth: int) -> object:
        cls = find_class(content["class"])
        state = {field: self.decode(part, depth) for field, part in content["state"].items()}
        if is_dataclass(cls):
            record = cls(**state)
            check_record(record)
            return record
        return self._model(cls, state) if issubclass(cls, BaseModel) else self._step(cls, state)

    def _model(self, cls: type[BaseModel], state: dict[str, Any]) -> BaseModel:
        """Return an estimator of relvec: its parameters, and the record of its fit."""
        made = cls(**{name: value for name, value in state.items() if name not in STORED})
        if REQUESTS in state:
            made.__dict__[REQUESTS] = _restore_requests(made, state[REQUESTS])
        if "fitted_" in state:
            columns = {name: state[name] for name in STORED if name in state and name not in ("fitted_", REQUESTS)}
            check_fitted(made, state["fitted_"], columns, self.max_numbers)
            made.restore_fit(state["fitted_"], columns)
        return made

    def _step(self, cls: type[BaseEstimator], state: dict[str, Any]) -> object:
        """Return a step of scikit-learn, or of a table: no attribute may take the place of one that its class has."""
        made: BaseEstimator = object.__new__(cls)
        own = _parameter_names(cls)
        for name in state:
            if not name.isidentifier() or name.startswith("__") or (name not in own and name in dir(cls)):
                raise ModelFileError(f"{cls.__name__} has no attribute {name!r} that a file may set")
        if state.get("memory") is not None:
            raise ModelFileError("a folder to write a cache to is not allowed")
        if REQUESTS in state:
            state[REQUESTS] = _restore_requests(made, state[REQUESTS])
        if isinstance(made, BaseEstimator):
            made.__setstate__({**state, "_sklearn_version": self.sklearn_version})
            made.__dict__.pop("_sklearn_version", None)  # taken out by scikit-learn for its own classes only
            check_step(made)
        else:
            made.__dict__.update(state)
        return made


_DECODERS: dict[str, Callable[..., object]] = {
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
    "object": TreeReader._object,
}


def _restore_requests(part: BaseEstimator, wanted: dict[str, dict[str, Any]]) -> object:
    """Return the requests of a part of a model to scikit-learn's metadata routing."""
    request = part.get_metadata_routing()
    for method, requests in wanted.items():
        for name, alias in requests.items():
            getattr(request, method).add_request(param=name, alias=alias)
    return request


def _parameter_names(cls: type) -> set[str]:
    """Return the names of the parameters of the constructor of a class."""
    return set(inspect.signature(cls).parameters)
