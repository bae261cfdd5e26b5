"""C source that is being written: definitions in order, kernels and dictionaries, and functions of one row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from relvec import basis as bases
from relvec import kernels
from relvec._version import __version__
from relvec.basis import Basis
from relvec.export.formulas import PROFILED, Arithmetic, Number, Writer, kernel_profile
from relvec.inference.heteroscedastic import BUMP_WIDTH, CUT_OFF, LogNoise


def format_double(value: SupportsFloat) -> str:
    """Return a double in decimal digits that give the same double back."""
    return repr(float(value))


class CSource:
    """Definitions in order, whose names have one prefix."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: list[str] = []
        self._count = 0
        self._tables: dict[tuple[str, bytes], str] = {}

    def new_name(self, stem: str) -> str:
        """Return a name that no other definition has."""
        self._count += 1
        return f"{self.name}_{stem}{self._count}"

    def add(self, text: str) -> None:
        """Append lines of C, in which @ stands for the prefix and an underscore."""
        self._lines.append(text.replace("@", f"{self.name}_").rstrip())

    def constant(self, stem: str, value: int) -> None:
        """Append a whole number with a name."""
        self.add(f"enum {{ @{stem} = {int(value)} }};")

    def table(self, values: ArrayLike, stem: str = "t", kind: str = "double") -> str:
        """Append a constant array, flat, unless there is an equal one; return its name."""
        array = np.ravel(values)
        key = kind, array.tobytes()
        if key in self._tables:
            return self._tables[key]
        name = self._tables[key] = self.new_name(stem)
        if kind == "double" and not np.isfinite(array).all():
            raise ValueError("the model's numbers overflow in the units of X and y: rescale them, e.g. StandardScaler")
        items = [format_double(value) if kind == "double" else str(int(value)) for value in array]
        lines = [", ".join(items[i : i + 6]) for i in range(0, len(items), 6)]
        self.add(f"static const {kind} {name}[{len(items)}] = {{\n    " + ",\n    ".join(lines) + "\n};")
        return name

    def text(self) -> str:
        """Return the whole source."""
        head = f"/* Written by relvec {__version__}. */\n#include <math.h>\n"
        return head + "\n" + "\n\n".join(self._lines) + "\n"


def quote(label: object) -> str:
    """Write a label as a string literal of C in UTF-8; octal escapes for what C or `CSource.add` would interpret."""
    plain = set(range(32, 127)) - set(b'"\\?@')
    letters = [chr(byte) if byte in plain else f"\\{byte:03o}" for byte in str(label).encode(errors="surrogatepass")]
    return '"' + "".join(letters) + '"'


_OPERATIONS = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "divide": "{} / {}", "negative": "-{}",
    "reciprocal": "1.0 / {}", "maximum": "fmax({}, {})", "minimum": "fmin({}, {})",
}  # fmt: skip


