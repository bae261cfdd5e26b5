"""Predictions of regression and of classes in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from relvec.basis import Basis
from relvec.export.c99.source import CSource, RowWriter, format_double, quote
from relvec.export.exported import ExportedModel
from relvec.export.formulas import target_interval, target_moments
from relvec.inference.conformal import OWN_SHARE
from relvec.inference.likelihoods import MIN_RELATIVE_PIVOT, logistic_nodes, softmax_points


def write_regression(source: CSource, model: ExportedModel, prepared: bool, std: bool) -> None:
    """Add NAME_predict(x, mean, std), or NAME_predict(x, mean) without ``std``; ``prepared`` if steps come before.

    A calibrated model has NAME_predict_interval(x, lower, upper) too.
    """
    outputs = model.outputs
    source.constant("OUTPUTS", len(outputs))
    writer = RowWriter(source, [basis for output in outputs for basis in output.bases], prepared)

    def add(name: str, results: tuple[str, ...], assign: Callable[[int], list[str]]) -> None:
        """Add a function that sets results of every output by these statements."""
        head = f"void @{name}(const double *x, {', '.join(f'double *{result}' for result in results)})"
        source.add(f"{head};")
        writer.add_function(head, [line for i in range(len(outputs)) for line in assign(i)])

    def assign_moments(i: int) -> list[str]:
        mean, variance = target_moments(writer, outputs[i], std)
        return [f"mean[{i}] = {mean.name};", *([] if variance is None else [f"std[{i}] = sqrt({variance.name});"])]

    def assign_interval(i: int) -> list[str]:
        assert model.thresholds is not None
        lower, upper = target_interval(writer, outputs[i], model.thresholds[i])
        return [f"lower[{i}] = {lower.name};", f"upper[{i}] = {upper.name};"]

    add("predict", ("mean", "std") if std else ("mean",), assign_moments)
    if model.thresholds is not None:
        add("predict_interval", ("lower", "upper"), assign_interval)


_PROBABILITIES = "void @predict_proba(const double *x, double *p)"


def write_classification(source: CSource, model: ExportedModel, prepared: bool) -> None:
    """Add NAME_labels, NAME_predict(x) and NAME_predict_proba(x, p); ``prepared`` if a pipeline's steps come before."""
    machine = model.machine
    assert model.classes is not None and model.basis is not None and machine is not None
    K = len(model.classes)
    _add_labels(source, model.classes)
    writer = RowWriter(source, [model.basis], prepared)
    functions = [pair for latent in machine.latents for pair in latent.dense_weights()]
    softmax = K > 2 and len(machine.latents) == 1
    write = _write_softmax if softmax else _write_logistic
    variables, results = write(writer, model.basis, functions, K, machine.averaged)
    if machine.slope != 1.0:
        results = [*results, _add_slope(source, machine.slope)]
    writer.add_function(_PROBABILITIES, results, variables)
    if model.thresholds is not None:
        _add_set(source, model.thresholds[0])


def _add_labels(source: CSource, classes: np.ndarray) -> None:
    """Add NAME_CLASSES, NAME_labels, the functions that a model declares, and NAME_predict."""
    K = len(classes)
    source.constant("CLASSES", K)
    labels = ", ".join(quote(label) for label in classes.tolist())
    source.add(f"extern const char *const @labels[{K}];\nconst char *const @labels[{K}] = {{{labels}}};")
    source.add("int @predict(const double *x);\nvoid @predict_proba(const double *x, double *p);")
    source.add("""int @predict(const double *x)
{
    double p[@CLASSES];
    int c, best = 0;
    @predict_proba(x, p);
    for (c = 1; c < @CLASSES; c++) if (p[c] > p[best]) best = c;
    return best;
}""")


def _add_set(source: CSource, threshold: float) -> None:
    """Add NAME_predict_set(x, members), of a calibrated model: `class_scores`, and the most probable class."""
    source.add(f"""void @predict_set(const double *x, int *members);
void @predict_set(const double *x, int *members)
{{
    double p[@CLASSES];
    int a, c, best = 0;
    @predict_proba(x, p);
    for (c = 0; c < @CLASSES; c++) {{
        double s = {format_double(OWN_SHARE)} * p[c];
        for (a = 0; a < @CLASSES; a++) if (p[a] > p[c] || (p[a] == p[c] && a < c)) s += p[a];
        members[c] = s <= {format_double(threshold)};
        if (p[c] > p[best]) best = c;
    }}
    members[best] = 1;
}}""")


Functions = Sequence[tuple[np.ndarray, np.ndarray]]  # mean (m,) and root (m, k) of the weights of each function
_NORMALISE = "for (c = 0; c < @CLASSES; c++) p[c] = s > 0.0 ? p[c] / s : 1.0 / @CLASSES;"


def _write_softmax(
    writer: RowWriter, basis: Basis, functions: Functions, K: int, averaged: bool
) -> tuple[str, list[str]]:
    """Write the variables and statements for the probabilities p of a softmax."""
    lines = [f"f[{c}] = {writer.dot(basis, mean).name};" for c, (mean, _) in enumerate(functions)]
    if averaged:
        _add_softmax(writer.source, functions, K)
        return f"    double f[{K}];\n", [*lines, "@average(phi, f, p);"]
    largest = ["top = f[0];", "for (c = 1; c < @CLASSES; c++) if (f[c] > top) top = f[c];"]
    lines += [*largest, "for (c = 0; c < @CLASSES; c++) s += (p[c] = exp(f[c] - top));", _NORMALISE]
    return f"    double f[{K}], s = 0.0, top;\n    int c;\n", lines


def _write_logistic(
    writer: RowWriter, basis: Basis, functions: Functions, K: int, averaged: bool
) -> tuple[str, list[str]]:
    """Write variables and statements for the probabilities p of one dichotomy, or of each class against the rest."""
    if averaged:
        _add_logistic(writer.source)
    names = []
    for mean, root in functions:
        f = writer.dot(basis, mean).name
        own = f"@logistic({f}, {writer.squares(basis, root).name})" if averaged else f"1.0 / (1.0 + exp(-{f}))"
        names.append(writer.let(own))
    if K == 2:
        return "", [f"p[0] = 1.0 - {names[0]};", f"p[1] = {names[0]};"]
    total = [f"s += (p[{c}] = {name});" for c, name in enumerate(names)]
    return "    double s = 0.0;\n    int c;\n", [*total, _NORMALISE]


def _add_slope(source: CSource, slope: float) -> str:
    """Add NAME_sharpen(p), which multiplies log-odds by a slope, and return the call."""
    source.add(f"""static void @sharpen(double *p)
{{
    double s = 0.0, top = p[0];
    int c;
    for (c = 1; c < @CLASSES; c++) if (p[c] > top) top = p[c];
    for (c = 0; c < @CLASSES; c++) s += (p[c] = pow(p[c] / top, {format_double(slope)}));
    for (c = 0; c < @CLASSES; c++) p[c] /= s;
}}""")
    return "@sharpen(p);"


def _add_logistic(source: CSource) -> None:
    """Add NAME_logistic(f, v): E[1 / (1 + exp(-f))], as `logistic_log_odds`."""
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


def _add_softmax(source: CSource, functions: Functions, K: int) -> None:
    """Add NAME_average(phi, f, p): E[softmax(f)], as `softmax_normal`."""
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
