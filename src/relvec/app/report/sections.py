"""The sections of the report, each as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
from sklearn.metrics import confusion_matrix, roc_curve
from sklearn.pipeline import Pipeline

from relvec import plot
from relvec.app.report.facts import Facts, LearningCurve, table_columns
from relvec.app.report.html import Draw, figure_grid, fold, html_table, sample_rows, shorten, text
from relvec.app.report.summary import vectors_of
from relvec.app.tables.evaluation import BASELINE_MEANING, SCORE_HEADER, Evaluation
from relvec.app.tables.importance import Dependence, Importance
from relvec.app.tables.text import format_cell, format_to_error, format_with_error, plural
from relvec.plot.axes import CLASSES, DASHED
from relvec.plot.fit import draw_predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from relvec.gaussian_process import Compared

MAX_VECTORS = 30  # relevance vectors listed
MAX_OPEN_ROWS = 8  # of a long table; the others are shown on demand
MAX_BARS = 15


def summary_section(pipeline: Pipeline, facts: Facts) -> str:
    """Write the result in plain words, the main numbers, and warnings."""
    step, model = pipeline["columns"], pipeline[-1]
    cards = [(format_with_error(s.value, s.error), f"{s.name}: {s.meaning}", format_to_error(s.baseline, s.error))
             for s in (facts.scores[0], facts.scores[2])]  # fmt: skip
    if step.task == "regression":
        noise = format_cell(float(f"{np.sqrt(model.noise_variance_):.3g}"))
        units = "" if "logarithmic" not in dict(facts.model)["noise"] else ", on a logarithmic scale"
        cards.append((noise, f"noise: the standard deviation that no column explains{units}", ""))
    if kept := len(model.fitted_.kept_rows):
        cards.append((f"{kept:,} of {step.record_['rows']:,}", "training rows kept by the model", ""))
    words = [(value, f"{what} (baseline {base})" if base else what) for value, what, base in cards]
    listed = "".join(f'<div class="card"><b>{text(value)}</b><span>{text(what)}</span></div>' for value, what in words)
    plain = "".join(f"<p>{text(sentence)}</p>" for sentence in facts.sentences)
    return f'<div class="plain">{plain}</div>{_list_warnings(facts.warnings)}<div class="cards">{listed}</div>'


def _list_warnings(found: Sequence[str]) -> str:
    if not found:
        return '<ul class="warnings fine"><li>No warnings.</li></ul>'
    return f'<ul class="warnings">{"".join(f"<li>{text(sentence)}</li>" for sentence in found)}</ul>'


def quality_section(pipeline: Pipeline, evaluation: Evaluation, facts: Facts, draw: Draw) -> str:
    """Write the scores, predictions against what was observed, and how the error falls with more rows."""
    p, figures, after = evaluation.prediction, [], ""
    if p.mean is not None:
        assert p.std is not None
        drawn = sample_rows(len(evaluation.observed))
        y, mean, std = evaluation.observed[drawn], p.mean[drawn], p.std[drawn]
        figures += [
            draw(lambda ax: draw_predictions(y, mean, std, ax),
                 "Predicted against observed targets. Error bars that miss the diagonal are red."),
            draw(lambda ax: plot.ResidualsDisplay.from_predictions(y, mean, std, ax=ax),
                 "Residuals. A trend or a funnel means that the model misses something."),
        ]  # fmt: skip
    else:
        assert p.proba is not None and p.label is not None
        proba, classes = p.proba, pipeline[-1].classes_
        figures.append(draw(lambda ax: draw_roc(ax, evaluation.observed, proba, classes),
                            "ROC: the share of a class that is found, against the share of other rows taken for it. A "
                            "guess lies on the dashed line.", 5.4, 4.6))  # fmt: skip
        counts = confusion_matrix(evaluation.observed, p.label, labels=classes)
        labels = [str(label) for label in classes]
        rows = [(label, *map(int, row)) for label, row in zip(labels, counts, strict=True)]
        confusion = html_table(("observed \\ predicted", *labels), rows, range(1, len(labels) + 1))
        after = f"<h3>Observed and predicted classes</h3>{confusion}"
    if (curve := facts.curve) is not None:
        figures.append(draw(lambda ax: _draw_curve(ax, curve),
                            "Would more rows help? The error of models fitted to a part of the rows, at rows that took "
                            "no part. If it still falls on the right, more rows help.", 5.4, 4.0))  # fmt: skip
    return f"<p>{text(facts.how)}</p>{_table_scores(facts)}{figure_grid(figures)}{after}"


def _table_scores(facts: Facts) -> str:
    rows, meanings = [score.cells()[:-1] for score in facts.scores], [score.meaning for score in facts.scores]
    table = html_table(SCORE_HEADER[:-1], rows, (1, 2, 3), notes=meanings)
    return f'{table}<p class="soft">{text(BASELINE_MEANING.capitalize())}.</p>'


def draw_roc(ax: Axes, observed: np.ndarray, proba: np.ndarray, classes: np.ndarray) -> None:
    """Write ROC curves: of the second of two classes, or of each against the rest."""
    shown = [1] if len(classes) == 2 else range(min(len(classes), len(CLASSES)))
    for k in shown:
        positive = observed == classes[k]
        if positive.any() and not positive.all():
            false, true, _ = roc_curve(positive, proba[:, k])
            ax.plot(false, true, lw=2, color=CLASSES[k % len(CLASSES)], label=shorten(str(classes[k]), 16))
    ax.plot([0, 1], [0, 1], color=plot.TRUTH, lw=1, ls=DASHED)
    ax.set(xlabel="share of other rows", ylabel="share of the class", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    ax.spines[["top", "right"]].set_visible(False)
    for label in ax.legend(frameon=False, fontsize="small", loc="lower right").get_texts():
        label.set_parse_math(False)  # names come from data


def _draw_curve(ax: Axes, curve: LearningCurve) -> None:
    ax.plot(curve.rows, curve.error, "o-", color=plot.LINE)
    ax.set(xlabel="rows fitted", ylabel=curve.measure, xscale="log")
    ax.set_xticks(curve.rows, [f"{n:,}" for n in curve.rows])
    ax.minorticks_off()
    ax.set_ylim(0, 1.1 * float(curve.error.max()))
    ax.spines[["top", "right"]].set_visible(False)


def worst_section(facts: Facts) -> str:
    """Write the rows whose prediction missed most."""
    header, rows = facts.worst
    if not rows:
        return "<p>Every row was predicted right.</p>"
    words = "Look at these first: a wrong cell, a rare case, or something that no column records."
    numbers = [i for i, cell in enumerate(rows[0]) if isinstance(cell, float | int)]
    return f"<p>{text(words)}</p>{html_table(header, rows, numbers)}"


def calibration_section(pipeline: Pipeline, evaluation: Evaluation, draw: Draw) -> str:
    """Show whether error bars or probabilities come true."""
    p, y = evaluation.prediction, evaluation.observed
    if p.proba is not None:
        proba, classes = p.proba, pipeline[-1].classes_
        words = ("Rows are grouped by their predicted probability. In each group the observed share should equal it, "
                 "on the dashed line.")  # fmt: skip
        figure = draw(lambda ax: plot.CalibrationDisplay.from_probabilities(y, proba, classes, ax=ax), words, 5.4, 4.6)
        curve = getattr(pipeline[-1], "calibration_curve_", np.zeros((0, 3)))
        if len(curve):
            folds = plot.CalibrationDisplay(curve[:, 0], curve[:, 1], curve[:, 2], classes=True)
            words = "The same for training rows that the fit held out: its probabilities are calibrated on them."
            return figure_grid([figure, draw(folds.plot, words, 5.4, 4.6)])
    else:
        assert p.quantiles is not None
        quantiles = p.quantiles
        words = ("How often intervals of each nominal coverage held the target. Below the dashed line the error bars "
                 "are too narrow, above it too wide.")  # fmt: skip
        figure = draw(lambda ax: plot.CalibrationDisplay.from_quantiles(y, quantiles, ax=ax), words, 5.4, 4.6)
    return figure_grid([figure])


def importance_section(importance: Importance, draw: Draw) -> str:
    """Describe how much each column matters."""
    loss, error = importance.loss[:MAX_BARS], importance.error[:MAX_BARS]
    names = [shorten(name) for name in importance.names[:MAX_BARS]]
    bars = plot.FeatureRelevanceDisplay(loss, names, error, f"rise of the {importance.measure}")
    return figure_grid([draw(bars.plot, importance.meaning, 6.4, 1.1 + 0.34 * len(names))]) + html_table(
        *table_columns(importance), numbers=(1,)
    )


def effects_section(pipeline: Pipeline, curves: Sequence[Dependence], draw: Draw) -> str:
    """Describe how the predictions depend on the columns that matter most."""
    target = pipeline["columns"].target.name
    figures = [draw(lambda ax, curve=curve: _draw_dependence(ax, curve), f"{curve.name}", 4.4, 3.2) for curve in curves]
    what = "probability" if pipeline["columns"].task == "classification" else f"prediction of {target}"
    words = (f"The mean {what} when one column is set to a value in every row and the others stay as they are. Thin "
             "lines are single rows; where they cross, columns interact.")  # fmt: skip
    if pipeline["columns"].task == "classification":
        words += f" Drawn for the class {format_cell(curves[0].label)}." if curves else ""
    return f"<p>{text(words)}</p>{figure_grid(figures, 'figures small')}"


def _draw_dependence(ax: Axes, curve: Dependence) -> None:
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
    """Write the relevance vectors as rows of the table."""
    header, rows = vectors_of(pipeline)
    if not rows:
        return "<p>The model keeps no row of the table: it is a linear function of the columns, or a constant.</p>"
    if len(rows) == pipeline["columns"].record_["rows"]:
        return "<p>The model keeps every row of the table.</p>"
    hidden = len(rows) - MAX_VECTORS
    more = f"{plural(hidden, 'more vector')}; relvec inspect --json lists all." if hidden > 0 else ""
    words = ("The prediction is a weighted sum of similarities to these rows of the training table; the others were "
             "needed only to find them. A large weight does not make a row important: weights of opposite sign may "
             "nearly cancel.")  # fmt: skip
    rest = f'<p class="soft">{text(more)}</p>' if more else ""
    numbers = [i for i, name in enumerate(header) if name == "row" or name.startswith("weight")]
    first = html_table(header, rows[:MAX_OPEN_ROWS], numbers, "rows")
    folded = fold("More of them", html_table(header, rows[MAX_OPEN_ROWS:MAX_VECTORS], numbers, "rows") + rest)
    return f"<p>{text(words)}</p>{first}{folded if len(rows) > MAX_OPEN_ROWS else ''}"


def preparation_section(facts: Facts) -> str:
    """Describe how the columns were read."""
    notes = "".join(f"<li>{text(note)}</li>" for note in facts.notes)
    return html_table(("column", "kind", "what was done"), facts.columns) + (f"<ul>{notes}</ul>" if notes else "")


def fit_section(pipeline: Pipeline, facts: Facts, draw: Draw) -> str:
    """Describe how the fit went, and its options."""
    model = pipeline[-1]
    table = html_table(("what", "value"), facts.model)
    table += fold("All options of the estimator", html_table(("option", "value"), facts.options))
    if model.fitted_.compared:
        return table + _compared_section(model.fitted_.compared)
    if not any(map(len, model.fitted_.history)):
        return table  # held-out rows chose the size, not one search
    figure = draw(
        lambda ax: plot.HistoryDisplay.from_estimator(model, ax=ax), "Evidence and size by step of the search."
    )
    return table + figure_grid([figure])


def _compared_section(records: Sequence[Compared]) -> str:
    """Write the candidates compared before the kernel was chosen, one a row."""
    names = [field.name for field in fields(records[0])]
    rows = [[_compared_cell(getattr(record, name)) for name in names] for record in records]
    numbers = [i for i, name in enumerate(names) if isinstance(getattr(records[0], name), float | int)]
    words = f"The {len(rows)} kernels that were compared, the best first; those with a share make the predictions."
    return fold(words, html_table([name.replace("_", " ") for name in names], rows, numbers))


def _compared_cell(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else ""
    return f"{value:.4g}" if isinstance(value, float) and np.isfinite(value) else "" if value != value else str(value)
