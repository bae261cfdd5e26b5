"""One HTML page on a fitted pipeline and a table: what was kept, how good it is, and what it rests on.

The page needs no network and runs no script. Everything that comes from the data is escaped: text through
`html.escape`, and figures are pictures (``data:`` URLs), in which nothing can run.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from relvec import plot
from relvec._version import __version__
from relvec.cli.console import rounded, shown
from relvec.plot._fit import draw_predictions
from relvec.report.html import STYLE, Draw, drawer, figure_grid, framed, html_table, sample, short, text
from relvec.tables.columns import Column, plural
from relvec.tables.evaluation import COVERAGE, Evaluation
from relvec.tables.importance import Dependence, Importance, column_importance, partial_dependence
from relvec.tables.pipelines import encoded_columns, summary, vectors_of

__all__ = ["report"]

VECTORS = 30  # relevance vectors listed
CURVES = 6  # columns whose effect is drawn
BARS = 15
# Advice by the name of a fit's status (relvec.solvers.Status).
CURES = {
    "noise_floor": "The fit found next to no noise: either the targets have none, or the model passes through every "
    "row. Do not trust its error bars; try a wider kernel (--width).",
    "max_iter": "The search was stopped before it had ended. The model is usable; a longer search may "
    "find a better one.",
    "time_limit": "The time limit ended the search. The model is the best found by then.",
    "interrupted": "The search was asked to stop. The model is the best found by then.",
    "candidates": "The memory limit left only some of the rows as candidates. The model is usable; more memory may "
    "find a better one.",
    "stalled": "The search ended with a small improvement left that rounding errors hide. This is seldom serious.",
    "constant_target": "All targets are equal, so that the model is a constant.",
}


def report(pipeline: Pipeline, evaluation: Evaluation, *, title: str | None = None) -> str:
    """The report as one HTML page.

    Parameters
    ----------
    pipeline : as `relvec.tables.pipelines.fit_table` makes it
    evaluation : of the pipeline, by `relvec.tables.evaluation.evaluate_table`
    title : str, optional
        The heading; by default the task and the target.

    Returns
    -------
    page : str
        Without matplotlib (``pip install 'relvec[plot]'``) the page has no figures and says so.

    Examples
    --------
    >>> from relvec.tables.evaluation import evaluate_table
    >>> from relvec.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "<b>y</b>": [0.1, 0.9, 2.1, 2.9]}
    >>> pipeline = fit_table(table, "<b>y</b>").pipeline
    >>> page = report(pipeline, evaluate_table(pipeline, table))
    >>> page.startswith("<!doctype html>"), "<b>y</b>" in page
    (True, False)
    """
    step = pipeline["columns"]
    heading = title or f"{step.task.capitalize()} of {step.target.name}"
    importance = column_importance(pipeline, evaluation)
    curves = [partial_dependence(pipeline, evaluation.table, name) for name in importance.names[:CURVES]]
    draw, bars = drawer(), "probabilities" if step.task == "classification" else "error bars"
    sections = [
        ("summary", "", _summary(pipeline, evaluation)),
        ("quality", "How good it is", _quality(pipeline, evaluation, draw)),
        ("calibration", f"Can the {bars} be believed?", _calibration(pipeline, evaluation, draw)),
        ("columns", "Which columns matter", _importance(pipeline, importance, draw)),
        ("effects", "How they matter", _effects(pipeline, curves, draw)),
        ("vectors", "The rows it rests on", _vectors(pipeline)),
        ("preparation", "What was done with the columns", _preparation(pipeline)),
        ("fit", "The fit", _fit(pipeline, draw)),
    ]
    links = "".join(f'<a href="#{key}">{name}</a>' for key, name, _ in sections if name)
    body = "".join(
        f'<section id="{key}">{f"<h2>{name}</h2>" if name else f"<nav>{links}</nav>"}{content}</section>'
        for key, name, content in sections
    )
    now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src 'unsafe-inline'\"><title>{text(heading)}</title><style>{STYLE}</style></head><body><main>"
        f'<p class="soft">Report on a relevance vector machine</p><h1>{text(heading)}</h1>{body}'
        f"<footer>relvec {__version__}, {now}. Model fitted to {text(PurePath(step.record_['source']).name)}; "
        f"evaluated on {text(PurePath(evaluation.table.source).name)}.</footer></main></body></html>\n"
    )


# Sections --------------------------------------------------------------------------------------------------------


def _summary(pipeline: Pipeline, evaluation: Evaluation) -> str:
    step, model = pipeline["columns"], pipeline[-1]
    rows, kept = step.record_["rows"], len(model.relevance_)
    first, second = evaluation.scores[0], evaluation.scores[2]
    cards = [
        (f"{kept:,} of {rows:,}", "rows kept as relevance vectors"),
        (f"{shown(first.value)} ± {shown(rounded(first.error))}", f"{first.name}: {first.meaning}"),
        (f"{shown(second.value)} ± {shown(rounded(second.error))}", f"{second.name}: {second.meaning}"),
    ]
    if step.task == "regression":
        cards.append((shown(float(np.sqrt(model.noise_variance_))), "noise found, a standard deviation of the target"))
    listed = "".join(f'<div class="card"><b>{text(value)}</b><span>{text(what)}</span></div>' for value, what in cards)
    return f'<div class="cards">{listed}</div>{_warnings(plain_warnings(pipeline, evaluation))}'


def _warnings(found: Sequence[str]) -> str:
    if not found:
        return '<ul class="warnings fine"><li>Nothing to warn about was found.</li></ul>'
    return f'<ul class="warnings">{"".join(f"<li>{text(sentence)}</li>" for sentence in found)}</ul>'


def plain_warnings(pipeline: Pipeline, evaluation: Evaluation) -> list[str]:
    """What a reader should be careful about, in sentences.

    Examples
    --------
    >>> from relvec.tables.evaluation import evaluate_table
    >>> from relvec.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> pipeline = fit_table(table, "y").pipeline
    >>> len(plain_warnings(pipeline, evaluate_table(pipeline, table))) > 1
    True
    """
    model, scores = pipeline[-1], {score.name: score for score in evaluation.scores}
    n, rows = len(evaluation.observed), pipeline["columns"].record_["rows"]
    found = [_sentence(note) for note in evaluation.notes]
    status = [model.status_] if isinstance(model.status_, str) else list(model.status_)
    found += [CURES[name] for name in dict.fromkeys(status) if name in CURES]
    if n < 30:
        found.append(f"Only {plural(n, 'row')} to evaluate on: the scores are rough.")
    if len(model.relevance_) > 0.5 * rows:
        found.append(f"{len(model.relevance_):,} of {rows:,} rows were kept: the model is not sparse, which is a sign "
                     "of a kernel too narrow for these data. Try a larger --width.")  # fmt: skip
    if "coverage" in scores:
        held = scores["coverage"]
        if held.high < COVERAGE:
            found.append(f"The error bars are too narrow: the {COVERAGE:.0%} interval holds {held.value:.0%} of the "
                         "targets. Widen them by that experience before a decision rests on them.")  # fmt: skip
        elif held.low > COVERAGE + 0.05:
            found.append(f"The error bars are wide: the {COVERAGE:.0%} interval holds {held.value:.0%} of the targets.")
        if scores["R2"].low < 0:
            found.append("The predictions may be no better than the mean of the targets: the interval of R2 holds 0.")
    if "AUC" in scores and scores["AUC"].low < 0.5:
        found.append("The predictions may be no better than chance: the interval of the AUC holds one half.")
    if "accuracy" in scores:
        common = max(np.unique(evaluation.observed, return_counts=True)[1]) / n
        if scores["accuracy"].value <= common:
            found.append(f"Always naming the most frequent class would be right as often ({common:.0%}).")
    return found


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def _quality(pipeline: Pipeline, evaluation: Evaluation, draw: Draw) -> str:
    n, p = len(evaluation.observed), evaluation.prediction
    how = (f"Each of {plural(n, 'row')} was predicted by a model fitted without it ({evaluation.folds}-fold "
           "cross-validation)." if evaluation.folds else
           f"The fitted model on {plural(n, 'row')} of {PurePath(evaluation.table.source).name}.")  # fmt: skip
    table = _scores(evaluation)
    if p.mean is not None:
        assert p.std is not None
        drawn = sample(n)
        y, mean, std = evaluation.observed[drawn], p.mean[drawn], p.std[drawn]
        figures = [
            draw(lambda ax: draw_predictions(y, mean, std, ax),
                 "Predicted against observed; bars that miss the diagonal are red."),
            draw(lambda ax: plot.ResidualsDisplay.from_predictions(y, mean, std, ax=ax),
                 "What is left over. A trend or a funnel means that the model misses something."),
        ]  # fmt: skip
        return f"<p>{text(how)}</p>{table}{figure_grid(figures)}"
    assert p.label is not None
    counts, labels = _confusion(pipeline[-1].classes_, evaluation.observed, p.label)
    rows = [(label, *map(int, row)) for label, row in zip(labels, counts, strict=True)]
    confusion = html_table(("observed \\ predicted", *labels), rows, range(1, len(labels) + 1))
    return f"<p>{text(how)}</p>{table}<h3>Observed and predicted classes</h3>{confusion}"


def _scores(evaluation: Evaluation) -> str:
    lines = "".join(
        f"<tr><td>{text(s.name)}<small>{text(s.meaning)}</small></td>"
        f"<td class=n>{text(s.value)} ± {text(rounded(s.error))}</td>"
        f"<td class=n>{text(s.low)} to {text(s.high)}</td></tr>"
        for s in evaluation.scores
    )
    return framed("<th>score</th><th class=n>value ± standard error</th><th class=n>95% interval</th>", lines)


def _confusion(classes: np.ndarray, observed: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, list[str]]:
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (np.searchsorted(classes, observed), np.searchsorted(classes, predicted)), 1)
    return counts, [str(label) for label in classes]


def _calibration(pipeline: Pipeline, evaluation: Evaluation, draw: Draw) -> str:
    p, y = evaluation.prediction, evaluation.observed
    if p.proba is not None:
        proba, classes = p.proba, pipeline[-1].classes_
        words = ("Rows are put together by the probability they were given; the share that turned out so should be "
                 "that probability, on the dashed line.")  # fmt: skip
        figure = draw(lambda ax: plot.CalibrationDisplay.from_probabilities(y, proba, classes, ax=ax), words, 5.4, 4.6)
    else:
        assert p.quantiles is not None
        quantiles = p.quantiles
        words = ("How often intervals of each probability held the target. Below the dashed line the error bars are "
                 "too narrow, above it too wide.")  # fmt: skip
        figure = draw(lambda ax: plot.CalibrationDisplay.from_quantiles(y, quantiles, ax=ax), words, 5.4, 4.6)
    return figure_grid([figure])


def _importance(pipeline: Pipeline, importance: Importance, draw: Draw) -> str:
    order = range(min(BARS, len(importance.names)))
    names, values = [importance.names[i] for i in order], importance.loss[list(order)]
    words = f"How much worse the predictions become ({importance.measure}) when a column's cells are shuffled."
    height = 1.1 + 0.34 * len(names)
    display = plot.FeatureRelevanceDisplay(values, [short(name) for name in names], importance.error[list(order)],
                                           f"rise of the {importance.measure}")  # fmt: skip
    figures = [draw(display.plot, words, 6.4, height)]
    learned = learned_relevance(pipeline)
    if learned:
        shares = sorted(learned.items(), key=lambda item: -item[1])[:BARS]
        second = plot.FeatureRelevanceDisplay([value for _, value in shares], [short(name) for name, _ in shares], None,
                                              "relevance, as a share")  # fmt: skip
        figures.append(
            draw(second.plot, "What the learned widths say: the share of each column in the distances.", 6.4, height)
        )
    found = zip(importance.names, importance.loss.tolist(), map(rounded, importance.error.tolist()), strict=True)
    table = html_table(("column", f"rise of the {importance.measure}", "±"), list(found), (1, 2))
    return figure_grid(figures) + table


def learned_relevance(pipeline: Pipeline) -> dict[str, float]:
    """The model's ``feature_relevance_`` added up by column of the table; empty where it has none.

    Examples
    --------
    >>> from relvec.tables.pipelines import fit_table
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> learned_relevance(fitted.pipeline) in ({}, {"x": 1.0})
    True
    """
    relevance = getattr(pipeline[-1], "feature_relevance_", None)
    names = encoded_columns(pipeline)
    if relevance is None or np.shape(relevance) != (len(names),):
        return {}
    shares: dict[str, float] = {}
    for name, value in zip(names, np.asarray(relevance).tolist(), strict=True):
        shares[name] = shares.get(name, 0.0) + value
    return shares


def _effects(pipeline: Pipeline, curves: Sequence[Dependence], draw: Draw) -> str:
    target = pipeline["columns"].target.name
    figures = [draw(lambda ax, curve=curve: _draw_dependence(ax, curve), f"{curve.name}", 4.4, 3.2) for curve in curves]
    what = "probability" if pipeline["columns"].task == "classification" else f"prediction of {target}"
    words = (f"The mean {what} when one column is set to a value in every row and the others stay as they are. Thin "
             "lines are single rows; where they cross, columns act together.")  # fmt: skip
    if pipeline["columns"].task == "classification":
        words += f" Drawn for the class {shown(curves[0].label)}." if curves else ""
    return f"<p>{text(words)}</p>{figure_grid(figures, 'figures small')}"


def _draw_dependence(ax: Any, curve: Dependence) -> None:
    if curve.labels is not None:
        places = np.arange(len(curve.labels))
        ax.plot(places, curve.rows.T, color=plot.POINT, lw=0.5, alpha=0.3)
        ax.plot(places, curve.mean, "o", color=plot.LINE, ms=8)
        ax.set_xticks(places, [short(label, 14) for label in curve.labels], rotation=30, ha="right", parse_math=False)
        ax.set_xlim(-0.5, len(places) - 0.5)
    else:
        ax.plot(curve.grid, curve.rows.T, color=plot.POINT, lw=0.5, alpha=0.3)
        ax.plot(curve.grid, curve.mean, color=plot.LINE, lw=2.2)
        ax.margins(x=0.01)
        if curve.dates:
            ax.tick_params(axis="x", rotation=30)
    ax.spines[["top", "right"]].set_visible(False)


def _vectors(pipeline: Pipeline) -> str:
    header, rows = vectors_of(pipeline)
    hidden = len(rows) - VECTORS
    more = f"{plural(hidden, 'more vector')} not shown; relvec inspect --json lists all." if hidden > 0 else ""
    words = ("The prediction is a weighted sum of similarities to these rows of the training table; all other rows "
             "were needed only to find them. A large weight is no large importance: rows with weights of opposite sign "
             "may nearly cancel.")  # fmt: skip
    rest = f'<p class="soft">{text(more)}</p>' if more else ""
    numbers = [i for i, name in enumerate(header) if name == "row" or name.startswith("weight")]
    return f"<p>{text(words)}</p>{html_table(header, rows[:VECTORS], numbers, 'rows')}{rest}"


def _preparation(pipeline: Pipeline) -> str:
    step = pipeline["columns"]
    rows = [(c.name, c.kind, c.note or _default_note(c)) for c in step.columns]
    notes = "".join(f"<li>{text(note)}</li>" for note in step.record_["notes"])
    return html_table(("column", "kind", "what was done"), rows) + (f"<ul>{notes}</ul>" if notes else "")


def _default_note(column: Column) -> str:
    return "scaled to unit variance" if column.is_input else ""


def _fit(pipeline: Pipeline, draw: Draw) -> str:
    step, model = pipeline["columns"], pipeline[-1]
    facts = [*summary(pipeline), ("seconds", f"{step.record_['seconds']:.2f}")]
    facts += [(name, repr(value)) for name, value in sorted(model.get_params(deep=False).items())]
    figure = draw(
        lambda ax: plot.HistoryDisplay.from_estimator(model, ax=ax), "Evidence and size by step of the search."
    )
    return html_table(("what", "value"), facts) + figure_grid([figure])
