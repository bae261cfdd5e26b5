"""Every dictionary keeps the same contract; then what each of them holds."""

import pickle
from fractions import Fraction

import numpy as np
import pytest

from relvec import kernels
from relvec.basis import Basis, Bias, Concat, Functions, KernelBasis, Linear, Polynomial, Precomputed, as_basis
from relvec.kernels import FromCallable, Gaussian, Laplace, LinearSpline

N, D = 8, 3


def rows(n=N, d=D, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    X.flags.writeable = False
    return X


def waves(X):
    return np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 1])])


def first(X):
    return X[:, 0]


CENTRES = rows(5, seed=7)
BASES = [
    Bias(),
    Linear(),
    Linear(features=(2, 0)),
    Polynomial(),
    Polynomial(3, interactions=False, include_linear=False),
    Functions(first, waves, np.tanh),
    KernelBasis("gaussian"),
    KernelBasis(Laplace((1.0, 2.0, 3.0)), centres=CENTRES),
    KernelBasis(Gaussian(2.0) + kernels.Linear(), n_random=6),
    Concat(["bias", KernelBasis(Gaussian(2.0)), Functions(waves), KernelBasis(LinearSpline(), CENTRES), "quadratic"]),
    Concat([Bias(), Concat(["linear", KernelBasis("cauchy")])]),
]
every_basis = pytest.mark.parametrize("basis", BASES, ids=repr)


