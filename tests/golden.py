"""Reference cases: inputs and the results of the authors' own program; tests/golden/README.md lists the keys."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np

FOLDER = Path(__file__).parent / "golden"
CASES = ("a", "b", "b_bias", "c", "d", "d_fixed", "e", "f", "h1000")


@cache
def load(case: str) -> SimpleNamespace:
    """Return the case as a namespace of read-only arrays and Python scalars; Phi is rebuilt where it is not stored."""
    with np.load(FOLDER / f"{case}.npz", allow_pickle=False) as file:
        values = {key: file[key] for key in file.files}
    if "Phi" not in values:
        values["Phi"] = design_matrix(values["X"], str(values["kernel"]), values["kernel_width"], values["bias_col"])
    check_fingerprints(values)
    for value in values.values():
        value.flags.writeable = False
    return SimpleNamespace(case=case, **{k: v.item() if v.ndim == 0 else v for k, v in values.items()})


def design_matrix(X, kernel, width, bias_col):
    """Kernel columns centred on the rows of X (N, d), then a column of ones if bias_col is not -1."""
    if kernel.startswith("exp"):
        Phi = np.exp(-((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=-1) / width**2)
    else:  # T01 eq. (29)
        x, z = X, X.T
        m = np.minimum(x, z)
        Phi = 1 + x * z + x * z * m - (x + z) / 2 * m**2 + m**3 / 3
    return Phi if bias_col < 0 else np.column_stack([Phi, np.ones(len(X))])


def check_fingerprints(values):
    """Raise AssertionError unless Phi is the matrix the reference program was given."""
    Phi = values["Phi"]
    assert Phi.shape == tuple(values["phi_shape"])
    np.testing.assert_allclose(Phi[0], values["phi_row0"], rtol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(Phi, axis=0), values["basis_scales"], rtol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(Phi), values["phi_fro"], rtol=1e-14)
    np.testing.assert_allclose(Phi.sum(), values["phi_sum"], rtol=1e-12)
