"""Fitted models as C99 source, in double precision and with nothing but math.h, for small devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from relvec import basis as bases
from relvec import kernels
from relvec._version import __version__
from relvec.estimators.classifier import RelevanceVectorClassifier
from relvec.estimators.regressor import RelevanceVectorRegressor
from relvec.export.c99_steps import number, sklearn_name, statements
from relvec.inference.likelihoods import MIN_RELATIVE_PIVOT, logistic_nodes, softmax_points
from relvec.inference.predictive import CountPredictor, LatentPredictor, LinearPredictor
from relvec.inference.process import LinearExpansion, ProcessPredictor, expand_process

__all__ = ["to_c"]


def to_c(model: Any, name: str = "relvec", std: bool = True) -> str:
    """A fitted model as C99 source that needs nothing but math.h.

    Parameters
    ----------
    model : RelevanceVectorRegressor, RelevanceVectorClassifier, or a scikit-learn Pipeline that ends in one
        Before the model a pipeline may have scalers, imputers and encoders, also in a ColumnTransformer. A column of
        words enters as the place of its word among the encoder's categories, and -1 for any other.
    name : str, default "relvec"
        What the names in the source begin with.
    std : bool, default True
        Whether a regression has error bars. They need a table of m^2 numbers for m basis functions.

    Returns
    -------
    source : str
        For regression ``void NAME_predict(const double *x, double *mean, double *std)``; for classification
        ``int NAME_predict(const double *x)``, the place of the class in ``NAME_labels``, and
        ``void NAME_predict_proba(const double *x, double *p)``. One row x at a time.

    Raises
    ------
    NotImplementedError
        For kernels, basis functions and steps of a pipeline that it cannot write down.

    Examples
    --------
    >>> import relvec
    >>> model = relvec.RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
    >>> "void line_predict(const double *x, double *mean, double *std)" in relvec.to_c(model, name="line")
    True
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be a name in C, got {name!r}")
    steps, last = _split(model)
    check_is_fitted(last)
    source = _Source(name)
    source.constant("FEATURES", (steps[0] if steps else last).n_features_in_)
    if steps:
        body = statements(steps, last.n_features_in_)
        source.add(f"static void @prepare(const double *r, double *x)\n{{\n{body}\n}}")
    source.constant("INPUTS", last.n_features_in_)
    if isinstance(last, RelevanceVectorClassifier):
        _columns(source, last.basis_)
        _classification(source, last, bool(steps))
    else:
        _regression(source, last, bool(steps), std)
    return source.text()


def _split(model: Any) -> tuple[list[Any], Any]:
    """Steps before the estimator, and the estimator."""
    steps = []
    while sklearn_name(model) == "Pipeline":
        steps += [step for _, step in model.steps[:-1] if step is not None and step != "passthrough"]
        model = model.steps[-1][1]
    if not isinstance(model, RelevanceVectorRegressor | RelevanceVectorClassifier):
        raise NotImplementedError(
            f"to_c takes a relvec estimator or a pipeline that ends in one, got {type(model).__name__}"
        )
    return steps, model


