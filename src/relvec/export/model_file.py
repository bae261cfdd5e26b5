r"""Models in one safe file: parameters as JSON, arrays as raw numbers, nothing that could run.

The layout of a file, schema 1:

    16 bytes   b"relvec-model 01\n", the schema in decimal digits
    32 bytes   SHA-256 of all that follows
     8 bytes   length of the header, little-endian
    header     JSON in ASCII: {"versions": {...}, "arrays": [...], "model": tree}, padded with blanks to 8 bytes
    arrays     one after the other, each padded with zeros to 8 bytes

An entry of "arrays" has "dtype" (as in a .npy file), "shape", "fortran" and "readonly". The tree is plain JSON; what
JSON does not have is an object with one key, the name of its kind:

    {"array": i}                          array number i of the table; {"scalar": i} its single element
    {"objects": {"shape": s, "items": l}} an array of Python objects
    {"float": "nan" | "inf" | "-inf"}, {"tuple": l}, {"dict": [[key, value], ...]}, {"slice": [start, stop, step]}
    {"type": name}, {"dtype": descr}, {"ufunc": name}, {"random_state": state}
    {"object": {"class": name, "state": {field: value}}}

Only classes of a fixed list are ever created: relvec's own, found in `MODULES`, and those of `SKLEARN`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.utils._metadata_requests import SIMPLE_METHODS

from relvec._version import __version__
from relvec.runtime.files import write_atomically

__all__ = ["ModelFileError", "dumps", "load", "loads", "save"]

SCHEMA = 1
# Every dataclass and every estimator defined in these modules can be saved.
MODULES = (
    "relvec.estimators.regressor",
    "relvec.estimators.classifier",
    "relvec.estimators.fitted",
    "relvec.tables.columns",
    "relvec.kernels",
    "relvec.basis",
    "relvec.inference.priors",
    "relvec.inference.likelihoods",
    "relvec.inference.predictive",
    "relvec.inference.process",
    "relvec.gaussian_process",
    "relvec.design",
    "relvec.solvers",
    "relvec.hyperparameters.widths",
    "relvec.hyperparameters.centres",
    "relvec.hyperparameters.grvm",
    "relvec.hyperparameters.grvm_widths",
)
# Where files written before the package had folders say that a class is.
MOVED = {
    "relvec._regressor": "relvec.estimators.regressor",
    "relvec._classifier": "relvec.estimators.classifier",
    "relvec.columns": "relvec.tables.columns",
    "relvec.priors": "relvec.inference.priors",
    "relvec.likelihoods": "relvec.inference.likelihoods",
    "relvec.predictive": "relvec.inference.predictive",
    "relvec.process": "relvec.inference.process",
    "relvec.tune": "relvec.hyperparameters.widths",
    "relvec.centres": "relvec.hyperparameters.centres",
    "relvec.grvm": "relvec.hyperparameters.grvm",
    "relvec.grvm_widths": "relvec.hyperparameters.grvm_widths",
}
# Classes of scikit-learn whose fitted state is numbers, words and lists of them.
SKLEARN = {
    "sklearn.pipeline": ("Pipeline", "FeatureUnion"),
    "sklearn.compose": ("ColumnTransformer", "TransformedTargetRegressor", "make_column_selector"),
    "sklearn.impute": ("SimpleImputer", "MissingIndicator"),
    "sklearn.preprocessing": (
        "Binarizer", "FunctionTransformer", "KBinsDiscretizer", "LabelBinarizer", "LabelEncoder", "MaxAbsScaler",
        "MinMaxScaler", "Normalizer", "OneHotEncoder", "OrdinalEncoder", "PolynomialFeatures", "PowerTransformer",
        "QuantileTransformer", "RobustScaler", "StandardScaler", "TargetEncoder",
    ),
    "sklearn.feature_selection": ("VarianceThreshold",),
    "sklearn.decomposition": ("PCA", "TruncatedSVD"),
}  # fmt: skip

_MAGIC, _STARTS = b"relvec-model %02d\n", b"relvec-model "
_FRONT = 16 + 32 + 8
_LONGEST_HEADER, _MOST_ITEMS = 1 << 25, 1_000_000  # an item of JSON takes more memory than it has letters
_DEEPEST = 64  # nesting of the tree
_MOST_KEYS = 10_000  # of a dictionary with keys that are not words: equal hashes can be made on purpose
_REQUESTS = "_metadata_request"  # where scikit-learn keeps what was set by set_fit_request and its like
_NUMBERS = re.compile(r"[<>|][bBiufcSUVmM][1-9][0-9]{0,5}(\[[0-9]*[a-zA-Z]+\])?")  # what the arrays may hold
_PLAIN_TYPES = {t.__name__: t for t in (bool, int, float, str, object)}


class ModelFileError(ValueError):
    """A file that is damaged, or was not written by `relvec.save`."""


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to one file that can be loaded without running any code.

    The file is written beside its place and moved there when complete, so that a crash leaves the old one.

    Parameters
    ----------
    model : estimator
        A regressor or classifier of relvec, fitted or not, or a scikit-learn Pipeline, ColumnTransformer or
        TransformedTargetRegressor around one, with scalers, encoders and imputers. Kernels and basis functions of
        your own, and other classes, are refused: use pickle or skops for those.
    path : path of the file

    Examples
    --------
    >>> import os, tempfile, relvec
    >>> model = relvec.RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     relvec.save(model, os.path.join(folder, "model.relvec"))
    ...     again = relvec.load(os.path.join(folder, "model.relvec"))
    >>> bool(again.predict([[4.0]])[0] == model.predict([[4.0]])[0])
    True
    """
    write_atomically(path, dumps(model))


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model written by `relvec.save`; nothing in the file is ever run.

    Parameters
    ----------
    path : path of the file

    Returns
    -------
    model : the estimator; its predictions are those of the saved one to the last bit.

    Raises
    ------
    ModelFileError
        (a ValueError) for a file that is damaged, forged, of a later version, or no model at all.

    Examples
    --------
    >>> import os, tempfile, relvec
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     relvec.save(relvec.RVC(width=2.0), os.path.join(folder, "model.relvec"))
    ...     relvec.load(os.path.join(folder, "model.relvec"))
    RelevanceVectorClassifier(width=2.0)
    """
    with open(path, "rb") as file:
        if not file.read(len(_STARTS)) == _STARTS:  # before a large file of another kind is read
            raise ModelFileError(f"{os.fspath(path)!r} was not written by relvec.save: it does not begin with its mark")
        file.seek(0)
        data = file.read()
    try:
        return loads(data)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)!r}: {error}") from error.__cause__


def dumps(model: Any) -> bytes:
    """The bytes that `save` writes.

    >>> import relvec
    >>> loads(dumps(relvec.RVR(tol=0.5)))
    RelevanceVectorRegressor(tol=0.5)
    """
    if not isinstance(model, BaseEstimator):
        raise TypeError(f"relvec.save takes an estimator, got {type(model).__name__}")
    writer = _Writer()
    tree = writer.encode(model, type(model).__name__, 0)
    versions = {
        "relvec": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "sklearn": sklearn.__version__,
    }
    table = [_described(array) for array in writer.arrays]
    header = json.dumps({"versions": versions, "arrays": table, "model": tree}, allow_nan=False).encode("ascii")
    header += b" " * _padding(len(header))
    if len(header) > _LONGEST_HEADER or _items(header) > _MOST_ITEMS:
        raise ValueError(
            f"the model holds {_items(header)} words and numbers outside of arrays ({len(header)} bytes), and a file "
            f"takes {_MOST_ITEMS} ({_LONGEST_HEADER} bytes): use fewer categories or terms, or pickle"
        )
    body = [len(header).to_bytes(8, "little"), header]
    for array in writer.arrays:
        raw = array.tobytes("A")
        body += [raw, bytes(_padding(len(raw)))]
    rest = b"".join(body)
    return _MAGIC % SCHEMA + hashlib.sha256(rest).digest() + rest


def loads(data: bytes) -> Any:
    """The model in the bytes that `save` writes; a `ModelFileError` for any others.

    >>> loads(b"something else")
    Traceback (most recent call last):
    relvec.export.model_file.ModelFileError: not a file written by relvec.save: it does not begin with its mark
    """
    if not data.startswith(_STARTS):
        raise ModelFileError("not a file written by relvec.save: it does not begin with its mark")
    if len(data) < _FRONT:
        raise ModelFileError(f"the file is cut off: {len(data)} bytes")
    if data[: len(_MAGIC % 0)] != _MAGIC % SCHEMA:
        schema = data[len(_STARTS) : 15].decode("ascii", "replace")
        raise ModelFileError(f"the file has schema {schema}, this version of relvec reads {SCHEMA}: use a newer relvec")
    view = memoryview(data)
    if hashlib.sha256(view[48:]).digest() != data[16:48]:
        raise ModelFileError("the file is damaged or cut off: its checksum is wrong; save or copy it again")
    try:
        length = int.from_bytes(data[48:56], "little")
        if length > min(len(data) - _FRONT, _LONGEST_HEADER) or length % 8:
            raise ModelFileError(f"a header of {length} bytes does not fit into a file of {len(data)}")
        text = data[_FRONT : _FRONT + length]
        if (items := _items(text)) > _MOST_ITEMS:
            raise ModelFileError(f"a header of {items} items is too long")
        header = json.loads(text.decode("ascii"))
        arrays = _arrays(header["arrays"], view[_FRONT + length :])
        model = _Reader(arrays, header["versions"]).decode(header["model"], 0)
    except (ModelFileError, MemoryError, InconsistentVersionWarning):
        raise
    except Exception as error:  # whatever a constructor may say to values that no model has
        raise ModelFileError(f"the file is not a model: {error}") from error
    if not isinstance(model, BaseEstimator):
        raise ModelFileError(f"the file holds no estimator but {type(model).__name__}")
    return model


# ---------------------------------------------------------------- classes that a file may name


@cache
def _classes() -> dict[str, type]:
    """Every class a file may name; a name is that of the module where users find the class, and the class."""
    found: dict[str, type] = {}
    for module in MODULES:
        for cls in vars(import_module(module)).values():
            if isinstance(cls, type) and f"{cls.__module__}.".startswith(f"{module}."):
                if is_dataclass(cls) or issubclass(cls, BaseEstimator):
                    found[f"{module}.{cls.__name__}"] = cls
    for module, names in SKLEARN.items():
        found |= {f"{module}.{name}": getattr(import_module(module), name) for name in names}
    return found


@cache
def _names() -> dict[type, str]:
    return {cls: name for name, cls in _classes().items()}


def _defaults(cls: type) -> dict[str, Any]:
    """Default values of an estimator's parameters: a file of an older version may not know all of them."""
    signature = inspect.signature(cls)
    return {name: p.default for name, p in signature.parameters.items() if p.default is not p.empty}