@every_basis
class TestEveryBasis:
    """The contract of a dictionary."""

    def test_sizes_agree(self, basis):
        bound = basis.bind(rows(), rng=0)
        Phi, M = bound(rows(6, seed=1)), bound.n_atoms
        assert Phi.shape == (6, M) and Phi.dtype == np.float64 and np.isfinite(Phi).all() and M > 0
        assert bound.rows.shape == (M,) and bound.rows.dtype.kind == "i" and bound.n_features == D
        assert len(bound.labels()) == M and all(isinstance(label, str) for label in bound.labels())
        keys = bound.order_keys()
        assert keys is None or (keys.shape[0] == M and len(np.unique(keys, axis=0)) == M)

    def test_bind_makes_a_new_one(self, basis):
        before = repr(basis)
        assert basis.bind(rows(), rng=0) is not basis
        assert repr(basis) == before

    def test_bound_atoms_stay(self, basis):
        few, X = basis.bind(rows(), rng=0).take([0]), rows(6, seed=1)
        np.testing.assert_array_equal(few.bind(10.0 * rows(20, seed=5), rng=1)(X), few(X))

    def test_blocks_make_the_whole(self, basis):
        bound, X = basis.bind(rows(), rng=0), rows(6, seed=1)
        np.testing.assert_allclose(np.vstack([bound(X[:1]), bound(X[1:])]), bound(X), rtol=1e-13)

    def test_take_keeps_the_columns(self, basis):
        bound, X = basis.bind(rows(), rng=0), rows(6, seed=1)
        M = bound.n_atoms
        for atoms in (np.random.default_rng(3).permutation(M), np.arange(M)[::2], [M - 1], list(range(M))[::-1]):
            few = bound.take(atoms)
            assert few.n_atoms == len(atoms) and few.n_features == D
            np.testing.assert_allclose(few(X), bound(X)[:, atoms], rtol=1e-13)
            np.testing.assert_array_equal(few.rows, bound.rows[atoms])
            assert few.labels() == [bound.labels()[m] for m in atoms]
            if isinstance(basis, KernelBasis):
                np.testing.assert_array_equal(few.order_keys(), bound.order_keys()[atoms])
            again = few.take(np.arange(len(atoms))[::-1])
            np.testing.assert_allclose(again(X), few(X)[:, ::-1], rtol=1e-13)

    def test_take_by_mask_and_take_nothing(self, basis):
        bound, X = basis.bind(rows(), rng=0), rows(6, seed=1)
        mask = np.arange(bound.n_atoms) % 2 == 0
        np.testing.assert_allclose(bound.take(mask)(X), bound(X)[:, mask], rtol=1e-13)
        for nothing in ([], ~np.ones(bound.n_atoms, dtype=bool)):
            none = bound.take(nothing)
            assert none.n_atoms == 0 and none(X).shape == (6, 0) and none.rows.shape == (0,) and none.labels() == []
            assert none.theta.shape == (0,) and none.take([]) == none
            assert [bar.shape for bar in none.vjp(X, np.empty((6, 0)))] == [(0,), (0, D)]

    def test_vjp_is_the_derivative(self, basis):
        bound, X = basis.bind(rows(), rng=0), rows(6, seed=1)
        bound = bound.take(np.random.default_rng(3).permutation(bound.n_atoms))
        Phi_bar = np.random.default_rng(4).standard_normal((6, bound.n_atoms))
        theta, h = bound.theta, 1e-6
        theta_bar, centres_bar = bound.vjp(X, Phi_bar)
        expected = [
            (Phi_bar * (bound.with_theta(theta + e)(X) - bound.with_theta(theta - e)(X))).sum() / (2 * h)
            for e in h * np.eye(len(theta))
        ]
        np.testing.assert_allclose(theta_bar, expected, rtol=1e-6, atol=1e-7)
        assert centres_bar.shape == (bound.n_atoms, D)
        has_centre = [label.startswith("K(") for label in bound.labels()]
        np.testing.assert_array_equal(centres_bar.any(axis=1), has_centre)

    def test_survives_pickle_and_compares_by_value(self, basis):
        assert pickle.loads(pickle.dumps(basis)) == basis
        bound = basis.bind(rows(), rng=0)
        copy = pickle.loads(pickle.dumps(bound))
        assert copy == bound == basis.bind(rows(), rng=0)
        np.testing.assert_array_equal(copy(rows(4, seed=1)), bound(rows(4, seed=1)))
        assert bound != bound.take([]) != bound and bound != 3
        if basis.n_features is None:  # given centres and numeric widths leave nothing for bind to do
            assert bound != basis != bound

    def test_unbound_and_ill_shaped(self, basis):
        X, bound = rows(), basis.bind(rows(), rng=0)
        with pytest.raises(ValueError, match="X has 2 features, but the basis was bound to 3"):
            bound(X[:, :2])
        with pytest.raises(ValueError, match=r"2-D array \(n, d\), got shape \(8,\)"):
            bound(X[:, 0])
        with pytest.raises(ValueError, match="Phi_bar must have the shape"):
            bound.vjp(X, np.ones((N, bound.n_atoms + 1)))
        with pytest.raises(ValueError, match="theta"):
            bound.with_theta(np.zeros(99))
        if basis.n_features is None:
            with pytest.raises(ValueError, match=r"bind\(X\) first"):
                basis(X)
        for atoms in ([0, 0], [-1], [bound.n_atoms], [0.0], [[0]], 0, [True] * (bound.n_atoms + 1)):
            with pytest.raises(ValueError, match="atoms must"):
                bound.take(atoms)

    def test_one_row_of_zero_weight_might_as_well_be_absent(self, basis):
        X, weight = rows(), np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
        far = X.copy()
        far[2] = 1e3
        bound, reference = basis.bind(far, weight, rng=0), basis.bind(np.delete(X, 2, axis=0), rng=0)
        Z = rows(4, seed=1)
        np.testing.assert_allclose(bound(Z), reference(Z), rtol=1e-12)
        assert 2 not in bound.rows


# Monomials -----------------------------------------------------------------------------------------------------------


def test_monomials():
    X = np.array([[2.0, 3.0, 5.0], [1.0, -1.0, 4.0]])
    np.testing.assert_array_equal(Bias().bind(X)(X), [[1.0], [1.0]])
    np.testing.assert_array_equal(Linear().bind(X)(X), X)
    np.testing.assert_array_equal(Linear(features=[2, 0]).bind(X)(X), X[:, [2, 0]])
    quadratic = as_basis("quadratic").bind(X)
    assert quadratic.labels() == ["x0", "x1", "x2", "x0^2", "x0*x1", "x0*x2", "x1^2", "x1*x2", "x2^2"]
    np.testing.assert_array_equal(quadratic(X)[0], [2.0, 3.0, 5.0, 4.0, 6.0, 10.0, 9.0, 15.0, 25.0])
    powers = Polynomial(3, interactions=False, include_linear=False).bind(X[:, :2])
    assert powers.labels() == ["x0^2", "x1^2", "x0^3", "x1^3"]
    np.testing.assert_array_equal(powers(X[:, :2])[1], [1.0, 1.0, 1.0, -1.0])
    assert "x0^2*x1" in Polynomial(3).bind(X).labels()
    assert Bias().bind(X).labels() == ["bias"]