class _Source:
    """Definitions in their order, with names that begin alike."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: list[str] = []
        self._count = 0

    def fresh(self, stem: str) -> str:
        """A new name."""
        self._count += 1
        return f"{self.name}_{stem}{self._count}"

    def add(self, text: str) -> None:
        """Lines of C, in which @ stands for the name and an underscore."""
        self._lines.append(text.replace("@", f"{self.name}_").rstrip())

    def constant(self, stem: str, value: int) -> None:
        self.add(f"enum {{ @{stem} = {int(value)} }};")

    def table(self, values: Any, stem: str = "t", kind: str = "double") -> str:
        """A constant array, flat; its name."""
        array, name = np.ravel(values), self.fresh(stem)
        if kind == "double" and not np.isfinite(array).all():
            raise ValueError("the model's numbers overflow in the units of X and y: rescale them, e.g. StandardScaler")
        items = [number(value) if kind == "double" else str(int(value)) for value in array]
        lines = [", ".join(items[i : i + 6]) for i in range(0, len(items), 6)]
        self.add(f"static const {kind} {name}[{len(items)}] = {{\n    " + ",\n    ".join(lines) + "\n};")
        return name

    def text(self) -> str:
        head = f"/* Written by relvec {__version__}. */\n#include <math.h>\n"
        return head + "\n" + "\n\n".join(self._lines) + "\n"


# ---------------------------------------------------------------- kernels


def _kernel(source: _Source, kernel: kernels.Kernel) -> str:
    """A function of (x, z); its name."""
    if isinstance(kernel, kernels.Sum | kernels.Product):
        calls = [f"{_kernel(source, part)}(x, z)" for part in kernel.parts]
        return _function(source, f"    return {(' + ' if isinstance(kernel, kernels.Sum) else ' * ').join(calls)};")
    if type(kernel) in (kernels.Linear, kernels.Polynomial):
        scaled = isinstance(kernel, kernels.Polynomial)
        factor = f" / ({w} * {w})" if scaled and (w := _width(source, kernel)) else ""
        body = _loop(f"s += x[i] * z[i]{factor};")
        result = f"pow(s + {number(kernel.offset)}, {kernel.degree}.0)" if scaled else "s"  # type: ignore[attr-defined]
        return _function(source, f"{body}\n    return {result};")
    if type(kernel) is kernels.LinearSpline:  # T01 eq. (29)
        body = """    double s = 1.0;
    int i;
    for (i = 0; i < @INPUTS; i++) {
        const double low = x[i] < z[i] ? x[i] : z[i], high = x[i] < z[i] ? z[i] : x[i];
        s *= 1.0 + x[i] * z[i] + low * low * (3.0 * high - low) / 6.0;
    }
    return s;"""
        return _function(source, body)
    if type(kernel) in _PROFILES:
        body = _loop(f"const double u = (x[i] - z[i]) / {_width(source, kernel)}; s += u * u;")
        return _function(source, f"{body}\n    if (s > 1e300) s = 1e300;\n{_PROFILES[type(kernel)](kernel)}")
    raise NotImplementedError(f"C cannot be written for the kernel {kernel!r}; use one of relvec.kernels")


def _loop(statement: str) -> str:
    return f"    double s = 0.0;\n    int i;\n    for (i = 0; i < @INPUTS; i++) {{ {statement} }}"


def _function(source: _Source, body: str) -> str:
    name = source.fresh("k")
    source.add(f"static double {name}(const double *x, const double *z)\n{{\n{body}\n}}")
    return name


def _width(source: _Source, kernel: Any) -> str:
    width = kernel.width_array()
    return f"{source.table(width, 'w')}[i]" if width.ndim else number(width)


def _matern(kernel: kernels.Matern) -> str:
    head = "1.0 + s" if kernel.nu == 1.5 else "1.0 + s + s * s / 3.0"
    return f"    s = sqrt(s) * {number(np.sqrt(2.0 * kernel.nu))};\n    return ({head}) * exp(-s);"


_PROFILES: dict[type, Callable[[Any], str]] = {
    kernels.Gaussian: lambda kernel: "    return exp(-s);",
    kernels.Laplace: lambda kernel: "    return exp(-sqrt(s));",
    kernels.Cauchy: lambda kernel: "    return 1.0 / (1.0 + s);",
    kernels.LogDistance: lambda kernel: "    return log1p(s);",
    kernels.Matern: _matern,
}


# ---------------------------------------------------------------- bases


def _columns(source: _Source, basis: bases.Basis) -> None:
    """NAME_columns(x, phi): the basis functions at x. A model without any has one, which is 0."""
    M = basis.n_atoms
    source.constant("ATOMS", max(M, 1))
    lines = _part(source, basis, np.arange(M)) if M else ["phi[0] = 0.0 * x[0];"]
    loops = "    int j;\n" if any("j" in re.findall(r"\bj\b", line) for line in lines) else ""
    unused = "" if any(re.search(r"\bx\b", line) for line in lines) else "    (void)x;\n"
    body = "\n".join(f"    {line}" for line in lines)
    source.add(f"static void @columns(const double *x, double *phi)\n{{\n{loops}{unused}{body}\n}}")


def _part(source: _Source, basis: bases.Basis, places: np.ndarray) -> list[str]:
    """Statements that put the atoms of a dictionary to their places (M,) in phi."""
    if isinstance(basis, bases.Concat):
        parts = zip(basis.parts, basis.part_columns(), strict=True)
        return [line for part, where in parts for line in _part(source, part, places[where])]
    if type(basis) is bases.KernelBasis:
        kernel = _kernel(source, basis.kernel)
        centres = source.table(basis.bound_centres(), "z")
        at = _place(source, places)
        return [f"for (j = 0; j < {len(places)}; j++) phi[{at}] = {kernel}(x, {centres} + j * @INPUTS);"]
    if type(basis) is bases.Precomputed:
        rows = source.table(basis.rows, "r", "int")
        return [f"for (j = 0; j < {len(places)}; j++) phi[{_place(source, places)}] = x[{rows}[j]];"]
    if isinstance(basis, bases.Monomials):
        terms = [" * ".join(f"x[{k}]" for k in term) or "1.0" for term in basis.terms]
        return [f"phi[{m}] = {term};" for m, term in zip(places, terms, strict=True)]
    raise NotImplementedError(f"C cannot be written for the basis {basis!r}; use one of relvec.basis but Functions")


def _place(source: _Source, places: np.ndarray) -> str:
    """Place of atom j in phi, as an expression."""
    first = int(places[0])
    if np.array_equal(places, np.arange(first, first + len(places))):
        return f"j + {first}" if first else "j"
    return f"{source.table(places, 'at', 'int')}[j]"


# ---------------------------------------------------------------- predictive distributions


def _start(prepared: bool, locals_: str) -> str:
    """The first lines of a function of the raw inputs: phi is known after them."""
    if prepared:
        return f"    double u[@INPUTS], phi[@ATOMS];\n{locals_}\n    @prepare(x, u);\n    @columns(u, phi);\n"
    return f"    double phi[@ATOMS];\n{locals_}\n    @columns(x, phi);\n"


def _regression(source: _Source, model: RelevanceVectorRegressor, prepared: bool, std: bool) -> None:
    basis, found = _expanded(model)
    _columns(source, basis)
    source.constant("OUTPUTS", len(found))
    body = []
    spread = False
    for o, (predictor, each) in enumerate(zip(model._models, found, strict=True)):
        counts = type(predictor) is CountPredictor
        body.append(f"    f = {_dot(source, each.weights)};")
        if std or counts:
            value, spread = _squares(source, each.root), spread or each.root.size > 0
            if each.prior:
                lost = f"@squares(phi, {source.table(each.represented, 's')}, {each.represented.shape[1]})"
                body.append(f"    l = {number(each.prior)} - {lost};")
                value += "\n    if (l > 0.0) v += l;"
            body.append(value + (f"\n    v += {number(each.noise)};" if each.noise else ""))
        if counts:  # moments of a log-normal rate, and of the counts
            body.append("    f = exp(f + 0.5 * v);" + ("\n    v = f * f * expm1(v) + f;" if std else ""))
        body.append(f"    mean[{o}] = f;" + (f"\n    std[{o}] = sqrt(v);" if std else ""))
    if spread:
        _add_squares(source)
    _add_dot(source)
    names = [name for name in "fvl" if name == "f" or any(f" {name} " in line for line in body)]
    locals_ = f"    double {', '.join(names)};"
    arguments = "const double *x, double *mean, double *std" if std else "const double *x, double *mean"
    source.add(f"void @predict({arguments});")
    source.add(f"void @predict({arguments})\n{{\n{_start(prepared, locals_)}" + "\n".join(body) + "\n}")


def _expanded(model: RelevanceVectorRegressor) -> tuple[bases.Basis, list[LinearExpansion]]:
    """One basis for all outputs, and each output's weights over it."""
    found = []
    for predictor in model._models:
        linear = predictor.latent if type(predictor) is CountPredictor else predictor
        if type(linear) is ProcessPredictor:
            found.append(expand_process(linear))
            continue
        if type(linear) is not LinearPredictor:
            raise NotImplementedError(f"C cannot be written for the predictive distribution {type(predictor).__name__}")
        with np.errstate(over="ignore"):
            unit = linear.unit / linear.scale
            noise = 0.0 if type(predictor) is CountPredictor else float(linear.noise * linear.unit**2)
            none = np.zeros((len(unit), 0))
            found.append(
                LinearExpansion(model.basis_, linear.mean * unit, linear.root * unit[:, None], none, 0.0, noise)
            )
    if all(each.basis is model.basis_ for each in found):
        return model.basis_, found
    sizes = [each.basis.n_atoms for each in found]
    whole = bases.Concat(tuple(each.basis for each in found), n_features=model.n_features_in_)

    def padded(part: np.ndarray, i: int) -> np.ndarray:
        rows = np.zeros((sum(sizes), *part.shape[1:]))
        rows[sum(sizes[:i]) : sum(sizes[: i + 1])] = part
        return rows

    return whole, [
        replace(
            each,
            basis=whole,
            weights=padded(each.weights, i),
            root=padded(each.root, i),
            represented=padded(each.represented, i),
        )
        for i, each in enumerate(found)
    ]


