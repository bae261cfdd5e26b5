"""Facts about a fitted pipeline: its size, noise and kernels, relevance, widths, and the rows it rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from relvec.app.tables.pipelines import encoded_columns
from relvec.app.tables.text import format_cell, plural
from relvec.plot.relevance import find_relevance

MAX_LISTED_COLUMNS = 8
SAME_WIDTHS = 0.1  # widths that differ by less are one: units that were found from a draw of the rows differ a little
WIDTH_RULES = {
    "given": "as given",
    "scale": "from the scale of the inputs",
    "learn": "learned by the evidence",
    "learn-per-feature": "learned by the evidence",
}


def learned_relevance(pipeline: Pipeline) -> dict[str, float]:
    """Relevance of the table's columns, as shares; empty where the fit has learned none.

    >>> from relvec import RVC
    >>> from relvec.app.tables.pipelines import fit_table
    >>> learned_relevance(fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": list("abab")}, "y", model=RVC(width=1.0)).pipeline)
    {}
    """
    learned, names = find_relevance(pipeline[-1]), encoded_columns(pipeline)
    if learned is None or learned[0].shape != (len(names),):
        return {}
    shares = dict.fromkeys(names, 0.0)
    for name, value in zip(names, learned[0].tolist(), strict=True):
        shares[name] += value
    return shares


def learned_widths(pipeline: Pipeline) -> dict[str, float]:
    """Width of the kernel along each column, in standard deviations; empty where there is one for all.

    Of a column that became several inputs it is the smallest. Of a process it is that of the part that counts most.

    >>> from relvec import RVR
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "z": [1.0, 0.0, 0.0, 1.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> learned_widths(fit_table(table, "y", model=RVR(width=[1.0, 2.0])).pipeline)
    {'x': 1.0, 'z': 2.0}
    """
    names, found = encoded_columns(pipeline), np.asarray(getattr(pipeline[-1], "width_", 0.0))
    if found.shape != (len(names),) or np.ptp(found) <= SAME_WIDTHS * found.max():
        return {}
    widths: dict[str, float] = {}
    for name, value in zip(names, found.tolist(), strict=True):
        widths[name] = min(value, widths.get(name, np.inf))
    return widths


def format_width(width: float) -> str:
    """Two digits of a width, without a power of ten.

    >>> format_width(0.6543), format_width(1575.3)
    ('0.65', '1,575')
    """
    return f"{width:.2g}" if width < 100.0 else f"{width:,.0f}"


def summary(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Facts about a fitted model, as names and words.

    >>> from relvec.app.tables.pipelines import fit_table
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> summary(fitted.pipeline)[0]
    ('vectors kept', '... of 4 rows')
    """
    step, model = pipeline["columns"], pipeline[-1]
    kept = f"{len(model.relevance_):,} of {plural(step.record_['rows'], 'row')}"
    linear = not len(model.relevance_) and hasattr(model, "selection_")
    facts = [("vectors kept", "none: a linear model needs no rows" if linear else kept)]
    if step.task == "regression":
        log_scale = hasattr(model, "merit_") and model.process_.scale.sign != 0
        units = "on the logarithmic scale of the target" if log_scale else "in the target's units"
        facts.append(("noise", f"{format_cell(float(np.sqrt(model.noise_variance_)))} (standard deviation, {units})"))
    if hasattr(model, "degrees_of_freedom_"):
        facts.append(("outliers", _outliers_in_words(model, step.record_.get("outliers", []))))
    if hasattr(model, "n_censored_"):
        facts.append(("censored", f"{plural(model.n_censored_, 'target')} known by an interval only"))
    if hasattr(model, "noise_columns_"):
        names = [*encoded_columns(pipeline), "the prediction"]
        listed = ", ".join(dict.fromkeys(names[i] for i in model.noise_columns_))
        facts.append(("noise depends on", listed or "nothing: one variance explains the targets as well"))
    if hasattr(model, "selection_"):
        rule = "merit" if hasattr(model, "merit_") else "the density of rows held out"
        facts.append(("kernel", f"{_kernels_in_words(model)}, chosen by {rule} (kernel='auto')"))
        width = np.asarray(getattr(model, "width_", np.nan))
        if not learned_widths(pipeline) and np.isfinite(width).all():
            facts.append(("width", f"{format_width(width.flat[0])} for all inputs, in standard deviations"))
    elif hasattr(model, "width_"):
        facts.append(("width", _width_in_words(model)))
    relevance = sorted(learned_relevance(pipeline).items(), key=lambda item: -item[1])
    if relevance:
        listed = ", ".join(f"{name} {share:.0%}" for name, share in relevance[:MAX_LISTED_COLUMNS] if share >= 0.005)
        facts.append(("relevance", f"{listed} (shares of the columns)"))
    widths = sorted(learned_widths(pipeline).items(), key=lambda item: item[1])
    if widths:
        listed = ", ".join(f"{name} {format_width(width)}" for name, width in widths[:MAX_LISTED_COLUMNS])
        facts.append(
            ("widths", f"{listed} (in standard deviations; a large one means nearly straight along the column)")
        )
    if hasattr(getattr(model, "process_", None), "extrapolation"):
        facts.append(("far from the data", model.process_.extrapolation))
    if hasattr(model, "calibration_"):
        what = "sets of classes" if step.task == "classification" else "intervals"
        n, most = model.calibration_.n_rows, model.calibration_.max_coverage
        facts.append(("calibrated", f"on {plural(n, 'row')}: {what} hold their coverage, up to {most:.1%}, for new "
                      "rows drawn like these"))  # fmt: skip
    facts.append(("log evidence", f"{np.sum(model.log_marginal_likelihood_):.2f}"))
    status = model.status_ if isinstance(model.status_, str) else ", ".join(model.status_)
    return [*facts, ("status", status)]


def _outliers_in_words(model: Any, rows: list[int]) -> str:
    """Rows that count little, and how heavy the tails of the noise are."""
    listed = ", ".join(map(str, rows[:MAX_LISTED_COLUMNS])) + (", ..." if len(rows) > MAX_LISTED_COLUMNS else "")
    tails = f"Student-t noise with {model.degrees_of_freedom_:.3g} degrees of freedom"
    return f"{plural(len(rows), 'row')}{': ' if rows else ''}{listed} ({tails})"


def _kernels_in_words(model: Any) -> str:
    """The kernels that predict, with their shares."""
    records = getattr(model.selection_, "entries", model.selection_)  # of classes, of a regression
    used = [record for record in records if record.share > 0.0]
    if len(used) == 1:
        return str(used[0].name)
    return ", ".join(f"{record.name} ({record.share:.0%})" for record in used)


def _width_in_words(model: Any) -> str:
    """How the widths were found, and the width where there is one for all inputs."""
    one = np.ravel(model.width_)
    parts = [f"one for each of {len(one)} inputs" if len(one) > 1 else f"{one[0]:.4g} for all inputs"]
    rule = getattr(model, "width_rule_", None)
    if rule is not None:
        parts.append(WIDTH_RULES.get(rule, f"by the rule {rule!r}"))
    if isinstance(model.width, str) and model.width == "auto":
        parts.append("as width='auto' decided")
    return ", ".join(parts)


def row_weights(model: Any) -> np.ndarray:
    """Weights (R, r) of the rows kept: the sum over the functions centred on a row."""
    weights, rows = np.atleast_2d(model.weights_), model.basis_.rows
    if np.array_equal(model.relevance_, rows[rows >= 0]):
        return weights[:, : len(model.relevance_)]
    found = np.zeros((len(weights), len(model.relevance_)))
    for m in np.flatnonzero(rows >= 0):
        found[:, np.searchsorted(model.relevance_, rows[m])] += weights[:, m]
    return found


def vectors_of(pipeline: Pipeline) -> tuple[list[str], list[list[Any]]]:
    """The rows of the training table that were kept, with their weights: header and rows, the largest first.

    >>> from relvec.app.tables.pipelines import fit_table
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> vectors_of(fitted.pipeline)[0]
    ['row', 'weight', 'y', 'x']
    """
    model, kept = pipeline[-1], pipeline["columns"].record_["relevance"]
    weights = row_weights(model)
    names = ["weight"] if len(weights) == 1 else [f"weight {label}" for label in model.classes_]
    order = np.argsort(-np.abs(weights).max(axis=0), kind="stable")
    target = pipeline["columns"].target.name
    columns = [target, *(name for name in kept["columns"] if name != target)]
    cells = list(zip(*[kept["columns"][name] for name in columns], strict=True))
    rows = [[kept["rows"][i], *(float(w) for w in weights[:, i]), *cells[i]] for i in order]
    return ["row", *names, *columns], rows