def test_monomials_refuse():
    for features in [(0, 3), (-1,), (1, 1)]:
        with pytest.raises(ValueError, match="different columns from 0 to 2"):
            Linear(features).bind(rows())
    for bad in ({"degree": 0}, {"degree": 1.5}, {"degree": 1, "include_linear": False}):
        with pytest.raises(ValueError, match="degree must be a whole number"):
            Polynomial(**bad)


# Functions -----------------------------------------------------------------------------------------------------------


def test_functions():
    X = rows()
    basis = Functions(first, waves, lambda X: X[:, 1] > 0, lambda X: X[:, :1]).bind(X)
    assert basis.labels() == ["first", "waves[0]", "waves[1]", "f2", "f3"]
    expected = np.column_stack([X[:, 0], np.sin(X[:, 0]), np.cos(X[:, 1]), X[:, 1] > 0, X[:, 0]])
    np.testing.assert_array_equal(basis(X), expected)
    assert basis.take([2]).functions == (waves,)
    assert repr(Functions(first, waves)) == "Functions(first, waves)"
    assert Functions(first) != Functions(waves)


def test_taken_functions_leave_the_others_uncalled():
    calls = []
    basis = Functions(lambda X: calls.append(1) or X[:, 0], first).bind(rows())
    calls.clear()
    basis.take([1])(rows())
    assert not calls


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (lambda X: X.sum(axis=0), r"shape \(8,\); got shape \(3,\)"),
        (lambda X: 1.0, r"shape \(8,\); got shape \(\)"),
        (lambda X: X[:, :, None], r"got shape \(8, 3, 1\)"),
        (lambda X: X[:, 0] * 1j, "got dtype complex128"),
        (lambda X: np.array([Fraction(1, 2)] * len(X)), "got dtype object"),
        (lambda X: np.where(X > 0, np.inf, X), "NaN or infinite"),
        (lambda X: X[:, : 1 + (len(X) > 5)], r"shape \(8, 1\); got shape \(8, 2\)"),
    ],
)
def test_functions_that_return_nonsense(bad, problem):
    bad.__name__ = "wobble"
    with pytest.raises(ValueError, match=rf"basis function 'wobble' must return.*{problem}.*called with X \(8, 3\)"):
        Functions(first, bad).bind(rows())(rows())


def test_functions_must_be_functions():
    for bad in ((), (first, 3)):
        with pytest.raises(ValueError, match="one or more functions"):
            Functions(*bad)


# Kernels -------------------------------------------------------------------------------------------------------------


