"""Functions of one row in C: basis functions, and the numbers that are computed from them, a statement each."""

from __future__ import annotations

import numpy as np

from relvec.basis import Basis, Concat
from relvec.export.c99.kernels import add_columns
from relvec.export.c99.source import CSource, Statements, format_double
from relvec.export.formulas import Number, Writer
from relvec.inference.heteroscedastic import BUMP_WIDTH, CUT_OFF, LogNoise


class RowWriter(Statements, Writer):
    """Statements about the basis functions phi of one row, those of all bases one after the other."""

    def __init__(self, source: CSource, bases: list[Basis], n_features: int, prepared: bool) -> None:
        super().__init__()
        self.source, self._prepared, self._squares_known = source, prepared, False
        ends = np.cumsum([0, *(basis.n_atoms for basis in bases)])
        self._places = {id(basis): slice(*ends[i : i + 2]) for i, basis in enumerate(bases)}
        self._n_atoms = int(ends[-1])
        add_columns(source, bases[0] if len(bases) == 1 else Concat(tuple(bases), n_features=n_features))
        source.add("""static double @dot(const double *phi, const double *w)
{
    double s = 0.0;
    int i;
    for (i = 0; i < @ATOMS; i++) s += phi[i] * w[i];
    return s;
}""")

    def add_function(self, head: str, results: list[str], variables: str = "") -> None:
        """A function of the raw inputs x: phi, the statements so far, and those that set its results."""
        first = "    double phi[@ATOMS];\n    @columns(x, phi);\n"
        if self._prepared:
            first = "    double u[@INPUTS], phi[@ATOMS];\n    @prepare(x, u);\n    @columns(u, phi);\n"
        body = "".join(f"{line}\n" for line in [*self.lines, *(f"    {line}" for line in results)])
        self.source.add(f"{head}\n{{\n{variables}{first}{body}}}")
        self.lines.clear()

    def dot(self, basis: Basis, weights: np.ndarray) -> Number:
        return Number(self, self.let(f"@dot(phi, {self.source.table(self._padded(basis, weights), 'm')})"))

    def squares(self, basis: Basis, root: np.ndarray) -> Number:
        if not root.size:
            return Number(self, "0.0")
        self._add_squares()
        table = self.source.table(self._padded(basis, root), "s")
        return Number(self, self.let(f"@squares(phi, {table}, {root.shape[1]})"))

    def _padded(self, basis: Basis, values: np.ndarray) -> np.ndarray:
        """Weights of the functions of one basis as weights of all."""
        rows = np.zeros((max(self._n_atoms, 1), *values.shape[1:]))
        rows[self._places[id(basis)]] = values
        return rows

    def _add_squares(self) -> None:
        """NAME_squares(phi, root, k): |phi'root|^2 for root (m, k)."""
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

    def noise_variance(self, noise: LogNoise, mean: Number) -> Number:
        source = self.source
        name, k, d = source.new_name("noise"), len(noise.columns), len(noise.centre) - 1
        columns, bumps = source.table(noise.columns, "j", "int"), source.table(~np.isinf(noise.places), "b", "int")
        centre, scale = (source.table(values[noise.columns], "n") for values in (noise.centre, noise.scale))
        places = source.table(np.where(np.isinf(noise.places), 0.0, noise.places), "n")
        weights, covariance = source.table(noise.mean, "n"), source.table(noise.covariance, "n")
        source.add(f"""static double {name}(const double *x, double mean)
{{
    double psi[{k}], s = {format_double(noise.level)};
    int i, j;
    for (i = 0; i < {k}; i++) {{
        double t = (({columns}[i] < {d} ? x[{columns}[i]] : mean) - {centre}[i]) / {scale}[i];
        t = fmin(fmax(t, {format_double(-CUT_OFF)}), {format_double(CUT_OFF)});
        if ({bumps}[i]) {{
            t = (t - {places}[i]) / {format_double(BUMP_WIDTH)};
            t = exp(-0.5 * t * t);
        }}
        psi[i] = t;
        s += psi[i] * {weights}[i];
    }}
    for (i = 0; i < {k}; i++)
        for (j = 0; j < {k}; j++) s += 0.5 * psi[i] * {covariance}[i * {k} + j] * psi[j];
    return exp(s);
}}""")
        return Number(self, self.let(f"{name}({'u' if self._prepared else 'x'}, {mean.name})"))
