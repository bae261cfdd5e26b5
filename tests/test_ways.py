"""Small searches go the way they went; `tests/ways.py` tells why, and writes them anew where a change is wanted."""

import json

import pytest

import ways

KEPT = json.loads(ways.FILE.read_text())


@pytest.mark.parametrize("case", ways.REGRESSION)
def test_the_way_of_a_search(case):
    assert ways.differs(KEPT[case], ways.way(case)) == ""


@pytest.mark.parametrize("case", ways.LAPLACE)
def test_the_way_of_a_search_for_classes_or_counts(case):
    assert ways.differs(KEPT[case], ways.way(case)) == ""
