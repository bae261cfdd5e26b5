"""Every kernel has every property; each family also agrees with its formula written out by hand."""

import math
import pickle

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, RationalQuadratic
from sklearn.gaussian_process.kernels import Matern as SklearnMatern
from sklearn.svm import SVR

from relvec.kernels import (
    Cauchy,
    FromCallable,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    LinearSpline,
    LogDistance,
    Matern,
    Polynomial,
    Product,
    Sum,
    as_kernel,
    check_width,
    scale_width,
)

D = 3
STATIONARY = [
    Gaussian(1.3),
    Gaussian((0.7, 1.9, 3.1)),
    Laplace(1.3),
    Laplace((0.7, 1.9, 3.1)),
    Cauchy(0.8),
    LogDistance(1.7),
    Matern(1.5, 1.1),
    Matern(2.5, (0.7, 1.9, 3.1)),
]
KERNELS = [
    *STATIONARY,
    Polynomial(),
    Polynomial(2, 0.5, (0.7, 1.9, 3.1)),
    Polynomial(3, 0.0, 1.4),
    Polynomial(1, -0.5),
    Linear(),
    LinearSpline(),
    FromCallable(RBF(1.2)),
    Gaussian(1.5) + Linear() + Laplace((1.0, 2.0, 3.0)),
    Gaussian(1.5) * Polynomial(2) * LinearSpline(),
    (Cauchy(1.5) + Linear()) * Matern(1.5, 2.0),
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def rows(n, d=D, seed=0, scale=1.0):
    X = scale * np.random.default_rng(seed).standard_normal((n, d))
    X.flags.writeable = False
    return X


def wide(kernel, d):
    """Return the kernel with as many per-feature widths as there are features."""
    if isinstance(kernel, Sum | Product):
        return type(kernel)(tuple(wide(part, d) for part in kernel.parts))
    tuples = not isinstance(kernel, Linear | LinearSpline | FromCallable) and isinstance(kernel.width, tuple)
    return type(kernel)(**{**vars(kernel), "width": np.resize(kernel.width, d)}) if tuples else kernel


@every_kernel
@pytest.mark.parametrize("d", [D, 12])
class TestEveryKernel:
    """The contract; with 12 features the distances come from a matrix product."""

    def test_shape_and_dtype(self, kernel, d):
        K = wide(kernel, d)(rows(7, d).astype(np.float32), rows(4, d, seed=1))
        assert K.shape == (7, 4) and K.dtype == np.float64 and np.isfinite(K).all() and K.std() > 0

    def test_is_symmetric(self, kernel, d):
        X, Z, kernel = rows(7, d), rows(4, d, seed=1), wide(kernel, d)
        np.testing.assert_allclose(kernel(X, Z), kernel(Z, X).T, rtol=1e-11, atol=1e-13)

    def test_diag_is_the_diagonal(self, kernel, d):
        X, kernel = rows(150, d), wide(kernel, d)
        np.testing.assert_allclose(kernel.diag(X), np.diagonal(kernel(X, X)), rtol=1e-11, atol=1e-13)

    def test_blocks_make_the_whole(self, kernel, d):
        X, Z, kernel = rows(9, d), rows(6, d, seed=1), wide(kernel, d)
        blocks = [[kernel(X[i : i + 4], Z[j : j + 1]) for j in range(6)] for i in range(0, 9, 4)]
        np.testing.assert_allclose(np.block(blocks), kernel(X, Z), rtol=1e-11, atol=1e-13)

    def test_vjp_is_the_derivative(self, kernel, d):
        X, Z, kernel = rows(7, d), rows(5, d, seed=1), wide(kernel, d)
        K_bar = np.random.default_rng(2).standard_normal((7, 5))
        theta, h = kernel.theta, 1e-6
        theta_bar, Z_bar = kernel.vjp(X, Z, K_bar)
        assert theta_bar.shape == theta.shape and Z_bar.shape == Z.shape
        expected = [
            (K_bar * (kernel.with_theta(theta + e)(X, Z) - kernel.with_theta(theta - e)(X, Z))).sum() / (2 * h)
            for e in h * np.eye(len(theta))
        ]
        np.testing.assert_allclose(theta_bar, expected, rtol=1e-6, atol=1e-6 * np.abs(kernel(X, Z)).max())
        E = h * np.eye(Z.size).reshape(Z.size, *Z.shape)
        expected = [(K_bar * (kernel(X, Z + e) - kernel(X, Z - e))).sum() / (2 * h) for e in E]
        atol = 1e-6 * np.abs(Z_bar).max()
        np.testing.assert_allclose(Z_bar.ravel(), expected, rtol=1e-6, atol=atol)

    def test_theta_goes_there_and_back(self, kernel, d):
        X, Z, kernel = rows(7, d), rows(4, d, seed=1), wide(kernel, d)
        same = kernel.with_theta(kernel.theta)
        assert type(same) is type(kernel)
        np.testing.assert_allclose(same(X, Z), kernel(X, Z), rtol=1e-12)
        if len(kernel.theta):
            moved = kernel.with_theta(kernel.theta + 0.1)
            np.testing.assert_allclose(moved.theta, kernel.theta + 0.1, rtol=1e-12)
            assert not np.allclose(moved(X, Z), kernel(X, Z))

    def test_survives_pickle_and_compares_by_value(self, kernel, d):
        kernel = wide(kernel, d)
        assert pickle.loads(pickle.dumps(kernel)) == kernel
        assert kernel != Gaussian(123.0)

    def test_concrete_widths_resolve_to_themselves(self, kernel, d):
        kernel = wide(kernel, d)
        assert kernel.resolve(rows(5, d)) == kernel

    def test_positive_definite_is_no_empty_promise(self, kernel, d):
        kernel = wide(kernel, d)
        if kernel.positive_definite:
            for scale in (0.1, 1.0, 10.0):
                X = rows(40, d, scale=scale)
                eigenvalues = np.linalg.eigvalsh(kernel(X, X))
                assert eigenvalues[0] >= -1e-10 * eigenvalues[-1]

    def test_inputs_are_left_alone(self, kernel, d):
        X, Z, kernel = rows(7, d), rows(4, d, seed=1), wide(kernel, d)  # read-only: writing would raise
        K_bar = np.ones((7, 4))
        K_bar.flags.writeable = False
        kernel(X, Z), kernel.diag(X), kernel.vjp(X, Z, K_bar)

    def test_no_centres_and_no_rows(self, kernel, d):
        X, none, kernel = rows(4, d), np.empty((0, d)), wide(kernel, d)
        if "FromCallable" not in repr(kernel):
            assert (
                kernel(X, none).shape == (4, 0) and kernel(none, X).shape == (0, 4) and kernel.diag(none).shape == (0,)
            )
            assert kernel.vjp(X, none, np.empty((4, 0)))[1].shape == (0, d)


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("shift", [3.0, 1e6])
def test_stationary_kernels_do_not_see_translations(kernel, shift):
    X, Z = rows(6), rows(5, seed=1)
    np.testing.assert_allclose(kernel(X + shift, Z + shift), kernel(X, Z), rtol=1e-8, atol=1e-9)
    K_bar = rows(6, 5, seed=3)
    for moved, still in zip(kernel.vjp(X + shift, Z + shift, K_bar), kernel.vjp(X, Z, K_bar)):
        np.testing.assert_allclose(moved, still, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kernel", [LogDistance(), LinearSpline(), Polynomial(1, -5.0), LogDistance() + Gaussian(9.0)])
def test_not_positive_definite_kernels_have_negative_eigenvalues(kernel):
    X = np.linspace(-3.0, 3.0, 9)[:, None]
    eigenvalues = np.linalg.eigvalsh(kernel(X, X))
    assert not kernel.positive_definite and eigenvalues[0] < -1e-3 * eigenvalues[-1]


def test_positive_definite_claims():
    claimed = {repr(kernel) for kernel in KERNELS if kernel.positive_definite}
    refused = [LogDistance(1.7), Polynomial(1, -0.5), LinearSpline(), FromCallable(RBF(1.2)), KERNELS[-2]]
    assert claimed == {repr(kernel) for kernel in KERNELS} - {repr(kernel) for kernel in refused}


X1, Z1 = np.array([1.0, -2.0]), np.array([0.5, 1.0])
R2 = 0.25 + 9.0
HAND = [
    (Gaussian(2.0), math.exp(-R2 / 4)),
    (Gaussian((2.0, 3.0)), math.exp(-0.25 / 4 - 9.0 / 9)),
    (Laplace(2.0), math.exp(-math.sqrt(R2) / 2)),
    (Cauchy(2.0), 1 / (1 + R2 / 4)),
    (LogDistance(), math.log(1 + R2)),
    (LogDistance(2.0), math.log(1 + R2 / 4)),
    (Polynomial(), (0.5 - 2.0 + 1.0) ** 3),
    (Polynomial(2, 0.5, 2.0), ((0.5 - 2.0) / 4 + 0.5) ** 2),
    (Linear(), 0.5 - 2.0),
]


@pytest.mark.parametrize(("kernel", "value"), HAND, ids=lambda v: repr(v) if isinstance(v, Kernel) else "")
def test_values_by_hand(kernel, value):
    np.testing.assert_allclose(kernel([X1], [Z1]), [[value]], rtol=1e-14)


def test_spline_is_equation_29():
    def spline(x, z):  # T01 eq. (29), letter by letter
        low = min(x, z)
        return 1 + x * z + x * z * low - (x + z) / 2 * low**2 + low**3 / 3

    X, Z = rows(8, scale=4.0), rows(6, seed=1, scale=4.0)
    expected = [[math.prod(spline(a, b) for a, b in zip(x, z)) for z in Z] for x in X]
    np.testing.assert_allclose(LinearSpline()(X, Z), expected, rtol=1e-10)


def test_agreement_with_scikit_learn():
    X, Z = rows(8), rows(6, seed=1)
    np.testing.assert_allclose(Gaussian(2.0)(X, Z), RBF(math.sqrt(2.0))(X, Z), rtol=1e-12)
    np.testing.assert_allclose(Laplace(2.0)(X, Z), SklearnMatern(2.0, nu=0.5)(X, Z), rtol=1e-12)
    np.testing.assert_allclose(Cauchy(2.0)(X, Z), RationalQuadratic(math.sqrt(2.0), alpha=1.0)(X, Z), rtol=1e-12)
    for nu in (1.5, 2.5):
        np.testing.assert_allclose(Matern(nu, 2.0)(X, Z), SklearnMatern(2.0, nu=nu)(X, Z), rtol=1e-12)


def test_sum_and_product():
    X, Z = rows(6), rows(5, seed=1)
    a, b, c = Gaussian(1.0), Linear(), Cauchy(2.0)
    np.testing.assert_allclose((a + b + c)(X, Z), a(X, Z) + b(X, Z) + c(X, Z), rtol=1e-14)
    np.testing.assert_allclose((a * b * c)(X, Z), a(X, Z) * b(X, Z) * c(X, Z), rtol=1e-14)
    assert a + b + c == Sum((a, b, c)) and a * (b * c) == Product((a, b, c))
    assert (a + b) * c == Product((Sum((a, b)), c))
    assert hash(a + b) == hash(Gaussian(1.0) + Linear())
    np.testing.assert_allclose((a * b + c).theta, np.log([1.0, 2.0]))
    for bad in (2, "gaussian"):
        with pytest.raises(TypeError):
            a + bad
        with pytest.raises(TypeError):
            a * bad
    with pytest.raises(ValueError, match="one or more kernels"):
        Sum(())


# Widths --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", [Gaussian(), Laplace(), Cauchy(), Matern(), LogDistance("scale"), Polynomial(width="scale")]
)
def test_scale_is_scikit_learns_gamma(kernel):
    X = rows(30) * [1.0, 5.0, 0.2] + [3.0, 0.0, -1.0]
    gamma = SVR(gamma="scale").fit(X, X[:, 0])._gamma
    resolved = kernel.resolve(X)
    assert type(resolved) is type(kernel)
    assert resolved.width == pytest.approx(gamma**-0.5, rel=1e-12)
    assert (kernel + Linear()).resolve(X) == resolved + Linear()


def test_weights_count_as_repetitions():
    X, weight = rows(6), np.array([1, 2, 0, 3, 1, 1])
    assert scale_width(X, weight) == pytest.approx(scale_width(np.repeat(X, weight, axis=0)), rel=1e-13)
    for unit in (1e-300, 5e307):  # their sum is below or beyond what a float holds well
        assert scale_width(X, unit * weight) == pytest.approx(scale_width(X, weight), rel=1e-13)
    assert scale_width(X, weight) != pytest.approx(scale_width(X), rel=1e-3)
    assert Gaussian().resolve(X, weight).width == scale_width(X, weight)
    outlier = np.vstack([X, np.full((1, D), 1e300)])
    assert scale_width(outlier, [*weight, 0.0]) == scale_width(X, weight)
    with pytest.raises(ValueError, match="positive weight"):
        scale_width(X, np.zeros(6))


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e200, 1e-300])
def test_constant_data_have_width_one(value):
    X, rng = np.full((70, 3), value), np.random.default_rng(0)
    assert scale_width(X) == 1.0
    assert all(scale_width(X, rng.uniform(size=70)) == 1.0 for _ in range(20))


