"""The compiled moves of the search: built where there is a C compiler, and done without where there is none."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "relvec.solvers._engine",
            ["src/relvec/solvers/_engine.c"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
