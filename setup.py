"""The compiled searches: built where there is a C compiler, and done without where there is none."""

from glob import glob

from setuptools import Extension, setup

SOLVERS = "src/relvec/solvers"
SOURCES = {
    "_engine": (f"{SOLVERS}/engine/module.c", glob(f"{SOLVERS}/engine/*.h")),
    "_laplace_engine": (f"{SOLVERS}/_laplace_engine.c", []),
}

setup(
    ext_modules=[
        Extension(f"relvec.solvers.{name}", [source], depends=headers, py_limited_api=True, optional=True)
        for name, (source, headers) in SOURCES.items()
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