@pytest.mark.parametrize("unit", [1e-150, 1e-20, 1e20, 1e150])
@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize(
    "kernel",
    [Gaussian(), Laplace(), Cauchy(), LogDistance("scale"), Matern(1.5), Matern(2.5), Polynomial(width="scale")],
)
def test_units_do_not_matter(kernel, d, unit):
    X, Z, K_bar = rows(8, d), rows(5, d, seed=1), rows(8, 5, seed=2)
    here, there = kernel.resolve(X), kernel.resolve(unit * X)
    assert there.width == pytest.approx(unit * here.width, rel=1e-12)
    np.testing.assert_allclose(there(unit * X, unit * Z), here(X, Z), rtol=1e-10)
    np.testing.assert_allclose(there.diag(unit * X), here.diag(X), rtol=1e-10)
    (theta_bar, Z_bar), (theta_unit, Z_unit) = here.vjp(X, Z, K_bar), there.vjp(unit * X, unit * Z, K_bar)
    np.testing.assert_allclose(theta_unit, theta_bar, rtol=1e-9)
    np.testing.assert_allclose(Z_unit * unit, Z_bar, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "kernel", [Gaussian(1.0), Laplace(1.0), Cauchy(1.0), LogDistance(), Matern(1.5, 1.0), Matern(2.5, 1.0)]
)
@pytest.mark.parametrize("d", [2, 12])
def test_far_away_is_finite(kernel, d):
    K = kernel(np.full((2, d), 1e160), np.zeros((3, d)))
    assert np.isfinite(K).all()
    assert isinstance(kernel, LogDistance) or K.max() < 1e-250


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace(1.0), Matern(1.5, 1.0)])
def test_the_matrix_product_keeps_short_distances(kernel):
    """Two tight clusters far apart, in 12 dimensions: the naive product formula loses all digits of D2."""
    cluster = rows(10, 12, scale=0.2)
    X = np.vstack([cluster, cluster + 1e7])
    direct = ((X[:, None] - X[None, :]) ** 2).sum(axis=2)
    np.testing.assert_allclose(kernel(X, X), kernel._profile(direct), rtol=1e-7)
    pairs = np.vstack([rows(300, 12), rows(300, 12) + 1e-9])  # a few short distances among many
    direct = ((pairs[:, None] - pairs[None, :]) ** 2).sum(axis=2)
    np.testing.assert_allclose(kernel(pairs, pairs), kernel._profile(direct), rtol=1e-10)


