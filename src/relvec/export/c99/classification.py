"""Labels and probabilities of classes in C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from relvec.export.c99.kernels import add_columns
from relvec.export.c99.regression import join_expansions
from relvec.export.c99.source import (
    Source,
    add_dot,
    add_squares,
    format_double,
    open_body,
    quote,
    write_dot,
    write_squares,
)
from relvec.export.exported import ExportedModel
from relvec.gaussian_process.classes import ClassModel
from relvec.gaussian_process.classes.expansion import expand_members, log_prior_odds
from relvec.inference.conformal import OWN_SHARE
from relvec.inference.likelihoods import MIN_RELATIVE_PIVOT, logistic_nodes, softmax_points
from relvec.inference.predictive import LatentPredictor
from relvec.inference.process import LinearExpansion


def add_classification(source: Source, model: ExportedModel, prepared: bool) -> None:
    """NAME_labels, NAME_predict(x) and NAME_predict_proba(x, p); ``prepared`` if steps of a pipeline come before."""
    if type(model.predictors[0]) is ClassModel:
        add_class_process(source, model, model.predictors[0], prepared)
        _add_set(source, model.thresholds)
        return
    if any(type(predictor) is not LatentPredictor for predictor in model.predictors):
        raise NotImplementedError(
            f"to_c cannot translate the predictive distribution {type(model.predictors[0]).__name__}"
        )
    assert model.classes is not None
    add_columns(source, model.basis)
    K, softmax = len(model.classes), len(model.classes) > 2 and len(model.predictors) == 1
    add_labels(source, model.classes)
    functions = [pair for predictor in model.predictors for pair in _dense_weights(predictor)]
    if model.averaged and softmax:
        _add_softmax(source, functions, K)
    elif model.averaged:
        _add_logistic(source)
        if any(root.size for _, root in functions):
            add_squares(source)
    add_dot(source)
    write = _write_softmax if softmax else _write_logistic
    locals_, lines = write(source, functions, K, model.averaged)
    _add_predictions(source, prepared, locals_, lines)
    _add_set(source, model.thresholds)


def add_class_process(source: Source, model: ExportedModel, process: ClassModel, prepared: bool) -> None:
    """The same functions for a process (`relvec.gaussian_process.classes.expansion`)."""
    assert model.classes is not None
    members = expand_members(process, model.n_features)
    basis, functions = join_expansions([f for member in members for f in member.functions], model.n_features)
    add_columns(source, basis)
    add_labels(source, model.classes)
    add_squares(source)
    add_dot(source)
    rates, each = log_prior_odds(process), iter(functions)
    lines = [f"    g[{c}] = {format_double(rate)};" for c, rate in enumerate(rates)]
    for member in members:
        slope, moderation = format_double(member.slope), format_double(member.moderation)
        for c in range(len(rates)):
            function = next(each)
            if c == 0:
                lines.append(f"    l = {_write_left_out(source, function)};")
            lines += [f"    f = {write_dot(source, function.weights)};", write_squares(source, function.root)]
            lines.append(f"    g[{c}] += {slope} * f / sqrt(1.0 + {moderation} * (v + l));")
    locals_ = [f"    double g[{len(rates)}], f, v, l;"]
    if len(rates) == 1:
        lines.append("    p[0] = 1.0 / (1.0 + exp(g[0]));\n    p[1] = 1.0 / (1.0 + exp(-g[0]));")
    else:
        locals_.append("    double s = 0.0, top;\n    int c;")
        lines += _write_normalised("g")
    _add_predictions(source, prepared, locals_, lines)


def _write_left_out(source: Source, function: LinearExpansion) -> str:
    """An expression for the variance that the vectors leave out."""
    if not function.prior:
        return "0.0"
    known = f"@squares(phi, {source.table(function.represented, 's')}, {function.represented.shape[1]})"
    return f"fmax({format_double(function.prior)} - {known}, 0.0)"


def add_labels(source: Source, classes: np.ndarray) -> None:
    """NAME_CLASSES, NAME_labels, and the functions that a model declares."""
    K = len(classes)
    source.constant("CLASSES", K)
    labels = ", ".join(quote(label) for label in classes.tolist())
    source.add(f"extern const char *const @labels[{K}];\nconst char *const @labels[{K}] = {{{labels}}};")
    source.add("int @predict(const double *x);\nvoid @predict_proba(const double *x, double *p);")


def _add_predictions(source: Source, prepared: bool, locals_: list[str], lines: list[str]) -> None:
    """NAME_predict_proba of these variables and statements, and NAME_predict."""
    head = open_body(prepared, "\n".join(locals_))
    source.add(f"void @predict_proba(const double *x, double *p)\n{{\n{head}" + "\n".join(lines) + "\n}")
    source.add("""int @predict(const double *x)
{
    double p[@CLASSES];
    int c, best = 0;
    @predict_proba(x, p);
    for (c = 1; c < @CLASSES; c++) if (p[c] > p[best]) best = c;
    return best;
}""")


def _add_set(source: Source, thresholds: np.ndarray | None) -> None:
    """NAME_predict_set(x, members), of a calibrated model: `class_scores`, and the most probable class."""
    if thresholds is None:
        return
    source.add(f"""void @predict_set(const double *x, int *members);