def _dot(source: _Source, weights: np.ndarray) -> str:
    return f"@dot(phi, {source.table(weights if weights.size else [0.0], 'm')})"


def _add_dot(source: _Source) -> None:
    source.add("""static double @dot(const double *phi, const double *w)
{
    double s = 0.0;
    int i;
    for (i = 0; i < @ATOMS; i++) s += phi[i] * w[i];
    return s;
}""")


def _squares(source: _Source, root: np.ndarray) -> str:
    """A statement that sets v to |phi' root|^2."""
    if not root.size:
        return "    v = 0.0;"
    return f"    v = @squares(phi, {source.table(root, 's')}, {root.shape[1]});"


def _add_squares(source: _Source) -> None:
    source.add("""static double @squares(const double *phi, const double *root, int k)
{
    double v = 0.0;
    int i, j;
    for (j = 0; j < k; j++) {
        double s = 0.0;
        for (i = 0; i < @ATOMS; i++) s += phi[i] * root[i * k + j];
        v += s * s;
    }
    return v;
}""")


def _classification(source: _Source, model: RelevanceVectorClassifier, prepared: bool) -> None:
    if any(type(predictor) is not LatentPredictor for predictor in model._models):
        raise NotImplementedError(
            f"C cannot be written for the predictive distribution {type(model._models[0]).__name__}"
        )
    K, averaged = len(model.classes_), model.averaging == "posterior"
    source.constant("CLASSES", K)
    labels = ", ".join(_word(label) for label in model.classes_.tolist())
    source.add(f"extern const char *const @labels[{K}];\nconst char *const @labels[{K}] = {{{labels}}};")
    source.add("int @predict(const double *x);\nvoid @predict_proba(const double *x, double *p);")
    softmax = K > 2 and len(model._models) == 1
    dense = [_dense(predictor) for predictor in model._models if isinstance(predictor, LatentPredictor)]
    functions = [(mean, root) for means, roots in dense for mean, root in zip(means, roots, strict=True)]
    if averaged and not softmax:
        _add_logistic(source)
        if any(root.size for _, root in functions):
            _add_squares(source)
    if averaged and softmax:
        _add_softmax(source, functions, K)
    _add_dot(source)
    lines = []
    for c, (mean, root) in enumerate(functions):
        lines.append(f"    f[{c}] = {_dot(source, mean)};")
        if not softmax:
            lines.append(_squares(source, root) if averaged else "")
            probability = f"@logistic(f[{c}], v)" if averaged else f"1.0 / (1.0 + exp(-f[{c}]))"
            lines.append(f"    f[{c}] = {probability};")
    locals_ = f"    double f[{len(functions)}];"
    if not softmax:
        locals_ += "\n    double v;" if averaged else ""
    if K == 2:
        lines.append("    p[0] = 1.0 - f[0];\n    p[1] = f[0];")
    elif softmax and averaged:
        lines.append("    @average(phi, f, p);")
    else:
        locals_ += "\n    double s = 0.0;\n    int c;"
        if softmax:
            locals_ += "\n    double top;"
            lines.append("    top = f[0];\n    for (c = 1; c < @CLASSES; c++) if (f[c] > top) top = f[c];")
        lines.append(
            f"    for (c = 0; c < @CLASSES; c++) s += {'(p[c] = exp(f[c] - top))' if softmax else '(p[c] = f[c])'};\n"
            "    for (c = 0; c < @CLASSES; c++) p[c] = s > 0.0 ? p[c] / s : 1.0 / @CLASSES;"
        )
    body = "\n".join(line for line in lines if line)
    source.add(f"void @predict_proba(const double *x, double *p)\n{{\n{_start(prepared, locals_)}{body}\n}}")
    source.add("""int @predict(const double *x)
{
    double p[@CLASSES];
    int c, best = 0;
    @predict_proba(x, p);
    for (c = 1; c < @CLASSES; c++) if (p[c] > p[best]) best = c;
    return best;
}""")