def test_laplace_derivative_is_zero_at_its_centre():
    X = rows(4)
    theta_bar, Z_bar = Laplace(1.0).vjp(X, X, np.eye(4))
    assert not theta_bar.any() and not Z_bar.any()


def test_spline_derivative_where_a_factor_vanishes():
    """The first factor is zero at x = 7/3, z = -1, with slope -1/2: dividing by it would lose the derivative."""
    X, Z = np.array([[7 / 3, 2.0]]), np.array([[-1.0, 0.5]])
    assert abs(LinearSpline()(X, Z)[0, 0]) < 1e-12
    _, Z_bar = LinearSpline().vjp(X, Z, [[1.0]])
    second = LinearSpline()(X[:, 1:], Z[:, 1:])[0, 0]
    np.testing.assert_allclose(Z_bar, [[-0.5 * second, 0.0]], rtol=1e-12, atol=1e-12)


# From a specification ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "default", "wide_one"),
    [
        ("gaussian", Gaussian("scale"), Gaussian(2.0)),
        ("rbf", Gaussian("scale"), Gaussian(2.0)),
        ("laplace", Laplace("scale"), Laplace(2.0)),
        ("cauchy", Cauchy("scale"), Cauchy(2.0)),
        ("matern32", Matern(1.5, "scale"), Matern(1.5, 2.0)),
        ("matern52", Matern(2.5, "scale"), Matern(2.5, 2.0)),
        ("log_distance", LogDistance(1.0), LogDistance(2.0)),
        ("polynomial", Polynomial(3, 1.0, 1.0), Polynomial(3, 1.0, 2.0)),
        ("poly", Polynomial(3, 1.0, 1.0), Polynomial(3, 1.0, 2.0)),
        ("linear", Linear(), None),
        ("linear_spline", LinearSpline(), None),
    ],
)
def test_names(name, default, wide_one):
    assert as_kernel(name) == default
    if wide_one is None:
        with pytest.raises(ValueError, match="has no width"):
            as_kernel(name, width=2.0)
    else:
        assert as_kernel(name, width=2.0) == wide_one
        assert as_kernel(name, width=np.array([1, 2])).width == (1.0, 2.0)
    with pytest.raises(ValueError, match="positive"):
        as_kernel(name, width=-1.0)


