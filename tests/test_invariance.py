"""Models do not depend on the form of their data, nor on the route: a few data sets; tests/invariance.py has more."""

import numpy as np
import pytest

from invariance import MANY, WAYS, compare, data, fit

CASES = [(*way, classes) for way in WAYS for classes in (False, True) if way[2][classes]]


@pytest.mark.parametrize(("name", "rows", "_", "way", "close", "classes"), CASES, ids=[f"{c[0]}-{c[5]}" for c in CASES])
def test_same_vectors_and_evidence(name, rows, _, way, close, classes):
    rounded = "single precision" in name and not classes  # a path may part from the other where digits are rounded
    seeds = range(1) if rows == MANY and not rounded else range(3)
    same, apart = compare(way, rows, classes, seeds)
    assert same >= len(seeds) - rounded and (apart < close or rounded)


@pytest.mark.parametrize("classes", [False, True])
def test_the_comparison_can_fail(classes):
    """A model of other data differs by far more than any way to fit the same."""
    X, y = data(0, classes)
    changed = y.copy()
    changed[0] = ~y[0] if classes else y[0] + 0.1
    assert abs(fit(X, y).evidence - fit(X, changed).evidence) > 1e-3
    same, apart = compare(lambda X, y: fit(X, np.roll(y, 1)), len(X), classes, [0])
    assert same == 0 and apart > 1e-3


def test_usual_restarts_do_not_depend_on_the_seed():
    X, y = data(0, True, MANY)
    assert fit(X, y, random_state=0) == fit(X, y, random_state=1)
