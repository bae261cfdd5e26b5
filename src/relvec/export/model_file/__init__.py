r"""Model files: parameters as JSON, arrays as raw numbers, nothing that could run.

The layout of a file, schema 2:

    16 bytes   b"relvec-model 02\n", the schema in decimal digits
    32 bytes   SHA-256 of all that follows
     8 bytes   length of the header, little-endian
    header     JSON in ASCII: {"versions": {...}, "arrays": [...], "model": tree}, padded with blanks to 8 bytes
    arrays     one after the other, each padded with zeros to 8 bytes

An entry of "arrays" has "dtype" (as in a .npy file), "shape", "fortran" and "readonly". The tree is plain JSON; a value
that JSON does not have is an object with one key, the name of its kind:

    {"array": i}                          array number i of the table; {"scalar": i} its single element
    {"objects": {"shape": s, "items": l}} an array of Python objects
    {"float": "nan" | "inf" | "-inf"}, {"tuple": l}, {"dict": [[key, value], ...]}, {"slice": [start, stop, step]}
    {"type": name}, {"dtype": descr}, {"ufunc": name}
    {"object": {"class": name, "state": {field: value}}}

Only classes of two fixed lists are ever created: those of relvec and of scikit-learn in `names.py`. Files name them
by public names that do not depend on the modules they are defined in.
"""

from __future__ import annotations

import os

import numpy as np
import scipy
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from relvec._version import __version__
from relvec.export.model_file.coding import TreeReader, TreeWriter
from relvec.export.model_file.layout import MAGIC_START, SCHEMA, ModelFileError, join_file, split_file
from relvec.export.model_file.names import SKLEARN
from relvec.runtime.files import write_atomically

__all__ = ["SCHEMA", "SKLEARN", "ModelFileError", "dumps", "load", "loads", "save"]


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
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


def load(path: str | os.PathLike[str]) -> BaseEstimator:
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
        if not file.read(len(MAGIC_START)) == MAGIC_START:  # before a large file of another kind is read
            raise ModelFileError(f"{os.fspath(path)!r} was not written by relvec.save: it is not a model file")
        file.seek(0)
        data = file.read()
    try:
        return loads(data)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)!r}: {error}") from error.__cause__


def dumps(model: BaseEstimator) -> bytes:
    """Return the bytes that `save` writes.

    >>> import relvec
    >>> loads(dumps(relvec.RVR(tol=0.5)))
    RelevanceVectorRegressor(tol=0.5)
    """
    if not isinstance(model, BaseEstimator):
        raise TypeError(f"relvec.save takes an estimator, got {type(model).__name__}")
    writer = TreeWriter()
    tree = writer.encode(model, type(model).__name__, 0)
    versions = {
        "relvec": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "sklearn": sklearn.__version__,
    }
    return join_file(versions, tree, writer.arrays)


def loads(data: bytes) -> BaseEstimator:
    """Return the model in the bytes that `save` writes; a `ModelFileError` for any others.

    >>> loads(b"something else")
    Traceback (most recent call last):
    relvec.export.model_file.layout.ModelFileError: not a model file of relvec.save
    """
    try:
        header, arrays = split_file(data)
        reader = TreeReader(arrays, header["versions"], len(data))
        model = reader.decode(header["model"], 0)
    except (ModelFileError, MemoryError, ImportError, InconsistentVersionWarning):
        raise
    except Exception as error:  # whatever a constructor may say to values that no model has
        raise ModelFileError(f"the file is not a model: {error}") from error
    if not isinstance(model, BaseEstimator):
        raise ModelFileError(f"the file holds no estimator but {type(model).__name__}")
    return model