def test_other_specifications():
    kernel = Gaussian(2.0)
    assert as_kernel(kernel) is kernel
    X = rows(4)
    assert isinstance(as_kernel(RBF(2.0)), FromCallable)
    np.testing.assert_allclose(as_kernel(RBF(2.0))(X, X), RBF(2.0)(X))
    with pytest.raises(ValueError, match=r"unknown kernel 'gausian'.*gaussian, rbf, laplace.*linear_spline"):
        as_kernel("gausian")
    with pytest.raises(ValueError, match=r"write Gaussian\(\)"):
        as_kernel(Gaussian)
    with pytest.raises(ValueError, match="got None"):
        as_kernel(None)
    for spec in (kernel, RBF(2.0)):
        with pytest.raises(ValueError, match="given by name"):
            as_kernel(spec, width=3.0)


@pytest.mark.parametrize(
    "width", [0.0, -1.0, np.nan, np.inf, [1.0, 0.0], [1.0, np.nan], [], [[1.0]], None, "learned", "1", object()]
)
def test_bad_widths(width):
    for refuse in (check_width, Gaussian, lambda width: as_kernel("gaussian", width=width)):
        with pytest.raises(ValueError, match=r"width must be 'scale', 'learn', 'learn-per-feature', a positive number"):
            refuse(width)


