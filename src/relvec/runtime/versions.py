"""Versions of relvec, its dependencies and the system, for reports of problems."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from relvec._version import __version__

_REQUIRED = ("numpy", "scipy", "scikit-learn", "threadpoolctl")
_OPTIONAL = ("pandas", "polars", "pyarrow", "matplotlib", "tqdm", "dask", "distributed", "torch", "cupy-cuda12x",
             "array-api-compat", "onnx", "onnxruntime", "skl2onnx", "h5py", "zarr")  # fmt: skip


def show_versions() -> None:
    """Print versions of relvec, its dependencies and the system, and how the engine was compiled.

    Examples
    --------
    >>> import relvec
    >>> relvec.show_versions()
    relvec            ...
    """
    found = {
        "relvec": __version__,
        "engine": _describe_engine(),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
    }
    found |= {name: _installed_version(name) or "not installed" for name in _REQUIRED}
    found |= {name: number for name in _OPTIONAL if (number := _installed_version(name))}
    print("\n".join(f"{name:<17} {value}" for name, value in found.items()))


def _describe_engine() -> str:
    spec = find_spec("relvec.solvers._native.gaussian")
    if spec is None or spec.origin is None:
        return "missing: the package was not built; install it again with pip, where a C compiler is available"
    return f"compiled ({Path(spec.origin).name})"


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