def test_centres_are_the_distinct_rows():
    X = np.array([[1.0, 0.0], [0.0, 5.0], [1.0, -0.0], [0.0, -5.0], [0.0, 5.0]])
    basis = KernelBasis(Gaussian(1.0)).bind(X)
    np.testing.assert_array_equal(basis.centres, [[0.0, -5.0], [0.0, 5.0], [1.0, 0.0]])
    np.testing.assert_array_equal(basis.rows, [3, 1, 0])
    assert basis.labels() == ["K(., row 3)", "K(., row 1)", "K(., row 0)"]
    np.testing.assert_array_equal(basis(X), Gaussian(1.0)(X, X[[3, 1, 0]]))
    weighted = KernelBasis(Gaussian(1.0)).bind(X, sample_weight=[0.0, 0.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(weighted.rows, [3, 4, 2])


def test_the_order_of_the_rows_does_not_matter():
    X, order = rows(20), np.random.default_rng(1).permutation(20)
    basis, shuffled = KernelBasis("laplace").bind(X), KernelBasis("laplace").bind(X[order])
    np.testing.assert_array_equal(basis.centres, shuffled.centres)
    np.testing.assert_array_equal(order[shuffled.rows], basis.rows)
    assert shuffled.kernel.width == pytest.approx(basis.kernel.width, rel=1e-12)


def test_scale_is_resolved_with_the_weights():
    X, weight = rows(), np.arange(N, dtype=float)
    assert KernelBasis("gaussian").bind(X, weight).kernel == Gaussian().resolve(X, weight)
    assert KernelBasis("gaussian", CENTRES).bind(X).kernel == Gaussian().resolve(X)


def test_random_centres():
    X = rows(50)
    basis = KernelBasis(Gaussian(1.0), n_random=200).bind(X, rng=np.random.default_rng(5))
    assert basis.n_atoms == 200 and (basis.rows == -1).all()
    assert (basis.centres >= X.min(axis=0)).all() and (basis.centres <= X.max(axis=0)).all()
    spread = np.ptp(basis.centres, axis=0) / np.ptp(X, axis=0)
    assert (spread > 0.9).all()
    assert basis == KernelBasis(Gaussian(1.0), n_random=200).bind(X, rng=5)
    assert basis != KernelBasis(Gaussian(1.0), n_random=200).bind(X, rng=6)
    two = Concat([KernelBasis(Gaussian(1.0), n_random=4), KernelBasis(Gaussian(1.0), n_random=4)]).bind(X, rng=5)
    assert not np.isin(two.parts[0].centres, two.parts[1].centres).any()


def test_given_centres_are_copied_and_kept():
    centres = np.array(CENTRES)
    basis = KernelBasis(Gaussian(1.0), centres=centres)
    centres[:] = 0.0
    bound = basis.bind(rows())
    np.testing.assert_array_equal(bound.centres, CENTRES)
    np.testing.assert_array_equal(bound.order_keys(), CENTRES)
    assert (bound.rows == -1).all()
    with pytest.raises(ValueError, match="read-only"):
        bound.centres[0] = 1.0
    assert KernelBasis(Gaussian(1.0), [[0.5, -1.25]]).labels() == ["K(., [0.5, -1.25])"]
    with pytest.raises(ValueError, match="X has 2 features, but the basis was bound to 3"):
        basis.bind(rows(d=2))


def test_centres_bar_follows_the_atoms():
    X, Phi_bar = rows(6, seed=1), rows(6, 5, seed=2)
    basis = KernelBasis(Gaussian(1.5), CENTRES).bind(rows())
    moved = CENTRES.copy()
    moved[3, 1] += 1e-6
    change = (Phi_bar * (KernelBasis(Gaussian(1.5), moved)(X) - basis(X))).sum() / 1e-6
    assert basis.vjp(X, Phi_bar)[1][3, 1] == pytest.approx(change, rel=1e-4)
    mixed = Concat(["bias", basis]).bind(rows()).take([4, 0])
    np.testing.assert_allclose(
        mixed.vjp(X, Phi_bar[:, [3, 0]])[1], [basis.vjp(X, Phi_bar)[1][3], np.zeros(D)], rtol=1e-12
    )


def test_a_taken_basis_is_small():
    X = rows(2000)
    for basis in (KernelBasis("gaussian"), Concat(["bias", KernelBasis("gaussian"), "linear"])):
        assert len(pickle.dumps(basis.bind(X).take([5, 100, 7]))) < 1500
    assert len(pickle.dumps(Precomputed().bind(np.eye(300)).take([5, 100, 7]))) < 600


def test_kernel_basis_refuses():
    for bad in ({"n_random": 0}, {"n_random": 3, "centres": CENTRES}):
        with pytest.raises(ValueError, match="n_random must be a positive number, without centres"):
            KernelBasis(Gaussian(1.0), **bad)
    with pytest.raises(ValueError, match="unknown kernel"):
        KernelBasis("gausian")
    for weight in (np.zeros(N), np.ones(N - 1)):
        with pytest.raises(ValueError, match="expected 8 weights"):
            KernelBasis(Gaussian(1.0)).bind(rows(), weight)


# Precomputed ---------------------------------------------------------------------------------------------------------


def test_precomputed():
    X, Z = rows(), rows(5, seed=1)
    kernel = Gaussian(1.5)
    basis = Precomputed().bind(kernel(X, X), sample_weight=[1, 0, 1, 1, 1, 1, 0, 1])
    np.testing.assert_array_equal(basis.rows, [0, 2, 3, 4, 5, 7])
    np.testing.assert_array_equal(basis(kernel(Z, X)), kernel(Z, X[basis.rows]))
    few = basis.take([4, 1])
    assert few.labels() == ["K(., row 5)", "K(., row 2)"] and few.n_features == N
    np.testing.assert_array_equal(few(kernel(Z, X)), kernel(Z, X[[5, 2]]))
    with pytest.raises(ValueError, match="X has 2 features, but the basis was bound to 8"):
        few(kernel(Z, X[[5, 2]]))
    assert pickle.loads(pickle.dumps(few)) == few != basis
    assert basis.vjp(kernel(Z, X), np.ones((5, 6)))[1].shape == (6, N)
    both = Concat(["bias", Precomputed()]).bind(kernel(X, X)).take([3, 0])
    np.testing.assert_array_equal(both(kernel(Z, X)), np.column_stack([kernel(Z, X[[2]]), np.ones(5)]))
    with pytest.raises(ValueError, match=r"square at fit, \(N, N\), got shape \(5, 8\)"):
        Precomputed().bind(kernel(Z, X))


# Concat --------------------------------------------------------------------------------------------------------------


def test_order_keys_of_parts():
    X = rows()
    assert Concat(["bias", "linear"]).bind(X).order_keys() is None
    basis = Concat(["linear", KernelBasis(Gaussian(1.0), CENTRES)]).bind(X)
    keys = basis.order_keys()
    np.testing.assert_array_equal(keys[:3], [[0, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0]])
    np.testing.assert_array_equal(keys[3:], np.column_stack([np.ones(5), CENTRES]))
    np.testing.assert_array_equal(basis.take([4, 0]).order_keys()[:, 1:], [CENTRES[1], [0, 0, 0]])


def test_theta_of_parts():
    basis = Concat([KernelBasis(Gaussian(2.0), CENTRES), "bias", KernelBasis(Laplace((1.0, 3.0, 4.0)), CENTRES)])
    np.testing.assert_allclose(basis.theta, np.log([2.0, 1.0, 3.0, 4.0]))
    changed = basis.with_theta(np.log([5.0, 6.0, 7.0, 8.0]))
    assert changed.parts[0].kernel.width == pytest.approx(5.0)
    assert changed.parts[2].kernel.width == pytest.approx((6.0, 7.0, 8.0))
    assert basis.parts[0].kernel.width == 2.0


def test_as_basis():
    assert as_basis("bias") == Bias() and as_basis("linear") == Linear() and as_basis("quadratic") == Polynomial(2)
    assert as_basis(Gaussian(2.0)) == KernelBasis(Gaussian(2.0))
    assert as_basis(FromCallable(np.dot)) == KernelBasis(FromCallable(np.dot))
    assert as_basis(first) == Functions(first)
    basis = Linear()
    assert as_basis(basis) is basis
    assert as_basis(["bias", first, Gaussian(2.0)]) == Concat((Bias(), Functions(first), KernelBasis(Gaussian(2.0))))
    assert as_basis(("bias", ["linear"])).bind(rows()).labels() == ["bias", "x0", "x1", "x2"]
    for bad in ("cubic", 3, None, [], Bias, ["bias", 3]):
        with pytest.raises(ValueError, match="a basis is one of 'bias', 'linear', 'quadratic', a Basis, a Kernel"):
            as_basis(bad)
    with pytest.raises(ValueError, match="one or more dictionaries"):
        Concat(())


@pytest.mark.parametrize(
    ("basis", "text"),
    [
        (Bias(), "Bias()"),
        (Linear((0, 2)), "Linear(features=(0, 2))"),
        (Polynomial().bind(rows(d=2)).take([3, 0]), "Polynomial(x0*x1, x0)"),
        (Linear().bind(rows(d=9)), "Linear(x0, x1, x2, x3, x4, ... 9 in all)"),
        (KernelBasis(Gaussian(2.0)), "KernelBasis(Gaussian(width=2.0))"),
        (KernelBasis(Gaussian(2.0), n_random=4), "KernelBasis(Gaussian(width=2.0), n_random=4)"),
        (KernelBasis(Gaussian(2.0)).bind(rows()), "KernelBasis(Gaussian(width=2.0), 8 centres)"),
        (Concat(["bias", first]), "Concat([Bias(), Functions(first)])"),
        (Precomputed().bind(np.eye(4)).take([0]), "Precomputed(1 of 4 columns)"),
    ],
)
def test_repr(basis, text):
    assert isinstance(basis, Basis) and repr(basis) == text