class Statements(Arithmetic):
    """Statements of C in order, each of which defines a number."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, expression: str) -> str:
        """Append a new variable of this value; return its name."""
        self.lines.append(f"    const double v{len(self.lines)} = {expression};")
        return f"v{len(self.lines) - 1}"

    def apply(self, operation: str, *arguments: Number | float) -> Number:
        names = [a.name if isinstance(a, Number) else format_operand(a) for a in arguments]
        pattern = _OPERATIONS.get(operation, operation + "({})")  # the others are functions of math.h
        return Number(self, self.let(pattern.format(*names)))


def format_operand(value: float) -> str:
    """Return a double as an operand."""
    return f"({format_double(value)})" if value < 0 else format_double(value)


def _add_kernel(source: CSource, kernel: kernels.Kernel) -> str:
    """Append a function of (x, z); return its name."""
    if isinstance(kernel, kernels.Sum | kernels.Product):
        calls = [f"{_add_kernel(source, part)}(x, z)" for part in kernel.parts]
        return _add_function(source, f"    return {(' + ' if isinstance(kernel, kernels.Sum) else ' * ').join(calls)};")
    if type(kernel) is kernels.Linear:
        return _add_function(source, f"{_loop('s += x[i] * z[i];')}\n    return s;")
    if type(kernel) is kernels.Polynomial:
        width = _write_width(source, kernel.width_array())
        body = _loop(f"s += x[i] * z[i] / ({width} * {width});")
        power = f"pow(s + {format_double(kernel.offset)}, {kernel.degree}.0)"
        return _add_function(source, f"{body}\n    return {power};")
    if type(kernel) is kernels.LinearSpline:  # T01 eq. (29)
        body = """    double s = 1.0;
    int i;
    for (i = 0; i < @INPUTS; i++) {
        const double low = x[i] < z[i] ? x[i] : z[i], high = x[i] < z[i] ? z[i] : x[i];
        s *= 1.0 + x[i] * z[i] + low * low * (3.0 * high - low) / 6.0;
    }
    return s;"""
        return _add_function(source, body)
    if type(kernel) in PROFILED:
        assert isinstance(kernel, kernels.StationaryKernel)
        width = _write_width(source, kernel.width_array())
        body = _loop(f"const double u = (x[i] - z[i]) / {width}; s += u * u;")
        known = Statements()
        value = kernel_profile(kernel, Number(known, "s"))
        lines = [body, "    if (s > 1e300) s = 1e300;", *known.lines, f"    return {value.name};"]
        return _add_function(source, "\n".join(lines))
    raise NotImplementedError(
        f"to_c cannot translate the kernel {kernel!r}: use one of relvec.kernels; Python functions cannot be translated"
    )


def _loop(statement: str) -> str:
    return f"    double s = 0.0;\n    int i;\n    for (i = 0; i < @INPUTS; i++) {{ {statement} }}"


def _add_function(source: CSource, body: str) -> str:
    name = source.new_name("k")
    source.add(f"static double {name}(const double *x, const double *z)\n{{\n{body}\n}}")
    return name


def _write_width(source: CSource, width: np.ndarray) -> str:
    return f"{source.table(width, 'w')}[i]" if width.ndim else format_double(width)


def write_columns(source: CSource, basis: bases.Basis) -> None:
    """Add NAME_columns(x, phi): the basis functions at x. A model without any gets one that is 0."""
    M = basis.n_atoms
    source.constant("ATOMS", max(M, 1))
    lines = _write_part(source, basis, np.arange(M)) if M else ["phi[0] = 0.0 * x[0];"]
    loops = "    int j;\n" if any("j" in re.findall(r"\bj\b", line) for line in lines) else ""
    unused = "" if any(re.search(r"\bx\b", line) for line in lines) else "    (void)x;\n"
    body = "\n".join(f"    {line}" for line in lines)
    source.add(f"static void @columns(const double *x, double *phi)\n{{\n{loops}{unused}{body}\n}}")


def _write_part(source: CSource, basis: bases.Basis, columns: np.ndarray) -> list[str]:
    """Write the statements that write the atoms of a dictionary to their columns (M,) of phi."""
    if isinstance(basis, bases.Concat):
        parts = zip(basis.parts, basis.part_columns(), strict=True)
        return [line for part, where in parts for line in _write_part(source, part, columns[where])]
    if type(basis) is bases.KernelBasis:
        kernel = _add_kernel(source, basis.kernel)
        centres = source.table(basis.bound_centres(), "z")
        at = _column_expression(source, columns)
        return [f"for (j = 0; j < {len(columns)}; j++) phi[{at}] = {kernel}(x, {centres} + j * @INPUTS);"]
    if type(basis) is bases.Precomputed:
        rows = source.table(basis.rows, "r", "int")
        return [f"for (j = 0; j < {len(columns)}; j++) phi[{_column_expression(source, columns)}] = x[{rows}[j]];"]
    if isinstance(basis, bases.Monomials):
        terms = [" * ".join(f"x[{k}]" for k in term) or "1.0" for term in basis.terms]
        if isinstance(basis, bases.Linear) and basis.centre is not None:
            terms = [f"{term} - ({format_double(c)})" for term, c in zip(terms, basis.term_centres, strict=True)]
        return [f"phi[{m}] = {term};" for m, term in zip(columns, terms, strict=True)]
    raise NotImplementedError(
        f"to_c cannot translate the basis {basis!r}: use one of relvec.basis other than Functions"
    )


def _column_expression(source: CSource, columns: np.ndarray) -> str:
    """Return the index of atom j in phi, as an expression."""
    first = int(columns[0])
    if np.array_equal(columns, np.arange(first, first + len(columns))):
        return f"j + {first}" if first else "j"
    return f"{source.table(columns, 'at', 'int')}[j]"


class RowWriter(Statements, Writer):
    """Statements about the basis functions phi of one row: those of several bases, one after the other."""

    def __init__(self, source: CSource, parts: Sequence[Basis], prepared: bool) -> None:
        super().__init__()
        self.source, self._prepared, self._squares_known = source, prepared, False
        own = list({id(basis): basis for basis in parts}.values())
        ends = np.cumsum([basis.n_atoms for basis in own])
        self._n_atoms, self._columns = int(ends[-1]), dict(zip(map(id, own), ends - [b.n_atoms for b in own]))
        write_columns(source, own[0] if len(own) == 1 else bases.Concat(tuple(own), n_features=own[0].n_features))
        source.add("""static double @dot(const double *phi, const double *w)
{
    double s = 0.0;
    int i;
    for (i = 0; i < @ATOMS; i++) s += phi[i] * w[i];
    return s;
}""")

    def add_function(self, head: str, results: list[str], variables: str = "") -> None:
        """Add a function of the raw inputs x: phi, the statements so far, and those that set its results."""
        first = "    double phi[@ATOMS];\n    @columns(x, phi);\n"
        if self._prepared:
            first = "    double u[@INPUTS], phi[@ATOMS];\n    @prepare(x, u);\n    @columns(u, phi);\n"
        body = "".join(f"{line}\n" for line in [*self.lines, *(f"    {line}" for line in results)])
        self.source.add(f"{head}\n{{\n{variables}{first}{body}}}")
        self.lines.clear()

    def dot(self, basis: Basis, weights: np.ndarray) -> Number:
        table = self.source.table(self._among_all(basis, weights) if self._n_atoms else [0.0], "m")
        return Number(self, self.let(f"@dot(phi, {table})"))

    def squares(self, basis: Basis, root: np.ndarray) -> Number:
        if not root.size:
            return Number(self, "0.0")
        self._add_squares()
        table = self.source.table(self._among_all(basis, root), "s")
        return Number(self, self.let(f"@squares(phi, {table}, {root.shape[1]})"))

    def noise_variance(self, noise: LogNoise, mean: Number) -> Number:
        name, k, table = self.source.new_name("noise"), len(noise.mean), self.source.table
        if not k:
            return Number(self, format_double(float(np.exp(noise.level))))
        straight = np.isinf(noise.places)
        columns, shapes = table(noise.columns, "c", "int"), table(straight.astype(int), "c", "int")
        centre, scale = table(noise.centre[noise.columns]), table(noise.scale[noise.columns])
        places, weights = table(np.where(straight, 0.0, noise.places)), table(noise.mean)
        spread = table(np.linalg.cholesky(noise.covariance)) if noise.covariance.any() else ""
        more = f"""    for (j = 0; j < {k}; j++) {{
        double s = 0.0;
        for (i = 0; i < {k}; i++) s += psi[i] * {spread}[i * {k} + j];
        v += 0.5 * s * s;
    }}
