"""The compiled searches: built where there is a C compiler, and done without where there is none."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(f"relvec.solvers.{name}", [f"src/relvec/solvers/{name}.c"], py_limited_api=True, optional=True)
        for name in ("_engine", "_laplace_engine")
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
