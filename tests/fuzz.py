"""Mutated model files, for `tests/guards.py --only models`; the tests load a few hundred.

A load may give an estimator or a ModelFileError. Anything else, a call that could run code, or memory beyond a multiple
of the file's length is a failure.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Callable
from copy import deepcopy

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from relvec import RVC, RVR, GPClassifier, GPRegressor, kernels
from relvec.export.model_file import SCHEMA, ModelFileError, dumps, loads

# What the interpreter reports when a file makes it run, start, open or import something.
FORBIDDEN = tuple("exec compile open os. subprocess. pickle. marshal. ctypes. socket. import shutil.".split())
VALUES = [
    None, True, -1, 0, 2**31, 2**63, 10**30, 1e308, 1e-320, "", "x" * 10000, "\\x00", "__class__", "nan", [], {}, [[]],
    {"float": "nan"}, {"array": 0}, {"array": 10**9}, {"array": -1}, {"scalar": 0}, {"type": "memmap"},
    {"type": "load"}, {"ufunc": "save"}, {"ufunc": "exp"}, {"dtype": "|O"}, {"dtype": "<f8"},
    {"slice": [0, 10**12, 1]}, {"tuple": []},
    {"dict": [[{"tuple": [1]}, 2]]}, {"objects": {"shape": [10**9], "items": []}},
    {"objects": {"shape": [0, 10**18], "items": []}}, {"random_state": {"tuple": ["MT19937", {"array": 0}, 0, 0, 0.0]}},
    {"object": {"class": "os.system", "state": {"command": "touch owned"}}},
    {"object": {"class": "relvec.kernels.FromCallable", "state": {"function": {"ufunc": "add"}}}},
    {"object": {"class": "relvec.basis.Polynomial", "state": {"degree": 10**9, "n_features": 10**9}}},
    {"object": {"class": "relvec.likelihoods.Categorical", "state": {"n_outputs": 10**12}}},
    {"object": {"class": "sklearn.pipeline.Pipeline", "state": {"steps": [], "memory": "/tmp"}}},
    {"__reduce__": "os.system"},
]  # fmt: skip
# Text that is a picture with a script where a page shows it unescaped, and names whose values a notebook reads.
PAYLOAD = '"><img src=x onerror="document.title=`forged`">'
SHOWN = [
    PAYLOAD, "_doc_link_template", "__doc_link_template", "_doc_link_module", "_doc_link_url_param_generator",
    "_repr_html_", "_html_repr", "__class__", "__doc__", "__name__", "_estimator_type", "_sklearn_output_config",
    "feature_names_in_", "status_", "kernel", "steps", "name", "verbose_feature_names_out",
]  # fmt: skip
SHAPES = [[2**62], [2**32, 2**32], [-1], [0, 2**62], [1] * 40, [1.5], [True], "3", [10**9], [3, 10**9, 0], None]
DTYPES = ["|O", "O", "<f16", "<U100000", "|V9", "<f8,<f8", "(1000000,)<f8", "<M8[ns]", "f", [["a", "|O"]], [["a"]], 8]


def models():
    """Return the files that are mutated."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=24)
    mixed = np.array([[a, b, c] for (a, b), c in zip(X.tolist(), ["u", "v", "w"] * 8)], dtype=object)
    columns = ColumnTransformer([
        ("n", make_pipeline(SimpleImputer(), StandardScaler()), [0, 1]),
        ("c", OneHotEncoder(handle_unknown="ignore"), [2]),
    ])  # fmt: skip
    kernel = kernels.Gaussian(2.0) + kernels.Linear() * kernels.Matern(1.5, 1.0)
    small = {"max_vectors": 6}
    fitted = [
        RVR(kernel=kernel, basis=["linear"], width="scale").fit(X, y),
        RVC(width="scale").fit(X, np.array(["a", "b", "c"])[np.digitize(y, [-0.4, 0.4])]),
        make_pipeline(columns, RVR(random_state=0, width="scale")).fit(mixed, y),
        GPRegressor(**small).fit(X, y),
        GPClassifier(**small).fit(X, y > 0.0),
    ]
    return [dumps(model) for model in fitted]


def seal(header: bytes, arrays: bytes) -> bytes:
    """A file with a right checksum around any header and arrays."""
    rest = len(header).to_bytes(8, "little") + header + arrays
    return b"relvec-model %02d\n" % SCHEMA + hashlib.sha256(rest).digest() + rest


def split(file: bytes) -> tuple[bytes, bytes]:
    """Header and arrays of a file."""
    length = int.from_bytes(file[48:56], "little")
    return file[56 : 56 + length], file[56 + length :]


def with_header(header, arrays: bytes) -> bytes:
    """A file with a right checksum around a header given as an object."""
    text = json.dumps(header).encode()
    return seal(text + b" " * (-len(text) % 8), arrays)


def damage(rng, data: bytes) -> bytes:
    """Some bytes changed, removed, repeated or cut off."""
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at, length = int(rng.integers(len(data) + 1)), int(rng.integers(1, 32))
        kind = rng.integers(5)
        if kind == 0:
            data[at : at + 1] = bytes([rng.integers(256)])
        elif kind == 1:
            del data[at : at + length]
        elif kind == 2:
            data[at:at] = rng.bytes(length)
        elif kind == 3:
            data[at:at] = data[at : at + length] * int(rng.integers(1, 50))
        else:
            del data[at:]
    return bytes(data)


def places(tree, found=None):
    """Every (container, key) of a tree of JSON."""
    found = [] if found is None else found
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        found.append((tree, key))
        places(value, found)
    return found


