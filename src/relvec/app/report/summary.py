"""Facts about a fitted pipeline: its size, noise and kernels, relevance, widths, and the rows it rests on."""

from __future__ import annotations

import numpy as np
from sklearn.pipeline import Pipeline

from relvec.app.tables.families import family_of
from relvec.app.tables.pipelines import encoded_columns
from relvec.app.tables.text import format_cell, plural, whole_percents
from relvec.estimators.base import BaseModel
from relvec.estimators.records import Fitted
from relvec.plot.search import find_relevance

__all__ = ["format_width", "learned_relevance", "learned_widths", "summary", "vectors_of"]

MAX_LISTED_COLUMNS = 8
MOST_STANDARD_DEVIATIONS = 1000.0  # a width beyond is not told: the function is straight along the column
SAME_WIDTHS = 0.1  # widths that differ by less are one: units that were found from a draw of the rows differ a little
RELEVANCE_MEANING = "shares in the fitted function; relvec evaluate tells how much predictions need a column"
WIDTH_RULES = {
    "given": "as given",
    "scale": "from the scale of the inputs",
    "learn": "learned by the evidence",
    "learn-per-feature": "learned by the evidence",
    "process": "learned by a process",
}


def learned_relevance(pipeline: Pipeline) -> dict[str, float]:
    """Return the relevance of the table's columns, as shares; empty where the fit has learned none.

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
    """Return the width of the kernel along each column, in standard deviations; empty where there is one for all.

    Of a column that became several inputs it is the smallest. Of a process it is that of the part that counts most.

    >>> from relvec import RVR
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "z": [1.0, 0.0, 0.0, 1.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> learned_widths(fit_table(table, "y", model=RVR(width=[1.0, 2.0])).pipeline)
    {'x': 1.0, 'z': 2.0}
    """
    names, found = (
        encoded_columns(pipeline),
        np.asarray(0.0 if pipeline[-1].fitted_.width is None else pipeline[-1].fitted_.width),
    )
    if found.shape != (len(names),) or np.ptp(found) <= SAME_WIDTHS * found.max():
        return {}
    widths: dict[str, float] = {}
    for name, value in zip(names, found.tolist(), strict=True):
        widths[name] = min(value, widths.get(name, np.inf))
    return widths


def format_width(width: float) -> str:
    """Return two digits of a width in standard deviations; words for one that no data can tell from infinity.

    >>> format_width(0.6543), format_width(157.3), format_width(1e45)
    ('0.65', '157', 'nearly straight')
    """
    if width > MOST_STANDARD_DEVIATIONS:
        return "nearly straight"
    return f"{width:.2g}" if width < 100.0 else f"{width:.0f}"


def summary(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return the facts about a fitted model, as names and words.

    >>> from relvec.app.tables.pipelines import fit_table
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> summary(fitted.pipeline)[0]
    ('rows kept', '... of 4 rows (... kept)')
    """
    step, fitted = pipeline["columns"], pipeline[-1].fitted_
    facts = [_size_in_words(pipeline[-1], step.record_["rows"])]
    if step.task == "regression":
        units = "on the logarithmic scale of the target" if fitted.log_scale else "in the target's units"
        noise = format_cell(float(np.sqrt(fitted.noise_variance[0])))
        facts.append(("noise", f"{noise} (standard deviation, {units})"))
    facts += _noise_facts(pipeline, fitted)
    if fitted.compared:
        facts.append(("kernel", f"{_kernels_in_words(fitted)}, chosen by {fitted.chosen_by}"))
    elif fitted.width is not None:
        facts.append(("width", _width_in_words(fitted)))
    if fitted.extrapolation:
        facts.append(("far from the data", fitted.extrapolation))
    if fitted.calibration is not None:
        what = "sets of classes" if step.task == "classification" else "intervals"
        found = fitted.calibration
        told, most = plural(found.n_rows, "row"), found.max_coverage
        told = told if found.shares is None else f"{told} of {plural(found.n_groups, 'group')}"
        facts.append(("calibrated", f"on {told}: {what} hold their coverage, up to {most:.1%}, for new "
                      "rows drawn like these"))  # fmt: skip
    facts.append(("log evidence", f"{np.sum(fitted.log_evidence):.2f}"))
    return [*facts, ("status", ", ".join(dict.fromkeys(fitted.status)))]


def _size_in_words(model: BaseModel, rows: int) -> tuple[str, str]:
    """Describe how much the model keeps, and of what."""
    fitted = model.fitted_
    if family_of(model) == "linear":
        return "columns kept", f"{fitted.n_kept:,}: a linear model keeps no row"
    return "rows kept", f"{len(fitted.kept_rows):,} of {plural(rows, 'row')} ({fitted.size})"


def _noise_facts(pipeline: Pipeline, fitted: Fitted) -> list[tuple[str, str]]:
    """Describe what was learned of noise that is not normal with one variance."""
    facts, noise = [], fitted.noise
    if noise is not None and noise.degrees is not None:
        rows = pipeline["columns"].record_.get("outliers", [])
        facts.append(("outliers", _outliers_in_words(noise.degrees, rows)))
    if noise is not None and noise.n_censored is not None:
        facts.append(("censored", f"{plural(noise.n_censored, 'target')} known by an interval only"))
    if fitted.noise_columns is not None:
        names = [*encoded_columns(pipeline), "the prediction"]
        listed = ", ".join(dict.fromkeys(names[i] for i in fitted.noise_columns[0]))
        facts.append(("noise depends on", listed or "nothing: one variance explains the targets as well"))
    return facts


def column_facts(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return the relevance of the columns, or the widths of a kernel along them where no relevance was learned.

    They describe the kernels; how much predictions need a column is measured by shuffling rows held out.
    """
    relevance = sorted(learned_relevance(pipeline).items(), key=lambda item: -item[1])
    if relevance:
        shares = zip(relevance, whole_percents([share for _, share in relevance]), strict=True)
        listed = ", ".join(f"{name} {share}%" for (name, _), share in list(shares)[:MAX_LISTED_COLUMNS] if share)
        return [("relevance", f"{listed} ({RELEVANCE_MEANING})")]
    if pipeline[-1].fitted_.compared or not (widths := learned_widths(pipeline)):  # those of one part of a process
        return []
    ordered = sorted(widths.items(), key=lambda item: item[1])[:MAX_LISTED_COLUMNS]
    listed = ", ".join(f"{name} {format_width(width)}" for name, width in ordered)
    return [("widths", f"{listed} (in standard deviations of the column; not how much it matters)")]


def _outliers_in_words(degrees: float, rows: list[int]) -> str:
    """Return rows that count little, and how heavy the tails of the noise are."""
    listed = ", ".join(map(str, rows[:MAX_LISTED_COLUMNS])) + (", ..." if len(rows) > MAX_LISTED_COLUMNS else "")
    tails = f"Student-t noise with {degrees:.3g} degrees of freedom"
    return f"{plural(len(rows), 'row')}{': ' if rows else ''}{listed} ({tails})"


def _kernels_in_words(fitted: Fitted) -> str:
    """Return the kernels that predict, with their shares."""
    used = [record for record in fitted.compared if record.share > 0.0]
    if len(used) == 1:
        return str(used[0].name)
    shares = whole_percents([record.share for record in used])
    return ", ".join(f"{record.name} ({share}%)" for record, share in zip(used, shares, strict=True))


def _width_in_words(fitted: Fitted) -> str:
    """Describe how the widths were found, and the width where there is one for all inputs."""
    one = np.ravel(fitted.width)
    parts = [f"one for each of {len(one)} inputs" if len(one) > 1 else f"{one[0]:.4g} for all inputs"]
    if fitted.width_rule is not None:
        parts.append(WIDTH_RULES.get(fitted.width_rule, f"by the rule {fitted.width_rule!r}"))
    return ", ".join(parts)


def vectors_of(pipeline: Pipeline) -> tuple[list[str], list[list[object]]]:
    """Return header and rows of the training rows that were kept and what is known of each, the largest first.

    >>> from relvec import RVR
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> vectors_of(fit_table(table, "y", model=RVR(width=2.0)).pipeline)[0]
    ['row', 'weight', 'y', 'x']
    """
    notes, kept = pipeline[-1].fitted_.row_notes, pipeline["columns"].record_["relevance"]
    classes = pipeline["columns"].target.levels
    names = list(notes)
    if len(names) > 1 and len(names) == len(classes):
        names = [f"weight {label}" for label in classes]
    target = pipeline["columns"].target.name
    columns = [target, *(name for name in kept["columns"] if name != target)]
    cells = list(zip(*[kept["columns"][name] for name in columns], strict=True))
    known = list(zip(*notes.values(), strict=True)) or [()] * len(cells)
    order = list(range(len(cells)))
    if known and known[0] and not isinstance(known[0][0], str):
        order.sort(key=lambda i: -max(map(abs, known[i])))
    return ["row", *names, *columns], [[kept["rows"][i], *known[i], *cells[i]] for i in order]
