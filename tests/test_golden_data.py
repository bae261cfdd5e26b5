"""The stored reference cases are what they say they are."""

import numpy as np
import pytest

from golden import CASES, FOLDER, load


@pytest.mark.parametrize("case", CASES)
def test_loads_with_the_right_fingerprints(case):
    g = load(case)
    assert g.Phi.shape[0] == len(g.t)
    assert not g.Phi.flags.writeable and not g.t.flags.writeable
    assert g.bias_col == -1 or np.all(g.Phi[:, g.bias_col] == 1)


def test_folder_is_small_and_complete():
    assert {path.stem for path in FOLDER.glob("*.npz")} == set(CASES)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3e6


@pytest.mark.parametrize("case", ["a", "c", "d_fixed", "h1000"])
def test_stored_evidence_is_the_dense_one(case):
    g = load(case)
    Phi = g.Phi[:, g.v2tight_relevant]
    C = np.eye(len(g.t)) / g.v2tight_beta + (Phi / g.v2tight_alpha) @ Phi.T  # TF03 eq. (8)
    L = np.linalg.cholesky(C)
    z = np.linalg.solve(L, g.t)
    evidence = -0.5 * (len(g.t) * np.log(2 * np.pi) + 2 * np.log(np.diag(L)).sum() + z @ z)  # TF03 eq. (7)
    assert evidence == pytest.approx(g.v2tight_logML_numpy, rel=1e-9)
    assert evidence == pytest.approx(g.v2tight_logML_v2_full, rel=1e-9)