def _word(label: Any) -> str:
    """A label as a string of C."""
    letters = [
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in str(label).encode()
    ]
    return '"' + "".join(letters) + '"'


def _dense(predictor: LatentPredictor) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For each latent function its weights (m, 1) and the root (m, k) of their covariance, in units of the basis."""
    m, means, roots = len(predictor.scale), [], []
    for output in range(predictor.n_outputs):
        own = np.flatnonzero(predictor.outputs == output)
        places = predictor.places[own]
        mean, root = np.zeros((m, 1)), np.zeros((m, predictor.root.shape[1]))
        mean[places, 0] = predictor.mean[own] / predictor.scale[places]
        root[places] = predictor.root[own] / predictor.scale[places, None]
        means.append(mean)
        roots.append(root)
    return means, roots


def _add_logistic(source: _Source) -> None:
    """NAME_logistic(f, v): E[1 / (1 + exp(-f))], as `logistic_log_odds`."""
    (z, _), (e, _), wide = logistic_nodes()
    normal = number((z[1] - z[0]) / np.sqrt(2.0 * np.pi))
    source.add(f"""static double @logistic(double mean, double variance)
{{
    const double size = fabs(mean), deviation = sqrt(variance);
    double s = 0.0;
    int i;
    if (deviation > {number(wide)}) {{
        for (i = 0; i < {len(e)}; i++) {{
            const double e = {number(e[0])} + {number(e[1] - e[0])} * i, q = exp(-fabs(e));
            s += {number(e[1] - e[0])} * q / ((1.0 + q) * (1.0 + q))
                * 0.5 * erfc((size - e) / deviation * {number(np.sqrt(0.5))});
        }}
    }} else {{
        for (i = 0; i < {len(z)}; i++) {{
            const double z = {number(z[0])} + {number(z[1] - z[0])} * i;
            s += {normal} * exp(-0.5 * z * z) / (1.0 + exp(size + deviation * z));
        }}
    }}
    if (s > 0.5) s = 0.5;
    return mean > 0.0 ? 1.0 - s : s;
}}""")


def _add_softmax(source: _Source, functions: Sequence[tuple[np.ndarray, np.ndarray]], K: int) -> None:
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
        least += {number(MIN_RELATIVE_PIVOT)} * A[a][a];
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
