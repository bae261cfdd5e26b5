"""Functions of one row in C: basis functions, and the numbers that are computed from them, a statement each."""

from __future__ import annotations

import numpy as np

from relvec.basis import Basis
from relvec.export.c99.kernels import add_columns
from relvec.export.c99.source import CSource, Statements, format_double
from relvec.export.formulas import Number, Writer
from relvec.inference.heteroscedastic import BUMP_WIDTH, CUT_OFF, LogNoise


class RowWriter(Statements, Writer):
    """Statements about the basis functions phi of one row."""

    def __init__(self, source: CSource, basis: Basis, prepared: bool) -> None:
        super().__init__()
        self.source, self._prepared, self._squares_known = source, prepared, False
        add_columns(source, basis)
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
        return Number(self, self.let(f"@dot(phi, {self.source.table(weights if len(weights) else [0.0], 'm')})"))

    def squares(self, basis: Basis, root: np.ndarray) -> Number:
        if not root.size:
            return Number(self, "0.0")
        self._add_squares()
        table = self.source.table(root, "s")
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