"""
        self.source.add(f"""static double {name}(const double *x, double mean)
{{
    double psi[{k}], v = {format_double(noise.level)};
    int i{", j" if spread else ""};
    for (i = 0; i < {k}; i++) {{
        double t = (({columns}[i] < @INPUTS ? x[{columns}[i]] : mean) - {centre}[i]) / {scale}[i], u;
        t = fmin(fmax(t, {format_double(-CUT_OFF)}), {format_double(CUT_OFF)});
        u = (t - {places}[i]) / {format_double(BUMP_WIDTH)};
        psi[i] = {shapes}[i] ? t : exp(-0.5 * u * u);
        v += psi[i] * {weights}[i];
    }}
{more if spread else ""}    return exp(v);
}}""")
        return Number(self, self.let(f"{name}({'u' if self._prepared else 'x'}, {mean.name})"))

    def _among_all(self, basis: Basis, weights: np.ndarray) -> np.ndarray:
        """Return weights (k, ...) of the functions of one basis as weights of all: 0 for the others."""
        found, first = np.zeros((self._n_atoms, *weights.shape[1:])), self._columns[id(basis)]
        found[first : first + len(weights)] = weights
        return found

    def _add_squares(self) -> None:
        """Add NAME_squares(phi, root, k): |phi'root|^2 for root (m, k)."""
        if self._squares_known:
            return
        self._squares_known = True
        self.source.add("""static double @squares(const double *phi, const double *root, int k)
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