# ---------------------------------------------------------------- writing


class _Writer:
    """Turns values into the tree, and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._kept: dict[int, tuple[int, Any]] = {}

    def encode(self, value: Any, where: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError(f"{where} is nested more than {_DEEPEST} deep")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        for kinds, encoder in _ENCODERS.items():
            if type(value) in kinds or (kinds in _FAMILIES and isinstance(value, kinds)):
                return encoder(self, value, where, depth + 1)
        if type(value) in _names():
            return self._object(value, where, depth + 1)
        if (type(value).__module__.split(".")[0], type(value).__name__) == ("pandas", "Index"):  # names of columns
            return self._array(np.asarray(value, dtype=object), where, depth + 1)
        raise TypeError(_refusal(value, where))

    def _list(self, value: Any, where: str, depth: int) -> Any:
        items = [self.encode(item, f"{where}[{i}]", depth) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}

    def _dict(self, value: dict, where: str, depth: int) -> Any:
        if len(value) > _MOST_KEYS and not all(isinstance(key, str) for key in value):
            raise ValueError(f"{where} has {len(value)} keys that are not all words; at most {_MOST_KEYS} can be saved")
        return {
            "dict": [[self.encode(part, f"{where}[{key!r}]", depth) for part in (key, v)] for key, v in value.items()]
        }

    def _array(self, value: np.ndarray, where: str, depth: int) -> Any:
        if value.dtype.hasobject:
            items = [self.encode(item, f"{where}[{i}]", depth) for i, item in enumerate(value.ravel().tolist())]
            return {"objects": {"shape": list(value.shape), "items": items}}
        return {"array": self._number(value)}

    def _scalar(self, value: np.generic, where: str, depth: int) -> Any:
        return {"scalar": self._number(np.asarray(value))}

    def _number(self, array: np.ndarray) -> int:
        """Place of an array in the table; the same array, met again, keeps its place."""
        if id(array) not in self._kept:
            self._kept[id(array)] = len(self.arrays), array
            self.arrays.append(array)
        return self._kept[id(array)][0]

    def _slice(self, value: slice, where: str, depth: int) -> Any:
        return {"slice": [self.encode(part, where, depth) for part in (value.start, value.stop, value.step)]}

    def _type(self, value: type, where: str, depth: int) -> Any:
        if _PLAIN_TYPES.get(value.__name__) is value or vars(np).get(value.__name__) is value:
            return {"type": value.__name__}
        raise TypeError(_refusal(value, where))

    def _dtype(self, value: np.dtype, where: str, depth: int) -> Any:
        return {"dtype": _described_dtype(value)}

    def _ufunc(self, value: np.ufunc, where: str, depth: int) -> Any:
        if vars(np).get(value.__name__) is not value:
            raise TypeError(_refusal(value, where))
        return {"ufunc": value.__name__}

    def _random(self, value: np.random.RandomState, where: str, depth: int) -> Any:
        return {"random_state": self.encode(value.get_state(legacy=True), where, depth)}

    def _object(self, value: Any, where: str, depth: int) -> Any:
        cls = type(value)
        if is_dataclass(cls):
            state = {f.name: getattr(value, f.name) for f in fields(cls)}
        else:
            state = {name: part for name, part in vars(value).items() if name != "_skl_callbacks"}
            state |= {"checkpoint": None} if "checkpoint" in state else {}  # a folder of this machine
        if _REQUESTS in state:
            state[_REQUESTS] = {method: getattr(state[_REQUESTS], method).requests for method in SIMPLE_METHODS}
        if getattr(value, "memory", None) is not None:
            raise TypeError(f"{where} caches its steps in {value.memory!r}: set memory=None to save it")
        encoded = {name: self.encode(part, f"{where}.{name}", depth) for name, part in state.items()}
        return {"object": {"class": _names()[cls], "state": encoded}}


_FAMILIES = ((np.generic,), (type,), (np.dtype,), (np.ufunc,))  # any of a kind; a list must be a list and no subclass
_ENCODERS: dict[tuple[type, ...], Callable[..., Any]] = {
    (np.generic,): _Writer._scalar,
    (np.ndarray, np.memmap): _Writer._array,
    (list, tuple): _Writer._list,
    (dict,): _Writer._dict,
    (slice,): _Writer._slice,
    (type,): _Writer._type,
    (np.dtype,): _Writer._dtype,
    (np.ufunc,): _Writer._ufunc,
    (np.random.RandomState,): _Writer._random,
}


def _refusal(value: Any, where: str) -> str:
    what = (
        f"the function {value!r}"
        if callable(value)
        else f"an object of {type(value).__module__}.{type(value).__name__}"
    )
    return (
        f"{where} holds {what}, which a file that runs no code cannot hold; use a kernel or basis of relvec, or save "
        "the model with pickle or skops and load it only where you trust the file"
    )


def _described(array: np.ndarray) -> dict[str, Any]:
    return {
        "dtype": _described_dtype(array.dtype),
        "shape": list(array.shape),
        "fortran": bool(array.flags.f_contiguous and not array.flags.c_contiguous),
        "readonly": not array.flags.writeable,
    }


def _items(header: bytes) -> int:
    """An upper bound for the number of values in a text of JSON."""
    return sum(header.count(mark) for mark in (b",", b"[", b"{"))


def _padding(length: int) -> int:
    return -length % 8


# ---------------------------------------------------------------- reading


def _arrays(table: list[dict[str, Any]], data: memoryview) -> list[np.ndarray]:
    """The arrays of the table. Their sizes must add up to the length of the data before any of them is made."""
    described, places, start = [], [], 0
    for entry in table:
        dtype, shape = _dtype(entry["dtype"]), _shape(entry["shape"])
        length = math.prod(shape) * dtype.itemsize
        described.append((dtype, shape, bool(entry["fortran"]), bool(entry["readonly"])))
        places.append(slice(start, start + length))
        start += length + _padding(length)
    if start != len(data):
        raise ModelFileError(f"its arrays take {start} bytes, {len(data)} are there")
    arrays = []
    for (dtype, shape, fortran, readonly), place in zip(described, places):
        flat = (
            np.frombuffer(data[place], dtype=dtype) if place.stop > place.start else np.empty(math.prod(shape), dtype)
        )
        array = flat.reshape(shape, order="F" if fortran else "C").astype(
            dtype if dtype.isnative else dtype.newbyteorder("="), order="K"
        )
        array.flags.writeable = not readonly
        arrays.append(array)
    return arrays


def _described_dtype(dtype: np.dtype) -> Any:
    """A dtype in words, those of a .npy file: "<f8", or [[name, "<f8"], ...]."""
    descr: Any = np.lib.format.dtype_to_descr(dtype)
    return descr if isinstance(descr, str) else [list(field) for field in descr]


def _dtype(descr: Any) -> np.dtype:
    fields = [("", descr)] if isinstance(descr, str) else [(str(name), part) for name, part in descr]
    if not all(isinstance(part, str) and _NUMBERS.fullmatch(part) for _, part in fields):
        raise ModelFileError(f"arrays of {descr!r} are not allowed")
    return np.dtype(descr) if isinstance(descr, str) else np.dtype(fields)


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
        raise ModelFileError(f"{shape!r} is not the shape of an array")
    if math.prod(max(n, 1) for n in shape) > 1 << 48:
        raise ModelFileError(f"an array of shape {shape} is too large")
    return tuple(shape)


def _requests(estimator: Any, wanted: dict[str, dict[str, Any]]) -> Any:
    """What an estimator asks of scikit-learn's metadata routing."""
    request = estimator._get_metadata_request()
    for method, requests in wanted.items():
        for name, alias in requests.items():
            getattr(request, method).add_request(param=name, alias=alias)
    return request


