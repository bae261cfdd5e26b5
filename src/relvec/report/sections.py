"""The sections of the report, each as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import PurePath
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from relvec import plot
from relvec.plot.fit import draw_predictions
from relvec.report.advice import plain_warnings
from relvec.report.html import Draw, figure_grid, frame_table, html_table, sample_rows, shorten, text
from relvec.report.summary import learned_relevance, summary, vectors_of
from relvec.tables.evaluation import Evaluation
from relvec.tables.importance import Dependence, Importance
from relvec.tables.text import format_cell, format_with_error, plural, round_uncertainty

MAX_VECTORS = 30  # relevance vectors listed
MAX_BARS = 15


def summary_section(pipeline: Pipeline, evaluation: Evaluation) -> str:
    """The main numbers, and warnings."""
    step, model = pipeline["columns"], pipeline[-1]
    rows, kept = step.record_["rows"], len(model.relevance_)
    cards = [(f"{kept:,} of {rows:,}", "training rows kept as relevance vectors")]
    for score in (evaluation.scores[0], evaluation.scores[2]):
        cards.append((format_with_error(score.value, score.error), f"{score.name}: {score.meaning}"))
    if step.task == "regression":
        noise = float(np.sqrt(model.noise_variance_))
        cards.append((format_cell(noise), "noise: the standard deviation of the target that no input explains"))
    listed = "".join(f'<div class="card"><b>{text(value)}</b><span>{text(what)}</span></div>' for value, what in cards)
    return f'<div class="cards">{listed}</div>{_warnings(plain_warnings(pipeline, evaluation))}'


def _warnings(found: Sequence[str]) -> str:
    if not found:
        return '<ul class="warnings fine"><li>No warnings.</li></ul>'
    return f'<ul class="warnings">{"".join(f"<li>{text(sentence)}</li>" for sentence in found)}</ul>'


def quality_section(pipeline: Pipeline, evaluation: Evaluation, draw: Draw) -> str:
    """Scores, and predictions against what was observed."""
    n, p = len(evaluation.observed), evaluation.prediction
    how = (f"Each of {plural(n, 'row')} was predicted by a model fitted without it ({evaluation.folds}-fold "
           "cross-validation)." if evaluation.folds else
           f"The fitted model on {plural(n, 'row')} of {PurePath(evaluation.table.source).name}.")  # fmt: skip
    table = _scores(evaluation)
    if p.mean is not None:
        assert p.std is not None
        drawn = sample_rows(n)
        y, mean, std = evaluation.observed[drawn], p.mean[drawn], p.std[drawn]
        figures = [
            draw(lambda ax: draw_predictions(y, mean, std, ax),
                 "Predicted against observed targets. Error bars that miss the diagonal are red."),
            draw(lambda ax: plot.ResidualsDisplay.from_predictions(y, mean, std, ax=ax),
                 "Residuals. A trend or a funnel means that the model misses something."),
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
        f"<td class=n>{text(format_with_error(s.value, s.error))}</td>"
        f"<td class=n>{text(s.low)} to {text(s.high)}</td></tr>"
        for s in evaluation.scores
    )
    return frame_table("<th>score</th><th class=n>value ± standard error</th><th class=n>95% interval</th>", lines)


def _confusion(classes: np.ndarray, observed: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, list[str]]:
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (np.searchsorted(classes, observed), np.searchsorted(classes, predicted)), 1)
    return counts, [str(label) for label in classes]


def calibration_section(pipeline: Pipeline, evaluation: Evaluation, draw: Draw) -> str:
    """Whether error bars or probabilities come true."""
    p, y = evaluation.prediction, evaluation.observed
    if p.proba is not None:
        proba, classes = p.proba, pipeline[-1].classes_
        words = ("Rows are grouped by their predicted probability. In each group the observed share should equal it, "
                 "on the dashed line.")  # fmt: skip
        figure = draw(lambda ax: plot.CalibrationDisplay.from_probabilities(y, proba, classes, ax=ax), words, 5.4, 4.6)
    else:
        assert p.quantiles is not None
        quantiles = p.quantiles
        words = ("How often intervals of each nominal coverage held the target. Below the dashed line the error bars "
                 "are too narrow, above it too wide.")  # fmt: skip
        figure = draw(lambda ax: plot.CalibrationDisplay.from_quantiles(y, quantiles, ax=ax), words, 5.4, 4.6)
    return figure_grid([figure])


def importance_section(pipeline: Pipeline, importance: Importance, draw: Draw) -> str:
    """How much each column matters."""
    names, measure = importance.names[:MAX_BARS], f"rise of the {importance.measure}"
    loss, error, height = importance.loss[:MAX_BARS], importance.error[:MAX_BARS], 1.1 + 0.34 * len(names)
    shuffled = plot.FeatureRelevanceDisplay(loss, [shorten(name) for name in names], error, measure)
    words = f"How much worse the predictions become ({importance.measure}) when a column's cells are shuffled."
    figures = [draw(shuffled.plot, words, 6.4, height)]
    shares = sorted(learned_relevance(pipeline).items(), key=lambda item: -item[1])[:MAX_BARS]
    if shares:
        labels, values = [shorten(name) for name, _ in shares], [value for _, value in shares]
        learned = plot.FeatureRelevanceDisplay(values, labels, None, "relevance, as a share")
        words = ("How steep the fitted function is along each column: its share in the mean squared slope."
                 if hasattr(pipeline[-1], "selection_") else
                 "Relevance by the learned widths: the share of each column in the distances.")  # fmt: skip
        figures.append(draw(learned.plot, words, 6.4, height))
    errors = map(round_uncertainty, importance.error.tolist())
    found = list(zip(importance.names, importance.loss.tolist(), errors, strict=True))
    table = html_table(("column", measure, "±"), found, (1, 2))
    return figure_grid(figures) + table


def effects_section(pipeline: Pipeline, curves: Sequence[Dependence], draw: Draw) -> str:
    """How the predictions depend on the columns that matter most."""
    target = pipeline["columns"].target.name
    figures = [draw(lambda ax, curve=curve: _draw_dependence(ax, curve), f"{curve.name}", 4.4, 3.2) for curve in curves]
    what = "probability" if pipeline["columns"].task == "classification" else f"prediction of {target}"
    words = (f"The mean {what} when one column is set to a value in every row and the others stay as they are. Thin "
             "lines are single rows; where they cross, columns interact.")  # fmt: skip
    if pipeline["columns"].task == "classification":
        words += f" Drawn for the class {format_cell(curves[0].label)}." if curves else ""
    return f"<p>{text(words)}</p>{figure_grid(figures, 'figures small')}"


def _draw_dependence(ax: Any, curve: Dependence) -> None:
    if curve.labels is not None:
        places = np.arange(len(curve.labels))
        ax.plot(places, curve.rows.T, color=plot.POINT, lw=0.5, alpha=0.3)
        ax.plot(places, curve.mean, "o", color=plot.LINE, ms=8)
        ax.set_xticks(places, [shorten(label, 14) for label in curve.labels], rotation=30, ha="right", parse_math=False)
        ax.set_xlim(-0.5, len(places) - 0.5)
    else:
        ax.plot(curve.grid, curve.rows.T, color=plot.POINT, lw=0.5, alpha=0.3)
        ax.plot(curve.grid, curve.mean, color=plot.LINE, lw=2.2)
        ax.margins(x=0.01)
        if curve.dates:
            ax.tick_params(axis="x", rotation=30)
    ax.spines[["top", "right"]].set_visible(False)


def vectors_section(pipeline: Pipeline) -> str:
    """The relevance vectors as rows of the table."""
    header, rows = vectors_of(pipeline)
    hidden = len(rows) - MAX_VECTORS
    more = f"{plural(hidden, 'more vector')}; relvec inspect --json lists all." if hidden > 0 else ""
    words = ("The prediction is a weighted sum of similarities to these rows of the training table; the others were "
             "needed only to find them. A large weight does not make a row important: weights of opposite sign may "
             "nearly cancel.")  # fmt: skip
    rest = f'<p class="soft">{text(more)}</p>' if more else ""
    numbers = [i for i, name in enumerate(header) if name == "row" or name.startswith("weight")]
    return f"<p>{text(words)}</p>{html_table(header, rows[:MAX_VECTORS], numbers, 'rows')}{rest}"


def preparation_section(pipeline: Pipeline) -> str:
    """How the columns were read."""
    step = pipeline["columns"]
    rows = [(c.name, c.kind, c.note or ("scaled to unit variance" if c.is_input else "")) for c in step.columns]
    notes = "".join(f"<li>{text(note)}</li>" for note in step.record_["notes"])
    return html_table(("column", "kind", "what was done"), rows) + (f"<ul>{notes}</ul>" if notes else "")


def fit_section(pipeline: Pipeline, draw: Draw) -> str:
    """How the fit went, and its options."""
    step, model = pipeline["columns"], pipeline[-1]
    facts = [*summary(pipeline), ("seconds", f"{step.record_['seconds']:.2f}")]
    facts += [(name, repr(value)) for name, value in sorted(model.get_params(deep=False).items())]
    table = html_table(("what", "value"), facts)
    if hasattr(model, "selection_"):
        return table + _compared_section(getattr(model.selection_, "entries", model.selection_))
    figure = draw(
        lambda ax: plot.HistoryDisplay.from_estimator(model, ax=ax), "Evidence and size by step of the search."
    )
    return table + figure_grid([figure])


def _compared_section(records: Sequence[Any]) -> str:
    """What was compared before the kernel was chosen, a row a candidate."""
    names = [field.name for field in fields(records[0])]
    rows = [[_compared_cell(getattr(record, name)) for name in names] for record in records]
    numbers = [i for i, name in enumerate(names) if isinstance(getattr(records[0], name), float | int)]
    words = "Kernels that were compared, the best first; those with a share make the predictions."
    return f"<p>{text(words)}</p>" + html_table([name.replace("_", " ") for name in names], rows, numbers)


def _compared_cell(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else ""
    return f"{value:.4g}" if isinstance(value, float) and np.isfinite(value) else "" if value != value else str(value)