def rearrange(rng, file: bytes) -> bytes:
    """The header's tree with some parts replaced, moved, renamed, removed or nested."""
    header, arrays = split(file)
    header = json.loads(header)
    for _ in range(int(rng.integers(1, 4))):
        spots = places(header)
        table = header["arrays"] if isinstance(header.get("arrays"), list) else []
        entries = [entry for entry in table if isinstance(entry, dict)]
        if not spots:
            break
        container, key = spots[rng.integers(len(spots))]
        kind = rng.integers(7)
        if kind == 0 and entries:
            entries[rng.integers(len(entries))]["shape"] = deepcopy(SHAPES[rng.integers(len(SHAPES))])
        elif kind == 1 and entries:
            entries[rng.integers(len(entries))]["dtype"] = deepcopy(DTYPES[rng.integers(len(DTYPES))])
        elif kind == 2:
            other, name = spots[rng.integers(len(spots))]
            container[key] = json.loads(json.dumps(other[name]))
        elif kind == 3:
            del container[key]
        elif kind == 4 and isinstance(container, dict):
            container[rng.choice(["object", "array", "tuple", "x", "class", "memory", "predict"])] = container.pop(key)
        elif kind == 5:
            value = container[key]
            for _ in range(int(rng.choice([1, 50, 200]))):
                value = [value] if rng.integers(2) else {"tuple": [value]}
            container[key] = value
        else:
            container[key] = deepcopy(VALUES[rng.integers(len(VALUES))])
    return with_header(header, arrays)


def mutated(rng, files):
    """One mutated file."""
    file = files[rng.integers(len(files))]
    kind = rng.integers(4)
    if kind == 0:
        return damage(rng, file)
    if kind == 1:
        header, arrays = split(file)
        return seal(damage(rng, header), arrays)
    if kind == 2:
        header, arrays = split(file)
        return seal(header, damage(rng, arrays))
    return rearrange(rng, file)


class Watch:
    """Reports what the interpreter is asked to run or open within a `with`, besides one file and what is allowed.

    Other threads do not count, and the collector rests, which would end objects of others here.
    """

    def __init__(self, allowed: tuple[str, ...] = ()) -> None:
        self.allowed, self.thread, self.path, self.events = allowed, None, "", []
        sys.addaudithook(self.hook)

    def hook(self, event, arguments) -> None:
        if self.thread != threading.get_ident() or not event.startswith(FORBIDDEN) or event in self.allowed:
            return
        if event != "open" or str(arguments[0]) != self.path:
            self.events.append((event, str(arguments)[:200]))

    def __enter__(self) -> None:
        gc.disable()
        self.events.clear()
        self.thread = threading.get_ident()

    def __exit__(self, *error) -> None:
        self.thread = None
        gc.enable()


def attempt(data: bytes, watch: Watch) -> str:
    """Load one file: "loaded" or "refused"; an AssertionError for anything else."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    with watch:
        try:
            model = loads(data)
            result = "loaded"
        except ModelFileError as error:
            result, model = "refused", None
            assert str(error)
    _, peak = tracemalloc.get_traced_memory()
    assert model is None or isinstance(model, BaseEstimator)
    assert not watch.events, watch.events
    assert peak - before < 50 * len(data) + 10_000_000, f"{peak - before} bytes for a file of {len(data)}"
    return result


def make_case() -> Callable[[int, int], list[str]]:
    """Return a function of a seed and a number that loads one mutated file."""
    files, watch = models(), Watch()
    for file in files:  # imports what loading needs, and what an error message does
        assert repr(loads(file))

    def case(seed: int, number: int) -> list[str]:
        tracemalloc.start()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InconsistentVersionWarning)
                return [attempt(mutated(np.random.default_rng([seed, number]), files), watch)]
        finally:
            tracemalloc.stop()

    return case


def forge(rng, file: bytes) -> bytes:
    """The header's tree with the text of some values and names, or further values, of somebody who writes pages."""
    header, arrays = split(file)
    header = json.loads(header)
    for _ in range(int(rng.integers(1, 4))):
        spots = places(header)
        words = [(c, key) for c, key in spots if isinstance(c[key], str) and key not in ("class", "dtype")]
        states = [c[key] for c, key in spots if key == "state" and isinstance(c[key], dict)]
        kind = rng.integers(3)
        if kind == 0 and words:
            container, key = words[rng.integers(len(words))]
            container[key] = PAYLOAD
        elif kind == 1 and states:
            state = states[rng.integers(len(states))]
            state[str(rng.choice(SHOWN))] = PAYLOAD if rng.integers(2) else [PAYLOAD]
        else:
            container, key = spots[rng.integers(len(spots))]
            container[key] = PAYLOAD
    return with_header(header, arrays)


def show(data: bytes) -> str:
    """Load one file and show its model as a notebook does: "shown" or "refused"; no tag of the file is on the page."""
    try:
        model = loads(data)
    except ModelFileError:
        return "refused"
    parts = [model, *(step for _, step in getattr(model, "steps", []))]
    pages = [part._repr_html_() for part in parts if isinstance(part, BaseEstimator)]
    assert not any("<img" in page for page in pages), "the text of a file is a tag of the page"
    return "shown"


def make_forger() -> Callable[[int, int], list[str]]:
    """Return a function of a seed and a number that shows the model of one forged file."""
    files = models()
    assert {show(file) for file in files} == {"shown"}

    def case(seed: int, number: int) -> list[str]:
        rng = np.random.default_rng([seed, number])
        return [show(forge(rng, files[rng.integers(len(files))]))]

    return case
