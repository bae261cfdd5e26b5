"""The compiled searches: built where there is a C compiler, and done without where there is none."""

from glob import glob

from setuptools import Extension, setup

NATIVE = "src/relvec/solvers/_native"
SOURCES = {
    "_engine": (f"{NATIVE}/engine/module.c", glob(f"{NATIVE}/engine/*.h")),
    "_laplace_engine": (f"{NATIVE}/_laplace_engine.c", []),
}

setup(
    ext_modules=[
        Extension(f"relvec.solvers._native.{name}", [source], depends=headers, py_limited_api=True, optional=True)
        for name, (source, headers) in SOURCES.items()
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
