"""The report: nothing from the data becomes markup, and warnings are in plain words."""

import base64
import html.parser
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relvec import RVC, RVR, GPRegressor
from relvec.app.report import html as _html
from relvec.app.report import plain_warnings, write_report
from relvec.app.report.facts import find_worst_rows, gather_facts
from relvec.app.report.summary import summary, vectors_of
from relvec.app.tables import as_table, evaluation, importance
from relvec.app.tables.evaluation import evaluate_table
from relvec.app.tables.pipelines import fit_table
from relvec.plot import HistoryDisplay
from relvec.solvers import Sequential

HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</table></main><h1>", "$\\frac{1}{0}$", "$$",
    "&amp;", "javascript:alert(1)", "{{7*7}}", "\x00\x08\x1b[31m", "\ud800", "a\u202eb", "😀 漢字", "--><!--", "]]>",
    "' onload='",
]  # fmt: skip
TAGS = set("html head meta title style body main p h1 h2 h3 nav a section div b span ul li table thead tbody tr th td "
           "small figure img figcaption footer details summary".split())  # fmt: skip
ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "class", "id", "href", "tabindex", "alt", "src",
              "data-label"}  # fmt: skip


class Strict(html.parser.HTMLParser):
    """Refuses every tag and attribute that the report itself does not write, and tags that are not closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text = [], ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= ATTRIBUTES, attrs
        assert all(re.match("#[a-z]+$|data:image/svg", v) for name, v in attrs if name in ("src", "href"))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data):
        self.text += data


def page_of(names, words, classes=None):
    """Return the report on a small table with these names of columns and these cells."""
    rng = np.random.default_rng(0)
    n, (number, category, target) = 24, names
    table = {number: rng.normal(size=n), category: [words[i % len(words)] for i in range(n)]}
    table[target] = [classes[i % 2] for i in range(n)] if classes else table[number] + rng.normal(0, 0.1, n)
    task = "classification" if classes else "regression"
    quick = (RVC if classes else RVR)(tol=1.0, solver=Sequential(restarts=0))
    pipeline = fit_table(table, target, task=task, categorical=[category], model=quick).pipeline
    return write_report(pipeline, evaluate_table(pipeline, table))


def test_hostile_strings_are_text(monkeypatch):
    page = page_of([f"{text} 1" for text in HOSTILE[:3]], HOSTILE, ["<b>no</b>", "<i>yes</i>"])
    parsed = Strict(page)
    assert "<script>alert(1)</script>" in parsed.text and "<i>yes</i>" in parsed.text
    page.encode("utf-8")
    for data in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page):
        picture = ElementTree.fromstring(base64.b64decode(data))
        tags = {element.tag.split("}")[1] for element in picture.iter()}
        assert not tags & {"script", "foreignObject", "a", "image", "iframe"}, tags


text = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=12))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(text, min_size=3, max_size=3, unique_by=str.strip), words=st.lists(text, min_size=2, max_size=4),
       classes=st.none() | st.lists(text, min_size=2, max_size=2, unique_by=str.strip))  # fmt: skip
def test_any_strings_are_text(monkeypatch, names, words, classes):
    monkeypatch.setattr(_html, "_draw", lambda *ignored: "<figure></figure>")
    monkeypatch.setattr(evaluation, "RESAMPLES", 50)
    monkeypatch.setattr(importance, "GRID", 4)
    try:
        page = page_of(names, words, classes)
    except ValueError:  # cells that are all missing words, or one class
        return
    Strict(page)
    page.encode("utf-8")


def found(**changes):
    rng = np.random.default_rng(1)
    x = np.linspace(0, 6, 60)
    table = {"x": x, "y": np.sin(x) + rng.normal(0, 0.1, 60)}
    pipeline = fit_table(table, "y", model=RVR(width=1.0)).pipeline
    made = evaluate_table(pipeline, table)
    scores = [replace(s, **changes.get(s.name, {})) for s in made.scores]
    return plain_warnings(pipeline, replace(made, scores=scores, notes=changes.get("notes", ())))


def test_a_good_model_has_no_warnings():
    assert found() == []


@pytest.mark.parametrize(("changes", "words"), [
    ({"coverage": {"value": 0.5, "high": 0.6}}, "error bars are too narrow: the 90% interval holds 50%"),
    ({"coverage": {"value": 0.99, "low": 0.97, "high": 1.0}}, "error bars are wide"),
    ({"R2": {"low": -0.1}}, "no better than the mean"),
    ({"notes": ("the table holds rows that the model was fitted on",)}, "The table holds rows"),
])  # fmt: skip
def test_warnings_in_plain_words(changes, words):
    assert [w for w in found(**changes) if words in w]


def test_a_process_that_keeps_every_row_is_no_reason_for_a_warning():
    x = np.linspace(0, 6, 40)
    table = {"x": x, "y": np.sin(x) + np.random.default_rng(0).normal(0, 0.1, 40)}
    pipeline = fit_table(table, "y", model=GPRegressor()).pipeline
    assert len(pipeline[-1].vectors_) > 20
    assert not any("sparse" in warning for warning in plain_warnings(pipeline, evaluate_table(pipeline, table)))


def test_warnings_of_the_fit():
    x = np.linspace(0, 6, 40)
    fitted = fit_table({"x": x, "y": np.sin(x)}, "y", model=RVR(width=0.004))
    assert any("NOISE_FLOOR" in note for note in fitted.notes)
    warned = plain_warnings(fitted.pipeline, evaluate_table(fitted.pipeline, {"x": x[:10], "y": np.sin(x[:10])}))
    assert any("almost no noise" in w for w in warned) and any("Only 10 rows" in w for w in warned)
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=60), "y": ["a" if i % 5 else "b" for i in range(60)]}
    pipeline = fit_table(table, "y").pipeline
    warned = plain_warnings(pipeline, evaluate_table(pipeline, table))
    assert any("most frequent class would be right as often (80%)" in w for w in warned)


def test_a_kernel_chosen_by_merit_is_told():
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-3, 3, 60), rng.normal(size=60)
    table = {"x": x, "z": z, "y": np.exp(2.0 + np.sin(x) + 0.3 * z + 0.1 * rng.normal(size=60))}
    fitted = fit_table(table, "y", model=GPRegressor())
    facts, model = dict(summary(fitted.pipeline)), fitted.pipeline[-1]
    assert "chosen by merit" in facts["kernel"]
    assert model.process_.scale.sign and "logarithmic scale" in facts["noise"]
    header, rows = vectors_of(fitted.pipeline)
    assert header == ["row", "kept for", "y", "x", "z"] and len(rows) == len(model.vectors_)
    assert [row[0] - 1 for row in rows] == model.vector_rows_.tolist()
    assert {row[1] for row in rows} <= {"relevance", "coverage", "all"}
    assert all(table["x"][row[0] - 1] == pytest.approx(float(row[3])) for row in rows)
    page = write_report(fitted.pipeline, evaluate_table(fitted.pipeline, table))
    assert "refused" in Strict(page).text and model.selection_[0].name in page
    with pytest.raises(ValueError, match="see selection_"):
        HistoryDisplay.from_estimator(model)


@pytest.fixture(scope="module")
def quick():
    """Return a regression with an outlier and a classification, cross-validated."""
    rng = np.random.default_rng(3)
    x, z = rng.uniform(0, 6, 120), rng.normal(size=120)
    y = np.sin(x) + rng.normal(0, 0.1, 120)
    y[17] += 5.0
    tables = {"y": {"name": [f"r{i}" for i in range(120)], "length": [f"{v:.3f} m" for v in x], "z": z, "y": y},
              "c": {"length": x, "z": z, "c": np.where(np.sin(x) + 0.3 * z > 0, "<i>up</i>", "down")}}  # fmt: skip
    found = {}
    for target, table in tables.items():
        model = (RVC if target == "c" else RVR)(width=1.0)
        pipeline = fit_table(table, target, model=model).pipeline
        found[target] = pipeline, evaluate_table(pipeline, table, folds=3)
    return found


def test_the_report_begins_in_plain_words(quick):
    facts = gather_facts(*quick["y"])
    assert re.search(
        r"off by 0\.\d+ on average. Always predicting the same value would be off by 0\.\d+", facts.sentences[0]
    )
    assert "should hold the true value in 90 of 100 cases" in facts.sentences[1]
    assert facts.sentences[2].startswith("The predictions depend most on length")
    facts = gather_facts(*quick["c"])
    assert re.search(
        r"right class of c in \d\d of 100 cases. Always naming the most frequent class", facts.sentences[0]
    )


def test_the_worst_rows_of_three_classes_are_those_that_were_wrong():
    """A class may be named with a probability below that of another row's wrong one."""
    table = as_table({"x": [0.0, 1.0, 2.0, 3.0], "kind": ["a", "b", "c", "a"]})
    pipeline = fit_table({"x": [0.0, 1.0, 2.0] * 9, "kind": ["a", "b", "c"] * 9}, "kind").pipeline
    found = evaluate_table(pipeline, table)
    proba = np.array([[0.36, 0.32, 0.32], [0.5, 0.4, 0.1], [0.1, 0.1, 0.8], [0.2, 0.7, 0.1]])
    found = replace(found, prediction=replace(found.prediction, proba=proba, label=np.array(["a", "a", "c", "b"])))
    header, rows = find_worst_rows(pipeline, found, ["x"])
    assert header == ["row", "observed", "its probability", "predicted", "x"]
    numbers = table.numbers
    assert rows == [[numbers[3], "a", 0.2, "b", 3.0], [numbers[1], "b", 0.4, "a", 1.0]]


