"""A test or an example that needs an extra which is not installed is skipped; relvec's own error says which."""

import doctest

import pytest


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