class _Reader:
    """Turns the tree back into values."""

    def __init__(self, arrays: list[np.ndarray], versions: dict[str, str]) -> None:
        self.arrays = arrays
        self.sklearn_version = versions["sklearn"]

    def decode(self, tree: Any, depth: int) -> Any:
        if depth > 2 * _DEEPEST:
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
        shape, items = _shape(content["shape"]), content["items"]
        if math.prod(shape) != len(items):
            raise ModelFileError(f"{len(items)} objects do not make an array of shape {shape}")
        array = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):
            array[i] = self.decode(item, depth)
        return array.reshape(shape)

    def _tuple(self, content: list, depth: int) -> tuple:
        return tuple([self.decode(item, depth) for item in content])

    def _dict(self, content: list, depth: int) -> dict:
        if len(content) > _MOST_KEYS and not all(isinstance(key, str) for key, _ in content):
            raise ModelFileError(f"a dictionary of {len(content)} keys that are not words")
        return {self.decode(key, depth): self.decode(value, depth) for key, value in content}

    def _slice(self, content: list, depth: int) -> slice:
        start, stop, step = (self.decode(part, depth) for part in content)
        return slice(start, stop, step)

    def _type(self, content: str, depth: int) -> type:
        found = _PLAIN_TYPES.get(content) or vars(np)[content]
        if not isinstance(found, type) or not (found in _PLAIN_TYPES.values() or issubclass(found, np.generic)):
            raise ModelFileError(f"{content!r} is not a type of numbers")
        return found

    def _dtype(self, content: Any, depth: int) -> np.dtype:
        return np.dtype(object) if content == "|O" else _dtype(content)

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
        name = content["class"]
        module, _, own = name.rpartition(".")
        name = f"{MOVED.get(module, module)}.{own}"
        if name not in _classes():
            raise ModelFileError(
                f"it names {name!r}, which is no class of relvec, nor one of scikit-learn that is allowed"
            )
        cls: Any = _classes()[name]
        state = {field: self.decode(part, depth) for field, part in content["state"].items()}
        record = is_dataclass(cls)
        if record:
            return cls(**state)
        if state.get("memory") is not None or state.get("checkpoint") is not None:
            raise ModelFileError("a folder to write to, of a cache or of checkpoints, is not allowed")
        made = cls.__new__(cls)
        if _REQUESTS in state:
            state[_REQUESTS] = _requests(made, state[_REQUESTS])
        if isinstance(made, BaseEstimator):
            later = {name: value for name, value in _defaults(cls).items() if name not in state}
            made.__setstate__({**state, **later, "_sklearn_version": self.sklearn_version})
            made.__dict__.pop("_sklearn_version", None)  # taken out by scikit-learn for its own classes only
        else:
            made.__dict__.update(state)
        return made


_DECODERS: dict[str, Callable[..., Any]] = {
    "array": _Reader._array,
    "scalar": _Reader._scalar,
    "objects": _Reader._objects,
    "float": _Reader._float,
    "tuple": _Reader._tuple,
    "dict": _Reader._dict,
    "slice": _Reader._slice,
    "type": _Reader._type,
    "dtype": _Reader._dtype,
    "ufunc": _Reader._ufunc,
    "random_state": _Reader._random,
    "object": _Reader._object,
}