void @predict_set(const double *x, int *members)
{{
    double p[@CLASSES];
    int a, c, best = 0;
    @predict_proba(x, p);
    for (c = 0; c < @CLASSES; c++) {{
        double s = {format_double(OWN_SHARE)} * p[c];
        for (a = 0; a < @CLASSES; a++) if (p[a] > p[c] || (p[a] == p[c] && a < c)) s += p[a];
        members[c] = s <= {format_double(thresholds[0])};
        if (p[c] > p[best]) best = c;
    }}
    members[best] = 1;
}}""")


Functions = Sequence[tuple[np.ndarray, np.ndarray]]  # mean (m, 1) and root (m, k) of the weights of each function
_NORMALISE = "    for (c = 0; c < @CLASSES; c++) p[c] = s > 0.0 ? p[c] / s : 1.0 / @CLASSES;"


def _write_softmax(source: Source, functions: Functions, K: int, averaged: bool) -> tuple[list[str], list[str]]:
    """Local variables and statements for the probabilities p of a softmax."""
    locals_ = [f"    double f[{K}];"]
    lines = [f"    f[{c}] = {write_dot(source, mean)};" for c, (mean, _) in enumerate(functions)]
    if averaged:
        return locals_, [*lines, "    @average(phi, f, p);"]
    return [*locals_, "    double s = 0.0, top;\n    int c;"], [*lines, *_write_normalised("f")]


def _write_normalised(f: str) -> list[str]:
    """Statements for p = softmax(f), with the variables s = 0, top and c."""
    largest = f"    top = {f}[0];\n    for (c = 1; c < @CLASSES; c++) if ({f}[c] > top) top = {f}[c];"
    total = f"    for (c = 0; c < @CLASSES; c++) s += (p[c] = exp({f}[c] - top));"
    return [largest, total, _NORMALISE]


def _write_logistic(source: Source, functions: Functions, K: int, averaged: bool) -> tuple[list[str], list[str]]:
    """Local variables and statements for the probabilities p of one dichotomy, or of each class against the rest."""
    locals_, lines = [f"    double f[{len(functions)}];"], []
    if averaged:
        locals_.append("    double v;")
    for c, (mean, root) in enumerate(functions):
        lines.append(f"    f[{c}] = {write_dot(source, mean)};")
        if averaged:
            lines.append(write_squares(source, root))
        lines.append(f"    f[{c}] = " + (f"@logistic(f[{c}], v);" if averaged else f"1.0 / (1.0 + exp(-f[{c}]));"))
    if K == 2:
        return locals_, [*lines, "    p[0] = 1.0 - f[0];\n    p[1] = f[0];"]
    total = "    for (c = 0; c < @CLASSES; c++) s += (p[c] = f[c]);"
    return [*locals_, "    double s = 0.0;\n    int c;"], [*lines, total, _NORMALISE]


def _dense_weights(predictor: LatentPredictor) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each latent function its weights (m, 1) and the root (m, k) of their covariance, in units of the basis."""
    m = len(predictor.scale)
    for output in range(predictor.n_outputs):
        own = np.flatnonzero(predictor.outputs == output)
        atoms = predictor.places[own]
        mean, root = np.zeros((m, 1)), np.zeros((m, predictor.root.shape[1]))
        mean[atoms, 0] = predictor.mean[own] / predictor.scale[atoms]
        root[atoms] = predictor.root[own] / predictor.scale[atoms, None]
        yield mean, root


