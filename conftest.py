"""Settings of tests and examples alike: what is skipped without an extra, and which are `long`."""

import doctest
from pathlib import Path

import pytest

LONG = frozenset((Path(__file__).parent / "tests" / "long.txt").read_text().splitlines())  # by tools/long_tests.py


def pytest_collection_modifyitems(items):
    """Mark the tests that take more than a second."""
    for item in items:
        if item.nodeid in LONG:
            item.add_marker("long")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Run a test, or say which extra it needs."""
    try:
        return (yield)
    except (ImportError, doctest.UnexpectedException) as error:
        reason = error.exc_info[1] if isinstance(error, doctest.UnexpectedException) else error
        if isinstance(reason, ImportError) and "pip install 'relvec[" in str(reason):
            pytest.skip(str(reason))
        raise
