"""Columns: what they are taken for, and the numbers they become."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relvec.tables.columns import Column, TableColumns, describe, labels_of, numbers_of
from relvec.tables.files import Table, TableError, as_table


def kind(cells, name="x", **options):
    return describe(as_table({name: cells, "end": ["1"] * len(cells)}), **options)[0]


@pytest.mark.parametrize(("cells", "expected"), [
    (["1", "2.5", "-3e4", "n/a"], "number"), (["1,200", "$3", "45%", "7"], "number"), ([1.0, 2.0, np.nan], "number"),
    ([1, 2, 2], "number"), ([True, False, True], "boolean"), (["yes", "No", "YES"], "boolean"),
    (["t", "f", "?"], "boolean"), (["a", "b", "a"], "category"), (["01", "02", "01"], "category"),
    (["1", "b", "1", "c"], "category"), (["2024-01-01", "2024-02-01", "2024-02-01"], "date"),
    (["01.02.2024", "13.02.2024", ""], "date"), (["2024-01-01T10:00:00Z", "2024-01-02T11:00:00+02:00"], "date"),
    (["Jan 5, 2024", "Feb 6, 2024"], "date"), (["a", "a", "a"], "constant"), (["", "NA", "?"], "constant"),
    ([5, 5, 5], "constant"), (["a1", "b2", "c3"], "identifier"), (["a", None, None], "category"),
    (["12_34", "12_35", "12_34"], "category"),
])  # fmt: skip
def test_kinds(cells, expected):
    assert kind(cells).kind == expected


def test_identifiers_by_name_and_by_order():
    for name in ("id", "customer_id", "Customer ID", "orderId", "column 1", "index"):
        assert kind([3, 1, 2], name).kind == "identifier", name
    for name in ("grid", "humid", "x"):
        assert kind([3, 1, 2], name).kind == "number", name
    assert kind([3, 1, 2], identifiers=["x"]).kind == "identifier"


def test_free_text_is_left_out():
    texts = [f"a long comment number {i} that nobody will want to carry through at all" for i in range(60)]
    assert kind(texts).kind == "text"
    assert kind([f"w{i % 55}" for i in range(100)]).kind == "text"


def test_dates_that_could_be_read_twice_say_so():
    assert "though DD/MM/YYYY is possible" in kind(["01/02/2024", "03/04/2024"]).note
    assert kind(["01/02/2024", "13/04/2024"]).format == "%d/%m/%Y"
    assert "possible" not in kind(["01/02/2024", "13/04/2024"]).note


def test_a_wrong_cell_among_numbers_is_an_error_with_its_place():
    cells = [str(i) for i in range(30)]
    cells[16] = "12o"
    table = Table({"age": np.array(cells, dtype=object)}, "people.csv", lines=np.arange(2, 32))
    with pytest.raises(TableError, match=r"people.csv, row 17 \(line 18\), column 'age'.*29 of 30.*got '12o'"):
        describe(table)
    assert describe(table, categorical=["age"])[0].kind == "category"
    days = [f"2024-01-{i + 1:02d}" for i in range(30)]
    days[3] = "2024-13-45"
    with pytest.raises(TableError, match=r"row 4, column 'x': expected a date \(YYYY-MM-DD\).*got '2024-13-45'"):
        kind(days)
    with pytest.raises(TableError, match="row 2, column 'x': expected a finite number, got inf"):
        kind([1.0, np.inf, 2.0])
    with pytest.raises(TableError, match="finite"):
        kind(["1", "1e999", "2"])


def test_categories_most_frequent_first_rare_ones_joined():
    column = kind(["b"] * 3 + ["a"] * 5 + [f"r{i}" for i in range(30) for _ in range(2)])
    assert column.levels[:2] == ("a", "b") and column.levels[-1] == "(other)" and len(column.levels) == 20
    step = TableColumns([column])
    codes = step.transform({"x": ["a", "b", "r29", "never", None]})[:, 0]
    assert codes.tolist() == [0.0, 1.0, 19.0, 19.0, -1.0]
    assert step.unseen({"x": ["never"]}) == []


def test_missing_cells_are_a_category_or_a_flag():
    column = kind(["a", "b", "a", None])
    assert column.levels == ("a", "b", "(missing)")
    assert TableColumns([column]).transform({"x": ["NA", "b", "zzz"]})[:, 0].tolist() == [2.0, 1.0, -1.0]
    column = kind(["1", "2", "", "3"])
    np.testing.assert_array_equal(TableColumns([column]).transform({"x": ["", "5"]}), [[np.nan, 1.0], [5.0, 0.0]])
    assert column.features() == ["x", "x (missing)"]
    assert kind(["1", "2", "3"] * 20 + [""]).features() == ["x"]


def test_dates_become_days_and_phases():
    column = kind(["2020-01-01", "2024-06-01 12:00:00"])
    assert column.parts == ("days", "year", "day")
    values = TableColumns([column]).transform({"x": ["1970-01-02", None]})
    assert values.shape == (2, 5) and values[0, 0] == 1.0 and np.isnan(values[1]).all()
    np.testing.assert_allclose(np.hypot(values[0, 1], values[0, 2]), 1.0)
    times = np.array(["2020-01-01", "2024-06-01T12", "NaT"], dtype="datetime64[s]")
    typed = kind(times)
    assert typed.kind == "date"
    text = TableColumns([typed]).transform({"x": ["2020-01-01", "2024-06-01 12:00:00", None]})
    np.testing.assert_allclose(TableColumns([typed]).transform({"x": times}), text)


def test_a_table_that_lacks_a_column_is_refused():
    step = TableColumns(describe(as_table({"x": [1.0, 2.0], "c": ["a", "b"]}), categorical=["c"]))
    with pytest.raises(TableError, match="needs the column 'c'; the table has 'x', 'y'"):
        step.transform({"x": [1.0], "y": [2.0]})
    with pytest.raises(TableError, match="row 2, column 'x': expected a number, got 'b'"):
        step.transform({"x": ["1", "b"], "c": ["a", "a"]})
    boolean = TableColumns([Column("b", "boolean", words=("no", "yes"))])
    with pytest.raises(TableError, match="row 1, column 'b': expected yes or no, got 'maybe'"):
        boolean.transform({"b": ["maybe"]})


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20))
def test_numbers_survive_as_text(values):
    cells = np.array([None if v is None else repr(v) for v in values] + [None], dtype=object)[:-1]
    expected = [np.nan if v is None else v for v in values]
    np.testing.assert_array_equal(numbers_of(Table({"x": cells}), "x"), expected)


@given(st.lists(st.one_of(st.none(), st.text(max_size=6), st.integers(), st.floats()), min_size=2, max_size=30))
def test_any_column_is_described_or_refused_with_its_name(values):
    table = as_table({"odd name": values})
    try:
        column = describe(table)[0]
    except TableError as error:
        assert "'odd name'" in str(error)
        return
    made = TableColumns([column]).transform(table)
    assert made.shape == (len(values), len(column.features()) if column.is_input else 0)
    assert not np.isinf(made).any()


def test_labels_of_whole_numbers_have_no_point():
    assert labels_of(np.array([1.0, 2.5, np.nan, 1e20])) == ["1", "2.5", None, "100000000000000000000"]
    assert labels_of(np.array([True, False])) == ["true", "false"]
