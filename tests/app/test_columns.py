"""Columns: what they are taken for, and the numbers they become."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relvec import RVR
from relvec.app.tables import TableError, as_table, describe, fit_table, plan_table, predict_table
from relvec.app.tables.cells import list_labels
from relvec.app.tables.columns import Column, TableColumns, numbers_of
from relvec.app.tables.target import prepare_target

pytest.importorskip("pandas")


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
    for name in ("id", "customer_id", "Customer ID", "orderId", "column 1", "index", "Nr", "Invoice No."):
        assert kind([3, 1, 2], name).kind == "identifier", name
    for name in ("grid", "humid", "x", "piano"):
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


def test_a_few_strange_cells_are_read_as_missing_with_a_note():
    cells = [str(i) for i in range(40)]
    cells[16], cells[3], cells[30] = "unbekannt", "154 PS", "Unbekannt"
    table = as_table({"power": cells})
    column = describe(table)[0]
    assert column.kind == "number" and column.missing == ("154 ps", "unbekannt")
    for words in ("3 cells are not numbers", "'154 PS' in row 4", "'unbekannt' in row 17", "3 missing cells"):
        assert words in column.note, column.note
    made = TableColumns([column]).transform({"power": ["7", "UNBEKANNT"]})[:, 0]
    assert made[0] == 7.0 and np.isnan(made[1])
    with pytest.raises(TableError, match=r"column 'power': expected numbers, got '154 PS' in row 4, 'unb.*--miss"):
        describe(table, strict=True)
    assert describe(table, categorical=["power"])[0].kind == "category"


def test_strange_dates_are_read_as_missing_too():
    days = [f"2024-01-{i + 1:02d}" for i in range(30)]
    days[3] = "2024-13-45"
    column = kind(days)
    assert column.kind == "date" and "1 cell is not a date and read as missing: '2024-13-45' in row 4" in column.note
    with pytest.raises(TableError, match=r"column 'x': expected dates, got '2024-13-45' in row 4 \(1 of 30 cells\)"):
        kind(days, strict=True)


def test_all_strange_values_are_listed_at_once_with_their_counts():
    with pytest.raises(TableError, match=r"got 'low' in rows 1, 2 and 4, 'high' in row 3 \(4 of 5 cells\).*--missing"):
        numbers_of(as_table({"x": ["low", "low", "high", "low", "7"]}), "x")
    with pytest.raises(TableError, match=r"'a' in 30 rows \(1, 2, 3, 4, 5, ...\)"):
        numbers_of(as_table({"x": ["a"] * 30}), "x")
    with pytest.raises(TableError, match="and 20 more values"):
        numbers_of(as_table({"x": [f"word {i}" for i in range(30)]}), "x")


@pytest.mark.parametrize(("cells", "unit", "values"), [
    (["154 PS", "90 PS", "75.5 PS"], "PS", [154.0, 90.0, 75.5]), (["20°C", "21.5°C", "19"], "°C", [20.0, 21.5, 19.0]),
    (["1,200 kWh", "900kWh"], "kWh", [1200.0, 900.0]), (["3 km/h", "", "5 km/h"], "km/h", [3.0, np.nan, 5.0]),
    (["7,5 kg", "1.234,5 kg"], "kg", [7.5, 1234.5]),
])  # fmt: skip
def test_a_unit_that_all_numbers_share_is_taken_off(cells, unit, values):
    column = kind(cells)
    assert (column.kind, column.unit) == ("number", unit) and f"in {unit}" in column.note
    np.testing.assert_array_equal(TableColumns([column]).transform({"x": cells})[:, 0], values)
    with pytest.raises(TableError, match=f"expected numbers .in {unit}., got '5 miles'"):
        TableColumns([column]).transform({"x": ["5 miles"]})


@pytest.mark.parametrize("cells", [
    ["154 PS", "113 kW", "154 PS"], ["1st", "2nd", "1st"], ["007X", "008X", "007X"], ["12o", "13", "14"],
])  # fmt: skip
def test_units_that_differ_or_are_no_units_stay_text(cells):
    assert kind(cells).unit == ""


def test_different_units_are_named():
    lengths = [f"{150 + i} cm" if i % 3 else f"{1.5 + i / 100:.2f} m" for i in range(60)]
    assert "different units ('cm', 'm')" in kind(2 * lengths).note
    assert "different units" not in kind(2 * [f"{i}th of May" for i in range(60)]).note


def test_decimal_commas_of_a_whole_column():
    column = kind(["3,14", "2,5", "7"])
    assert column.kind == "number" and column.decimal_comma
    assert TableColumns([column]).transform({"x": ["1.000,5", "2"]})[:, 0].tolist() == [1000.5, 2.0]
    assert not kind(["1,234", "2,345", "7"]).decimal_comma  # thousands


def test_words_for_missing_cells_can_be_given():
    column = kind(["1", "2", "k.A.", "-999", "3"], missing=["k.a.", "-999"])
    assert column.kind == "number" and column.missing == ("k.a.", "-999") and "2 missing cells" in column.note
    np.testing.assert_array_equal(TableColumns([column]).transform({"x": np.array([-999.0, 4.0])})[:, 0], [np.nan, 4.0])
    assert kind([1.0, -999.0, 2.0], missing=["-999"]).parts == ("missing",)


def test_dates_in_two_formats():
    column = kind(["31.01.2024", "2024-02-01", "2.3.2024", "2024-03-05"])
    assert column.kind == "date"
    assert TableColumns([column]).transform({"x": ["02.01.1970", "1970-01-03"]})[:, 0].tolist() == [1.0, 2.0]
    assert kind(["01/13/2024", "13/01/2024"] * 5).kind != "date"  # the day first, or the month first, not both


def test_a_column_with_many_strange_cells_is_left_out_with_advice():
    cells = [f"{i}.5" if i % 4 else f"error {i}" for i in range(200)]
    column = kind(cells)
    assert column.kind == "text" and "only 75% of the cells are numbers; name the other values" in column.note


@pytest.mark.parametrize("cell", [np.inf, "1e999", "-inf"])
def test_infinite_numbers_are_missing(cell):
    cells = [float(i) for i in range(30)]
    cells = [*cells, cell] if isinstance(cell, float) else [*map(str, cells), cell]
    column = kind(cells)
    assert column.kind == "number" and "1 cell is not a number and read as missing: " in column.note
    assert np.isnan(TableColumns([column]).transform({"x": cells})[:, 0]).tolist() == [False] * 30 + [True]
    with pytest.raises(TableError, match="in row 31"):
        kind(cells, strict=True)


def test_categories_that_differ_in_case_alone_are_pointed_out():
    cells = ["HIGH", "High", "low", "high"] * 3
    assert kind(cells).note == "4 categories; 'HIGH', 'High', 'high' differ from each other in case alone"
    assert kind(["high", "low"] * 3).note == "2 categories"


@pytest.mark.parametrize("last, told", [(1e6, True), (900.0, False)])
def test_a_row_of_totals_is_pointed_out(last, told):
    values = np.append(np.arange(100.0), last)
    _, _, _, notes = prepare_target(as_table({"y": values}), "y", "regression")
    assert any("1e+06 lies far beyond all other targets" in note for note in notes) == told


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
    with pytest.raises(TableError, match="column 'x': expected numbers, got 'b' in rows 2 and 3"):
        step.transform({"x": ["1", "b", "b"], "c": ["a", "a", "a"]})
    boolean = TableColumns([Column("b", "boolean", words=("no", "yes"))])
    with pytest.raises(TableError, match="column 'b': expected yes or no, got 'maybe' in row 1"):
        boolean.transform({"b": ["maybe"]})


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20))
def test_numbers_survive_as_text(values):
    cells = np.array([None if v is None else repr(v) for v in values] + [None], dtype=object)[:-1]
    expected = [np.nan if v is None else v for v in values]
    np.testing.assert_array_equal(numbers_of(as_table({"x": cells}), "x"), expected)


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
    table = as_table({"x": [1.0, 2.5, np.nan, 1e20], "b": np.array([True, False, True, True])})
    assert list_labels(table["x"]) == ["1", "2.5", None, "100000000000000000000"]
    assert list_labels(table["b"])[:2] == ["true", "false"]


def test_a_few_odd_cells_of_a_new_table_are_missing_and_told():
    """One odd cell in 200 rows must not stop a prediction."""
    x, n = np.sin(np.arange(200.0)), 200
    days = [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(n)]
    table = {"x": x, "day": days, "wet": ["yes", "no"] * 100, "y": x + 0.1 * np.cos(np.arange(n))}
    pipeline = fit_table(table, "y", model=RVR(width=2.0)).pipeline
    new = {
        "x": [*map(str, x[:-2]), "oops", "inf"],
        "day": [*days[:-1], "2024-13-45"],
        "wet": [*table["wet"][:-1], "so"],
    }
    found = predict_table(pipeline, new)
    assert np.isfinite(found.mean).all() and len(found.notes) == 3
    assert "column 'x': expected numbers; 2 cells read as missing: 'oops' in row 199, 'inf' in row 200" in found.notes
    gaps = {"x": [*x[:-2], None, None], "day": [*days[:-1], None], "wet": [*table["wet"][:-1], None]}
    np.testing.assert_array_equal(found.mean, predict_table(pipeline, gaps).mean)
    with pytest.warns(UserWarning, match="read as missing") as caught:
        np.testing.assert_array_equal(pipeline.predict(new), found.mean)
    assert len(caught) == 3


# ---------------------------------------------------------------- columns that should not be inputs


def planned(columns, target, **options):
    """Return the kinds and notes of the columns of a plan, by name."""
    plan = plan_table(columns, target, **options)
    return {c.name: c.kind for c in plan.columns}, {c.name: c.note for c in plan.columns}


@pytest.fixture(params=[0, 1])
def suspicious(request):
    rng, n = np.random.default_rng(request.param), 150
    x, c = rng.normal(size=n), rng.choice(list("abc"), n)
    y = np.sin(2 * x) + 0.3 * (c == "a") + 0.1 * rng.normal(size=n)
    return {
        "Unnamed: 0": np.arange(n), "patient": rng.permutation(n) + 4000, "customer": rng.integers(0, 50, n), "x": x,
        "feet": 3.28 * x - 1.0, "zero": np.where(np.arange(n) % 2, 0.0, -0.0), "c": c, "town": np.char.add("town ", c),
        "twice": 2.0 * y, "near": y + 1e-3 * rng.normal(size=n), "exp": np.exp(y),
        "close": y + 0.01 * rng.normal(size=n), "y": y,
    }  # fmt: skip


def test_columns_that_should_not_be_inputs_are_left_out_and_named(suspicious):
    kinds, notes = planned(suspicious, "y")
    left_out = {
        "Unnamed: 0": "identifier", "patient": "identifier", "customer": "identifier", "feet": "copy",
        "zero": "constant", "town": "copy", "twice": "leak", "near": "leak", "exp": "leak",
    }  # fmt: skip
    assert kinds == {"x": "number", "c": "category", "close": "number", **left_out}
    for name in left_out.keys() - {"zero"}:
        assert f"--use {name!r}" in notes[name], notes[name]
    assert "--drop 'close'" in notes["close"] and "'x'" in notes["feet"] and "'c'" in notes["town"]


def test_columns_that_are_asked_for_are_inputs_whatever_they_look_like(suspicious):
    asked = ["patient", "customer", "feet", "town", "twice"]
    kinds, _ = planned(suspicious, "y", use=asked)
    assert [kinds[name] for name in asked] == ["number", "number", "number", "category", "number"]
    assert kinds["x"] == "copy"  # of the one that was asked for
    kinds, _ = planned(suspicious, "y", features=asked)
    assert [kinds[name] for name in asked] == ["number", "number", "number", "category", "number"]


def test_what_determines_a_class_is_left_out():
    rng = np.random.default_rng(3)
    x = rng.normal(size=120)
    levels = np.where(x > 1, "A", np.where(x > 0, "B", np.where(x > -1, "C", "D")))
    table = {"x": x, "code": (x > 0) * 7, "level": levels, "other": rng.choice(list("pq"), 120),
             "kind": np.where(x > 0, "good", "bad")}  # fmt: skip
    kinds, _ = planned(table, "kind")
    assert kinds == {"x": "number", "code": "leak", "level": "leak", "other": "category"}


def test_chance_and_trends_are_no_leaks():
    """Few rows agree by chance; what grows with time is not the time; the only input is kept, whatever it is."""
    rng = np.random.default_rng(4)
    few = {"a": ["p", "q"] * 4, "b": ["q", "p"] * 4, "kind": ["u", "v"] * 4}
    assert set(planned(few, "kind")[0].values()) == {"category"}
    year = np.arange(1960.0, 2020.0)
    co2 = 315.0 + 0.8 * (year - 1960) + 0.013 * (year - 1960) ** 2
    kinds, notes = planned({"year": year, "rain": rng.normal(size=60), "co2": co2}, "co2")
    assert kinds == {"year": "number", "rain": "number"} and "--drop 'year'" in notes["year"]
    kinds, notes = planned({"celsius": co2, "fahrenheit": 1.8 * co2 + 32.0}, "fahrenheit")
    assert kinds == {"celsius": "number"} and "--drop 'celsius'" in notes["celsius"]
    ordinary = {f"x{i}": rng.integers(0, 3, 40) for i in range(30)} | {"y": rng.normal(size=40)}
    assert set(planned(ordinary, "y")[0].values()) == {"number"}


def test_mixed_signs_are_told_and_read_alike():
    share = [f"{i}.3%" if i % 2 else f"0.0{i}3" for i in range(10)]
    column = kind(share)
    assert "5 of 10 cells have a percent sign" in column.note and "5% is read as 0.05" in column.note
    values = TableColumns([column]).transform({"x": share})[:, 0]
    np.testing.assert_allclose(values, [(i + 0.3) / 100 for i in range(10)])
    column = kind(["45%", "7", "80"])
    assert "1 of 3 cells has a percent sign and the others none" in column.note
    assert TableColumns([column]).transform({"x": ["45%"]})[0, 0] == 45.0
    assert kind(["45%", "7%", "80%"]).note == "in percent"
    assert "currencies are mixed ($, €)" in kind(["$5", "€7", "$9"]).note


def test_codes_that_are_all_different_are_identifiers():
    assert kind([f"{501 + 37 * i:05d}" for i in range(100)], "zip").kind == "identifier"


def test_nested_columns_are_left_out():
    column = kind([[1, 2], [3], [4]])
    assert column.kind == "text" and "lists or objects" in column.note


def test_words_that_make_a_target_missing_are_named():
    table = as_table({"country": ["DE", "NA", "FR", "DE", "", "FR", "NA", "DE"]})
    assert "3 rows left out: 'country' is missing there ('NA')" in prepare_target(table, "country", "auto")[3]