def _add_logistic(source: Source) -> None:
    """NAME_logistic(f, v): E[1 / (1 + exp(-f))], as `logistic_log_odds`."""
    (z, _), (e, _), wide = logistic_nodes()
    normal = format_double((z[1] - z[0]) / np.sqrt(2.0 * np.pi))
    source.add(f"""static double @logistic(double mean, double variance)
{{
    const double size = fabs(mean), deviation = sqrt(variance);
    double s = 0.0;
    int i;
    if (deviation > {format_double(wide)}) {{
        for (i = 0; i < {len(e)}; i++) {{
            const double e = {format_double(e[0])} + {format_double(e[1] - e[0])} * i, q = exp(-fabs(e));
            s += {format_double(e[1] - e[0])} * q / ((1.0 + q) * (1.0 + q))
                * 0.5 * erfc((size - e) / deviation * {format_double(np.sqrt(0.5))});
        }}
    }} else {{
        for (i = 0; i < {len(z)}; i++) {{
            const double z = {format_double(z[0])} + {format_double(z[1] - z[0])} * i;
            s += {normal} * exp(-0.5 * z * z) / (1.0 + exp(size + deviation * z));
        }}
    }}
    if (s > 0.5) s = 0.5;
    return mean > 0.0 ? 1.0 - s : s;
}}""")


def _add_softmax(source: Source, functions: Functions, K: int) -> None:
    """NAME_average(phi, f, p): E[softmax(f)], as `softmax_normal`."""
    k = max(functions[0][1].shape[1], 1)
    roots = [root if root.size else np.zeros((max(len(root), 1), k)) for _, root in functions]
    root = source.table(np.concatenate(roots), "s")
    half = softmax_points(K)[:, :512]
    points = source.table(half, "q")
    source.add(f"""static void @average(const double *phi, const double *f, double *p)
{{
    double T[{K}][{k}], A[{K}][{K}], L[{K}][{K - 1}], g[{K}];
    double least = 0.0, total = 0.0;
    int a, b, i, j;
    for (j = 0; j < {k}; j++) {{
        double middle = 0.0;
        for (a = 0; a < {K}; a++) {{
            T[a][j] = 0.0;
            for (i = 0; i < @ATOMS; i++) T[a][j] += phi[i] * {root}[(a * @ATOMS + i) * {k} + j];
            middle += T[a][j] / {K}.0;
        }}
        for (a = 0; a < {K}; a++) T[a][j] -= middle;
    }}
    for (a = 0; a < {K}; a++) {{
        for (b = 0; b < {K}; b++) {{
            A[a][b] = 0.0;
            for (j = 0; j < {k}; j++) A[a][b] += T[a][j] * T[b][j];
        }}
        least += {format_double(MIN_RELATIVE_PIVOT)} * A[a][a];
        p[a] = 0.0;
    }}
    for (j = 0; j < {K - 1}; j++) {{
        const double pivot = A[j][j];
        for (a = 0; a < {K}; a++) L[a][j] = pivot > least ? A[a][j] / sqrt(pivot) : 0.0;
        for (a = 0; a < {K}; a++)
            for (b = 0; b < {K}; b++) A[a][b] -= L[a][j] * L[b][j];
    }}
    for (i = 0; i < {2 * half.shape[1]}; i++) {{
        const double sign = i < {half.shape[1]} ? 1.0 : -1.0;
        double top = 0.0, s = 0.0;
        for (a = 0; a < {K}; a++) {{
            g[a] = f[a];
            for (j = 0; j < {K - 1}; j++) g[a] += sign * L[a][j] * {points}[j * {half.shape[1]} + i % {half.shape[1]}];
            if (a == 0 || g[a] > top) top = g[a];
        }}
        for (a = 0; a < {K}; a++) s += (g[a] = exp(g[a] - top));
        for (a = 0; a < {K}; a++) p[a] += g[a] / s;
    }}
    for (a = 0; a < {K}; a++) total += p[a];
    for (a = 0; a < {K}; a++) p[a] /= total;
}}""")