def test_the_worst_rows_and_baselines(quick):
    facts = gather_facts(*quick["y"])
    header, rows = facts.worst
    assert header[:4] == ["row", "observed", "predicted", "90% interval"] and rows[0][0] == 18 and "r17" in rows[0]
    scores = {score.name: score for score in facts.scores}
    y = quick["y"][1].observed
    assert scores["RMSE"].baseline == pytest.approx(y.std()) and scores["R2"].baseline == 0.0
    header, rows = gather_facts(*quick["c"]).worst
    assert header[:4] == ["row", "observed", "its probability", "predicted"]
    assert all(row[1] != row[3] and row[2] < 0.5 for row in rows)
    scores = {score.name: score for score in quick["c"][1].scores}
    share = np.mean(quick["c"][1].observed == "down")
    assert scores["accuracy"].baseline == pytest.approx(max(share, 1 - share)) and scores["AUC"].baseline == 0.5
    assert scores["log loss"].baseline == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share))


def test_the_error_falls_with_more_rows(quick):
    curve = gather_facts(*quick["c"]).curve
    assert curve.measure == "log loss" and curve.rows[-1] == 80 and curve.error[-1] < curve.error[0]
    pipeline, made = quick["y"]
    assert gather_facts(pipeline, evaluate_table(pipeline, made.table)).curve is None


def test_the_report_as_markdown_and_json(quick):
    page = write_report(*quick["c"], format="markdown")
    assert "<i>" not in page and "&lt;i>up" in page and "## The largest errors" in page
    widths = {line.count(" | ") for line in page.splitlines() if line.startswith("| accuracy") or "| score" in line}
    assert len(widths) == 1
    found = json.loads(write_report(*quick["y"], format="json"))
    assert found["heading"] == "Regression of y" and found["worst"][0]["row"] == 18
    assert {score["name"] for score in found["scores"]} >= {"RMSE", "coverage"} and found["model"]["status"]
    with pytest.raises(ValueError, match="format must be one of html, markdown, json"):
        write_report(*quick["y"], format="pdf")


def test_the_pages_have_curves_and_headings_for_narrow_screens(quick):
    """Where a row becomes a block, every cell needs its heading."""
    pytest.importorskip("matplotlib")
    classes, numbers = write_report(*quick["c"]), write_report(*quick["y"])
    assert "ROC: the share of a class that is found" in classes and "Would more rows help?" in classes
    assert "ROC" not in numbers
    assert classes.count("<td") == classes.count("data-label=") > 50