def test_good_widths():
    assert check_width("scale") == "scale"
    assert check_width(np.float32(2)) == 2.0 and type(check_width(np.int64(2))) is float
    assert check_width(np.array([1, 2])) == (1.0, 2.0)
    assert hash(Gaussian(np.array([1.0, 2.0]))) == hash(Gaussian([1, 2]))
    assert repr(Gaussian(np.float64(2.0))) == "Gaussian(width=2.0)"


def test_errors_say_what_came():
    X = rows(4)
    with pytest.raises(ValueError, match="2 entries but the data have 3 features"):
        Gaussian((1.0, 2.0)).resolve(X)
    with pytest.raises(ValueError, match="2 entries but the data have 3 features"):
        Gaussian((1.0, 2.0))(X, X)
    for use in (lambda k: k(X, X), lambda k: k.theta, lambda k: k.vjp(X, X, np.ones((4, 4)))):
        with pytest.raises(ValueError, match=r"resolve\(X\) first"):
            use(Gaussian())
    with pytest.raises(ValueError, match=r"got shape \(4,\).*reshape"):
        Gaussian(1.0)(X[:, 0], X)
    with pytest.raises(ValueError, match="X has 3 features and Z has 2"):
        Linear()(X, X[:, :2])
    with pytest.raises(ValueError, match=r"\(4, 4\); got \(4, 3\)"):
        Linear().vjp(X, X, np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"shape \(1,\); got \(2,\)"):
        Gaussian(1.0).with_theta([0.0, 1.0])
    for theta in ([1e4], [-1e4], [np.nan]):
        with pytest.raises(ValueError, match="width must be"):
            Gaussian(1.0).with_theta(theta)
    for nu in (0.5, 2, "1.5"):
        with pytest.raises(ValueError, match=r"nu must be 1.5 or 2.5"):
            Matern(nu)
    for degree in (0, 1.5, -1):
        with pytest.raises(ValueError, match="degree must be"):
            Polynomial(degree)
    with pytest.raises(ValueError, match="offset must be"):
        Polynomial(2, np.nan)
    with pytest.raises(AttributeError):
        Gaussian(1.0).width = 2.0


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda X, Z: X, r"got shape \(4, 3\)"),
        (lambda X, Z: (X @ Z.T).astype(complex), "got dtype complex128"),
        (lambda X, Z: (X @ Z.T).astype(str), "got dtype <U"),
        (lambda X, Z: np.full((len(X), len(Z)), np.nan), "NaN or infinite"),
        (lambda X, Z: None, r"got shape \(\)"),
    ],
)
def test_functions_that_are_no_kernels(function, problem):
    with pytest.raises(ValueError, match=rf"real, finite array of shape \(4, 5\); .*{problem}.*called with X \(4, 3\)"):
        FromCallable(function)(rows(4), rows(5, seed=1))


def test_from_callable_needs_a_function():
    with pytest.raises(ValueError, match=r"function\(X, Z\)"):
        FromCallable(3)
