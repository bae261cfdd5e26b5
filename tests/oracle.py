"""Dense reference implementation of the papers' formulas, for tests only.

Everything is computed in the most literal way: N x N matrices, plain inverses, moves and updates recomputed from
scratch, derivatives in the sample space. Nothing here is fast, nothing shares code with the library.

Papers: T01 (Tipping 2001), TF03 (Tipping and Faul 2003), RQ05 (Rasmussen and Quinonero-Candela 2005).

Notation: Phi (N, k) design of the functions in the model, Phi_all (N, M) the whole dictionary, active (k,) column
indices of Phi_all in the model (in the order of alpha), t (N,) targets, alpha (k,) weight precisions, beta noise
precision, weights (N,) sample weights. A sample weight is a frequency: it multiplies the sample's log-likelihood, so
N becomes sum(weights) and a row of weight 2 is the row given twice. With beta = 1 and weights = B the same formulas are
the linearised problem of TF03 eqs. (12)-(14), up to the constant in the evidence.

C is formed in double precision, so ill-conditioned models lose digits here (tens of nats in bad cases): compare those
with the mp_* functions, which work at any number of digits.
"""

import math
from typing import NamedTuple

import numpy as np
from mpmath import mp

# --- Gaussian likelihood: evidence and posterior -------------------------------------------------------------------


def _sample_weights(weights, N):
    return np.ones(N) if weights is None else np.asarray(weights, dtype=float)


def _kept(Phi, t, weights):
    """Rows of positive weight, as (Phi, t, weights); a row of weight zero says nothing."""
    w = _sample_weights(weights, len(t))
    keep = w > 0
    return Phi[keep], t[keep], w[keep]


def covariance(Phi, alpha, beta, weights=None):
    """C = W^-1 / beta + Phi A^-1 Phi' (N, N): T01 eq. (15), TF03 eq. (8); positive weights, alpha may be inf."""
    w = _sample_weights(weights, Phi.shape[0])
    if np.any(w <= 0):
        raise ValueError("covariance needs positive weights: a row of weight zero has infinite variance")
    return np.diag(1 / (w * beta)) + Phi @ np.diag(1 / np.asarray(alpha, dtype=float)) @ Phi.T


def log_evidence(Phi, t, alpha, beta, weights=None):
    """log p(t | alpha, beta), complete: TF03 eq. (7) = log of T01 eq. (15).

    With weights: log of the integral of prod_n N(t_n | phi_n w, 1/beta)^weight_n p(w | alpha) dw. Writing each power as
    a Gaussian of precision weight_n beta leaves the factor (beta / 2 pi)^((weight_n - 1) / 2) weight_n^(-1/2).
    """
    total = float(np.sum(_sample_weights(weights, len(t))))
    Phi, t, w = _kept(Phi, t, weights)
    C = covariance(Phi, alpha, beta, w)
    sign, logdet = np.linalg.slogdet(C)
    if sign <= 0:
        raise ArithmeticError("C is not positive definite in double precision: use mp_log_evidence")
    gaussian = -0.5 * (len(t) * math.log(2 * math.pi) + logdet + t @ np.linalg.solve(C, t))
    return float(gaussian + 0.5 * (total - len(t)) * math.log(beta / (2 * math.pi)) - 0.5 * np.sum(np.log(w)))


def posterior(Phi, t, alpha, beta, weights=None):
    """Sigma (k, k) and mu (k,) of the weights: T01 eqs. (12)-(13), alpha finite."""
    W = np.diag(_sample_weights(weights, len(t)))
    Sigma = np.linalg.inv(np.diag(alpha) + beta * Phi.T @ W @ Phi)
    return Sigma, beta * Sigma @ Phi.T @ W @ t


def gamma(Phi, t, alpha, beta, weights=None):
    """gamma_i = 1 - alpha_i Sigma_ii (k,): T01 eq. (17)."""
    Sigma, _ = posterior(Phi, t, alpha, beta, weights)
    return 1 - np.asarray(alpha) * np.diag(Sigma)


def objective(Phi, t, alpha, beta, weights=None, a=0.0, b=0.0, c=0.0, d=0.0):
    """T01 eq. (36): the log evidence without -N/2 log 2 pi, plus the Gamma hyperprior terms in log alpha, log beta."""
    N = np.sum(_sample_weights(weights, len(t)))
    evidence = log_evidence(Phi, t, alpha, beta, weights) + 0.5 * N * math.log(2 * math.pi)
    return float(evidence + np.sum(a * np.log(alpha) - b * np.asarray(alpha)) + c * math.log(beta) - d * beta)


def predictive(Phi_star, Phi, t, alpha, beta, weights=None):
    """Mean (n,) and variance (n,), noise included, at the rows of Phi_star (n, k): T01 eqs. (21)-(22)."""
    Sigma, mu = posterior(Phi, t, alpha, beta, weights)
    return Phi_star @ mu, 1 / beta + np.diag(Phi_star @ Sigma @ Phi_star.T)


# --- derivatives, from C -------------------------------------------------------------------------------------------


def _covariance_derivatives(Phi, alpha, beta, weights):
    """First derivatives of C in theta = (log alpha, log beta), k + 1 matrices (N, N).

    A^-1 and 1/beta enter C linearly, so the second derivative in one theta is minus the first and mixed ones vanish.
    """
    first = [-np.outer(Phi[:, i], Phi[:, i]) / alpha[i] for i in range(Phi.shape[1])]
    return [*first, -np.diag(1 / (weights * beta))]


def gradient(Phi, t, alpha, beta, weights=None, a=0.0, b=0.0, c=0.0, d=0.0):
    """Gradient (k + 1,) of `objective` in (log alpha, log beta), from dL = -tr(C^-1 dC)/2 + u' dC u/2, u = C^-1 t."""
    total = np.sum(_sample_weights(weights, len(t)))
    Phi, t, w = _kept(Phi, t, weights)
    inverse = np.linalg.inv(covariance(Phi, alpha, beta, w))
    u = inverse @ t
    derivatives = _covariance_derivatives(Phi, alpha, beta, w)
    g = np.array([-0.5 * np.trace(inverse @ dC) + 0.5 * u @ dC @ u for dC in derivatives])
    g[:-1] += a - b * np.asarray(alpha)
    g[-1] += 0.5 * (total - len(t)) + c - d * beta
    return g


def gradient_log_alpha(Phi, t, alpha, beta, weights=None, a=0.0, b=0.0):
    """dL/dlog alpha (k,): the value of T01 eq. (42), computed from C."""
    return gradient(Phi, t, alpha, beta, weights, a, b)[:-1]


def gradient_log_beta(Phi, t, alpha, beta, weights=None, c=0.0, d=0.0):
    """dL/dlog beta: the value of T01 eq. (45) (bracket times the missing beta), computed from C."""
    return float(gradient(Phi, t, alpha, beta, weights, c=c, d=d)[-1])


def hessian(Phi, t, alpha, beta, weights=None, a=0.0, b=0.0, c=0.0, d=0.0):
    """Hessian (k + 1, k + 1) of `objective` in (log alpha, log beta), from C; a and c do not enter.

    d2L_ij = tr(C^-1 C_i C^-1 C_j)/2 - u' C_i C^-1 C_j u + (u' C_ij u - tr(C^-1 C_ij))/2.
    """
    Phi, t, w = _kept(Phi, t, weights)
    inverse = np.linalg.inv(covariance(Phi, alpha, beta, w))
    u = inverse @ t
    first = _covariance_derivatives(Phi, alpha, beta, w)
    H = np.empty((len(first), len(first)))
    for i, Ci in enumerate(first):
        for j, Cj in enumerate(first):
            H[i, j] = 0.5 * np.trace(inverse @ Ci @ inverse @ Cj) - u @ Ci @ inverse @ Cj @ u
        Cii = -Ci
        H[i, i] += 0.5 * (u @ Cii @ u - np.trace(inverse @ Cii))
    return H - np.diag([*(b * np.asarray(alpha)), d * beta])


def dL_dPhi(Phi, t, alpha, beta, weights=None):
    """D = dL/dPhi (N, k): T01 eq. (54), (C^-1 t t' C^-1 - C^-1) Phi A^-1; rows of weight zero are zero."""
    D = np.zeros(Phi.shape)
    keep = _sample_weights(weights, len(t)) > 0
    Phi, t, w = _kept(Phi, t, weights)
    inverse = np.linalg.inv(covariance(Phi, alpha, beta, w))
    D[keep] = (inverse @ np.outer(t, t) @ inverse - inverse) @ Phi @ np.diag(1 / np.asarray(alpha, dtype=float))
    return D


def gaussian_design(X, Z, eta):
    """Phi_nm = exp(-sum_k eta_k (x_nk - z_mk)^2) (N, M) for X (N, p), Z (M, p), eta (p,): T01 eq. (56)."""
    return np.exp(-np.sum(np.asarray(eta) * (X[:, None, :] - Z[None, :, :]) ** 2, axis=2))


def dL_deta(X, Z, eta, t, alpha, beta, weights=None):
    """dL/deta (p,) for `gaussian_design`: T01 eq. (57)."""
    Phi = gaussian_design(X, Z, eta)
    D = dL_dPhi(Phi, t, alpha, beta, weights)
    return np.einsum("nm,nm,nmk->k", -D, Phi, (X[:, None, :] - Z[None, :, :]) ** 2)


def finite_difference(function, x, step=1e-2):
    """Gradient of a scalar function of an array x (any shape), by eighth-order central differences."""
    x = np.asarray(x, dtype=float)
    grad = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        for k, coefficient in enumerate((4 / 5, -1 / 5, 4 / 105, -1 / 280), start=1):
            e = np.zeros(x.shape)
            e[index] = k * step
            grad[index] += coefficient * (function(x + e) - function(x - e)) / step
    return grad


# --- one step of the fixed-point updates ---------------------------------------------------------------------------


def mackay_step(Phi, t, alpha, beta, weights=None, a=0.0, b=0.0, c=0.0, d=0.0):
    """(alpha, beta) after one simultaneous MacKay update: T01 eqs. (44) and (46)."""
    w = _sample_weights(weights, len(t))
    _, mu = posterior(Phi, t, alpha, beta, weights)
    g = gamma(Phi, t, alpha, beta, weights)
    rss = np.sum(w * (t - Phi @ mu) ** 2)
    return (g + 2 * a) / (mu**2 + 2 * b), float((np.sum(w) - np.sum(g) + 2 * c) / (rss + 2 * d))


def em_step(Phi, t, alpha, beta, weights=None, a=0.0, b=0.0, c=0.0, d=0.0):
    """(alpha, beta) after one simultaneous EM update: T01 eqs. (48) (equal to (43)) and (50)."""
    w = _sample_weights(weights, len(t))
    Sigma, mu = posterior(Phi, t, alpha, beta, weights)
    rss = np.sum(w * (t - Phi @ mu) ** 2)
    spread = np.sum(gamma(Phi, t, alpha, beta, weights)) / beta
    return (1 + 2 * a) / (mu**2 + np.diag(Sigma) + 2 * b), float((np.sum(w) + 2 * c) / (rss + spread + 2 * d))


# --- sequential algorithm: statistics and gains --------------------------------------------------------------------


def S_Q(Phi_all, Phi_active, t, alpha, beta, weights=None):
    """S_m = phi_m' C^-1 phi_m and Q_m = phi_m' C^-1 t, each (M,), C of the current model: TF03 eq. (22)."""
    keep = _sample_weights(weights, len(t)) > 0
    Phi_active, t, w = _kept(Phi_active, t, weights)
    Phi_all = Phi_all[keep]
    inverse = np.linalg.inv(covariance(Phi_active, alpha, beta, w))
    return np.diag(Phi_all.T @ inverse @ Phi_all).copy(), Phi_all.T @ inverse @ t


def s_q(Phi_all, active, t, alpha, beta, weights=None):
    """s_m = phi_m' C_-m^-1 phi_m and q_m = phi_m' C_-m^-1 t, each (M,): TF03 eq. (19).

    C_-m is built anew without column m for each m in the model; it is C itself for the others.
    """
    active, alpha = np.asarray(active, dtype=int), np.asarray(alpha, dtype=float)
    s, q = np.empty(Phi_all.shape[1]), np.empty(Phi_all.shape[1])
    for m in range(Phi_all.shape[1]):
        others = active != m
        S, Q = S_Q(Phi_all[:, [m]], Phi_all[:, active[others]], t, alpha[others], beta, weights)
        s[m], q[m] = S[0], Q[0]
    return s, q


def optimal_alpha(s, q):
    """The maximiser of the evidence in one alpha: s^2 / (q^2 - s) where q^2 > s, else inf: TF03 eqs. (20)-(21)."""
    s, q = np.asarray(s, dtype=float), np.asarray(q, dtype=float)
    theta = q**2 - s
    return np.where(theta > 0, s**2 / np.where(theta > 0, theta, 1.0), np.inf)


class Model(NamedTuple):
    """A model and its statistics, all recomputed from scratch."""

    active: np.ndarray  # (k,) columns of Phi_all
    alpha: np.ndarray  # (k,)
    Sigma: np.ndarray  # (k, k), T01 eq. (12)
    mu: np.ndarray  # (k,), T01 eq. (13)
    S: np.ndarray  # (M,), TF03 eq. (22)
    Q: np.ndarray  # (M,)
    log_evidence: float


def model(Phi_all, active, t, alpha, beta, weights=None):
    """The `Model` with these functions and precisions."""
    active, alpha = np.asarray(active, dtype=int), np.asarray(alpha, dtype=float)
    Phi = Phi_all[:, active]
    return Model(
        active,
        alpha,
        *posterior(Phi, t, alpha, beta, weights),
        *S_Q(Phi_all, Phi, t, alpha, beta, weights),
        log_evidence(Phi, t, alpha, beta, weights),
    )


def _best_alpha(Phi_all, active, t, alpha, beta, weights, i):
    """TF03 eq. (20) for column i, whether or not it is in the model."""
    s, q = s_q(Phi_all, active, t, alpha, beta, weights)
    return float(optimal_alpha(s[i], q[i]))


def add(Phi_all, active, t, alpha, beta, i, alpha_i=None, weights=None):
    """Active set and alphas with column i appended (alpha_i None: its optimum): the move of TF03 A.2."""
    if i in active:
        raise ValueError(f"column {i} is in the model already")
    alpha_i = _best_alpha(Phi_all, active, t, alpha, beta, weights, i) if alpha_i is None else alpha_i
    return np.append(np.asarray(active, dtype=int), i), np.append(alpha, alpha_i)


def reestimate(Phi_all, active, t, alpha, beta, i, alpha_i=None, weights=None):
    """Active set and alphas with the alpha of column i replaced (None: its optimum): the move of TF03 A.3."""
    if i not in active:
        raise ValueError(f"column {i} is not in the model")
    alpha_i = _best_alpha(Phi_all, active, t, alpha, beta, weights, i) if alpha_i is None else alpha_i
    return np.asarray(active, dtype=int), np.where(np.asarray(active) == i, alpha_i, alpha)


def delete(active, alpha, i):
    """Active set and alphas without column i: the move of TF03 A.4."""
    if i not in active:
        raise ValueError(f"column {i} is not in the model")
    stay = np.asarray(active) != i
    return np.asarray(active, dtype=int)[stay], np.asarray(alpha, dtype=float)[stay]


def exchange(Phi_all, active, t, alpha, beta, i, j, alpha_j=None, weights=None):
    """Active set and alphas with column i taken out and j put in (alpha_j None: its optimum once i is out)."""
    rest, alpha_rest = delete(active, alpha, i)
    return add(Phi_all, rest, t, alpha_rest, beta, j, alpha_j, weights)


def _gain(Phi_all, t, beta, weights, before, after):
    """Difference of the two dense log evidences; each model is (active, alpha)."""
    (active, alpha), (active_new, alpha_new) = before, after
    new = log_evidence(Phi_all[:, active_new], t, alpha_new, beta, weights)
    return new - log_evidence(Phi_all[:, np.asarray(active, dtype=int)], t, alpha, beta, weights)


def gain_add(Phi_all, active, t, alpha, beta, i, alpha_i=None, weights=None):
    """Change of the log evidence when column i enters; zero where the optimal alpha_i is inf."""
    after = add(Phi_all, active, t, alpha, beta, i, alpha_i, weights)
    return _gain(Phi_all, t, beta, weights, (active, alpha), after)


def gain_reestimate(Phi_all, active, t, alpha, beta, i, alpha_i=None, weights=None):
    """Change of the log evidence when the alpha of column i is replaced; that of deletion where the optimum is inf."""
    after = reestimate(Phi_all, active, t, alpha, beta, i, alpha_i, weights)
    return _gain(Phi_all, t, beta, weights, (active, alpha), after)


def gain_delete(Phi_all, active, t, alpha, beta, i, weights=None):
    """Change of the log evidence when column i leaves."""
    return _gain(Phi_all, t, beta, weights, (active, alpha), delete(active, alpha, i))


def gain_exchange(Phi_all, active, t, alpha, beta, i, j, alpha_j=None, weights=None):
    """Change of the log evidence when column i leaves and j enters (TF03 section 6.2)."""
    after = exchange(Phi_all, active, t, alpha, beta, i, j, alpha_j, weights)
    return _gain(Phi_all, t, beta, weights, (active, alpha), after)


# --- RVM*: one more function at the test point ---------------------------------------------------------------------


def rvm_star(Phi, t, alpha, beta, phi_x, phi_new, phi_new_x, alpha_new, weights=None):
    """Mean and variance, noise included, of the model refitted with one more function: RQ05 eq. (5).

    phi_x (k,): the model's functions at the test point; phi_new (N,): the new function at the training points;
    phi_new_x: the new function at the test point; alpha_new: its precision.
    """
    augmented, row = np.column_stack([Phi, phi_new]), np.append(phi_x, phi_new_x)[None, :]
    mean, variance = predictive(row, augmented, t, np.append(alpha, alpha_new), beta, weights)
    return float(mean[0]), float(variance[0])


def rvm_star_terms(Phi, t, alpha, beta, phi_x, phi_new, phi_new_x, weights=None):
    """(q, e, s) of RQ05 eq. (7): quality, error and sparsity of the new function; arguments as in `rvm_star`."""
    w = _sample_weights(weights, len(t))
    Sigma, mu = posterior(Phi, t, alpha, beta, weights)
    q = beta * phi_new @ (w * (t - Phi @ mu))
    e = phi_new_x - beta * phi_x @ Sigma @ Phi.T @ (w * phi_new)
    s, _ = S_Q(phi_new[:, None], Phi, t, alpha, beta, weights)
    return float(q), float(e), float(s[0])


# --- Laplace approximation: Bernoulli, Poisson, softmax -------------------------------------------------------------
#
# Common form: K outputs eta (N, K), K = 1 but for softmax; weights w (K, M), alpha (K, M), eta = Phi w'. For softmax
# t holds class labels (N,) or one-of-K rows (N, K). An infinite alpha takes its (class, function) pair out.


def _sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))


def _targets(t, likelihood, K):
    t = np.asarray(t)
    return np.eye(K)[t.astype(int)] if likelihood == "softmax" and t.ndim == 1 else t.astype(float).reshape(-1, K)


def with_prior_rows(t, likelihood, weights=None, n_rows=1.0):
    """Shares (N,) of the second class, or (N, K) of all, of labels t with rows of the base rates spread over them.

    Half a row is added to each class for these rates.
    """
    K = 2 if likelihood == "bernoulli" else int(np.max(t)) + 1
    counts = _sample_weights(weights, len(t))[:, None] * np.eye(K)[np.asarray(t, dtype=int)]
    total = counts.sum(axis=1, keepdims=True)
    rates = (counts.sum(axis=0) + 0.5) / (counts.sum() + 0.5 * K)
    counts = counts + n_rows * total / total.sum() * rates
    shares = counts / counts.sum(axis=1, keepdims=True)
    return shares[:, 1] if likelihood == "bernoulli" else shares


def log_likelihood(eta, t, likelihood, weights=None):
    """log P(t | eta), complete, eta and t (N, K): T01 eqs. (23) and (28), Poisson with log link and -log t!."""
    if likelihood == "bernoulli":
        terms = (t * eta - np.logaddexp(0, eta))[:, 0]
    elif likelihood == "poisson":
        with np.errstate(over="ignore"):
            terms = (t * eta - np.exp(eta))[:, 0] - np.array([math.lgamma(v + 1) for v in t[:, 0]])
    elif likelihood == "softmax":
        terms = np.sum(t * (eta - np.logaddexp.reduce(eta, axis=1, keepdims=True)), axis=1)
    else:
        raise ValueError(f"likelihood is 'bernoulli', 'poisson' or 'softmax', not {likelihood!r}")
    return float(np.sum(_sample_weights(weights, len(t)) * terms))


def working(eta, t, likelihood, weights=None):
    """Residual t - y (N, K) and B (N, K, K), both times the weights: d log P/d eta and minus its second derivative."""
    w = _sample_weights(weights, len(t))
    if likelihood == "bernoulli":
        p, not_p = _sigmoid(eta), _sigmoid(-eta)
        r, B = t * not_p - (1 - t) * p, (p * not_p)[:, :, None]
    elif likelihood == "poisson":
        rate = np.exp(eta)
        r, B = t - rate, rate[:, :, None]
    else:
        y = np.exp(eta - np.logaddexp.reduce(eta, axis=1, keepdims=True))
        r, B = t - y, np.einsum("nk,kl->nkl", y, np.eye(y.shape[1])) - np.einsum("nk,nl->nkl", y, y)
    return w[:, None] * r, w[:, None, None] * B


def _laplace_derivatives(w, Phi, t, alpha, likelihood, weights):
    """Gradient (p,) and minus the Hessian (p, p) of T01 eq. (24) over the p pairs of finite alpha: T01 eq. (25)."""
    pairs = np.isfinite(alpha).ravel()
    r, B = working(Phi @ w.T, t, likelihood, weights)
    size = w.size
    H = np.einsum("nm,nkl,np->kmlp", Phi, B, Phi).reshape(size, size)[np.ix_(pairs, pairs)]
    # fsum: the gradient at the mode is a sum of large terms that cancel
    data = [math.fsum(r[:, k] * Phi[:, m]) for k in range(w.shape[0]) for m in range(w.shape[1])]
    precision = alpha.ravel()[pairs]
    return np.array(data)[pairs] - precision * w.ravel()[pairs], H + np.diag(precision)


def _log_posterior(w, Phi, t, alpha, likelihood, weights):
    """T01 eq. (24), with the likelihood's constants."""
    quadratic = np.sum(np.where(np.isfinite(alpha), alpha, 0.0) * w**2)
    return log_likelihood(Phi @ w.T, t, likelihood, weights) - 0.5 * quadratic


def _laplace(Phi, t, alpha, likelihood, weights):
    """Mode (K, M), minus Hessian (p, p), targets (N, K) and alpha (K, M), by damped Newton.

    Goes on until the gradient no longer falls: then |gradient| < 1e-12, or the level that rounding w leaves where that
    is larger; raises otherwise.
    """
    alpha = np.atleast_2d(np.asarray(alpha, dtype=float))
    t = _targets(t, likelihood, alpha.shape[0])
    pairs = np.isfinite(alpha)
    w = np.zeros(alpha.shape)
    value = _log_posterior(w, Phi, t, alpha, likelihood, weights)
    g, H = _laplace_derivatives(w, Phi, t, alpha, likelihood, weights)
    for _ in range(500):
        direction = np.zeros(alpha.shape)
        direction[pairs] = np.linalg.solve(H, g)
        decrement, step = float(g @ direction[pairs]), 1.0
        if decrement < 1e-9:  # values no longer tell steps apart; Newton converges, judge it by the gradient
            trial = w + direction
            g_trial, H_trial = _laplace_derivatives(trial, Phi, t, alpha, likelihood, weights)
            if np.max(np.abs(g_trial), initial=0.0) >= np.max(np.abs(g), initial=0.0):
                break
            w, g, H = trial, g_trial, H_trial
            continue
        trial = _log_posterior(w + direction, Phi, t, alpha, likelihood, weights)
        while not trial >= value + 1e-4 * step * decrement:
            step /= 2
            if step < 1e-12:
                raise ArithmeticError("no step along the Newton direction raises the posterior")
            trial = _log_posterior(w + step * direction, Phi, t, alpha, likelihood, weights)
        w, value = w + step * direction, trial
        g, H = _laplace_derivatives(w, Phi, t, alpha, likelihood, weights)
    rounding = 1e-14 * np.abs(H) @ np.abs(w[pairs])  # some 50 roundings of w
    if np.any(np.abs(g) > np.maximum(1e-12, rounding)):
        raise ArithmeticError(f"mode not found: gradient {np.max(np.abs(g)):.1e}")
    return w, H, t, alpha


def laplace_mode(Phi, t, alpha, likelihood, weights=None):
    """w_MP, the maximiser of T01 eq. (24), in the shape of alpha: (M,), or (K, M) for softmax."""
    return _laplace(Phi, t, alpha, likelihood, weights)[0].reshape(np.shape(alpha))


def laplace_posterior(Phi, t, alpha, likelihood, weights=None):
    """Sigma (p, p) over the p pairs of finite alpha, class by class, and w_MP: T01 eq. (26), TF03 eqs. (12)-(13)."""
    w, H, _, _ = _laplace(Phi, t, alpha, likelihood, weights)
    return np.linalg.inv(H), w.reshape(np.shape(alpha))


def laplace_evidence(Phi, t, alpha, likelihood, weights=None):
    """log P(t | w_MP) - w'Aw/2 + log|A|/2 - log|Phi'B Phi + A|/2, complete: (2 pi)^(p/2) cancels."""
    w, H, t, alpha = _laplace(Phi, t, alpha, likelihood, weights)
    value = _log_posterior(w, Phi, t, alpha, likelihood, weights)
    return float(value + 0.5 * np.sum(np.log(alpha[np.isfinite(alpha)])) - 0.5 * np.linalg.slogdet(H)[1])


def laplace_gradient_log_alpha(Phi, t, alpha, likelihood, weights=None, step=1e-2):
    """Gradient of `laplace_evidence` in log alpha, the shape of alpha (finite): mode and B move with alpha."""
    return finite_difference(
        lambda x: laplace_evidence(Phi, t, np.exp(x), likelihood, weights), np.log(np.asarray(alpha, dtype=float)), step
    )


def laplace_dL_dPhi(Phi, t, alpha, likelihood, weights=None, step=1e-2):
    """Gradient (N, M) of `laplace_evidence` in Phi: mode and B move with Phi."""
    return finite_difference(lambda x: laplace_evidence(x, t, alpha, likelihood, weights), Phi, step)


def laplace_targets(Phi, t, alpha, likelihood, weights=None):
    """B (N,) and t_hat = Phi w + B^-1 (t - y) (N,) of the linearised problem at the mode, K = 1: TF03 eq. (14)."""
    w, _, t, _ = _laplace(Phi, t, alpha, likelihood, weights)
    eta = Phi @ w.T
    r, B = working(eta, t, likelihood, weights)
    return B[:, 0, 0], (eta + r / B[:, :, 0])[:, 0]


def laplace_S_Q(Phi_all, active, t, alpha, likelihood, weights=None):
    """S and Q of all (class, function) pairs, in the shape of alpha: TF03 eqs. (24)-(25) for any K.

    active (k,): columns of Phi_all in the model; alpha (k,) or (K, k). S and Q come as (M,) or (K, M). B is singular
    for softmax, so t_hat need not exist; Q_m = phi_m' B (t_hat - Phi w) is phi_m' (t - y) at the mode.
    """
    Phi = Phi_all[:, np.asarray(active, dtype=int)]
    w, H, t, alpha_2d = _laplace(Phi, t, alpha, likelihood, weights)
    K, M, pairs = w.shape[0], Phi_all.shape[1], np.isfinite(alpha_2d).ravel()
    r, B = working(Phi @ w.T, t, likelihood, weights)
    cross = np.einsum("nm,nkl,np->kmlp", Phi, B, Phi_all).reshape(w.size, K * M)[pairs]
    own = np.einsum("nm,nkk,nm->km", Phi_all, B, Phi_all)
    S = own - np.diag(cross.T @ np.linalg.inv(H) @ cross).reshape(K, M)
    shape = (M,) if np.ndim(alpha) == 1 else (K, M)
    return S.reshape(shape), (r.T @ Phi_all).reshape(shape)


# --- many digits ---------------------------------------------------------------------------------------------------
#
# Floats are taken as exact. Matrices are lists of rows of mpf. Log evidences come back as mpf, arrays as float64.


def _mp_list(values):
    return [mp.mpf(v.item() if isinstance(v, np.generic) else v) for v in values]


def _mp_setup(Phi, t, alpha, weights):
    """Columns, targets, alphas and weights as mpf; rows of weight zero dropped."""
    Phi, t, w = _kept(np.asarray(Phi), np.asarray(t), weights)
    return [_mp_list(column) for column in Phi.T], _mp_list(t), _mp_list(alpha), _mp_list(w)


def _mp_cholesky(A):
    L = []
    for i, row in enumerate(A):
        L.append([])
        for j in range(i):
            L[i].append((row[j] - mp.fdot(L[i], L[j][:j])) / L[j][j])
        pivot = row[i] - mp.fdot(L[i], L[i])
        if pivot <= 0:
            raise ArithmeticError("not positive definite at this precision: raise dps")
        L[i].append(mp.sqrt(pivot))
    return L


def _mp_forward(L, b):
    """L^-1 b for lower triangular L."""
    z = []
    for i, row in enumerate(L):
        z.append((b[i] - mp.fdot(row[:i], z)) / row[i])
    return z


def _mp_inverse(A):
    """A^-1 = L^-T L^-1."""
    L, n = _mp_cholesky(A), len(A)
    columns = [_mp_forward(L, [mp.mpf(i == j) for i in range(n)]) for j in range(n)]
    return [[mp.fdot(x, y) for y in columns] for x in columns]


def _mp_logdet(L):
    return 2 * mp.fsum(mp.log(row[i]) for i, row in enumerate(L))


def _mp_precision(columns, alpha, beta, w):
    """A + beta Phi' W Phi."""
    weighted = [[beta * wn * v for wn, v in zip(w, column, strict=True)] for column in columns]
    H = [[mp.fdot(x, y) for y in weighted] for x in columns]
    for i, value in enumerate(alpha):
        H[i][i] += value
    return H


def _mp_covariance(columns, alpha, beta, w):
    """C = W^-1 / beta + Phi A^-1 Phi'."""
    rows = [[column[n] for column in columns] for n in range(len(w))]
    scaled = [[v / a for v, a in zip(row, alpha, strict=True)] for row in rows]
    C = [[mp.fdot(x, y) for y in scaled] for x in rows]
    for n, value in enumerate(w):
        C[n][n] += 1 / (beta * value)
    return C


def mp_log_evidence(Phi, t, alpha, beta, dps=60, weights=None, space=None):
    """`log_evidence` at dps digits, as an mpf.

    space "samples" factors C (N x N); "weights" goes through T01 eqs. (38) and (40), for k much smaller than N.
    None takes the smaller. The second cancels as many digits as beta Phi'Phi is larger than A: leave dps room for it.
    """
    total = np.sum(_sample_weights(weights, len(t)))
    with mp.workdps(dps):
        columns, t, alpha, w = _mp_setup(Phi, t, alpha, weights)
        beta, (total,) = mp.mpf(beta), _mp_list([total])
        if space is None:
            space = "weights" if len(alpha) < len(t) else "samples"
        if space == "samples":
            L = _mp_cholesky(_mp_covariance(columns, alpha, beta, w))
            z = _mp_forward(L, t)
            constant = -mp.fsum(map(mp.log, w)) / 2 + (total - len(t)) * mp.log(beta) / 2
            return constant - (total * mp.log(2 * mp.pi) + _mp_logdet(L) + mp.fdot(z, z)) / 2
        L = _mp_cholesky(_mp_precision(columns, alpha, beta, w))
        wt = [x * y for x, y in zip(w, t, strict=True)]
        z = _mp_forward(L, [beta * mp.fdot(column, wt) for column in columns])
        logdet = _mp_logdet(L) - total * mp.log(beta) - mp.fsum(map(mp.log, alpha))
        return -(total * mp.log(2 * mp.pi) + logdet + beta * mp.fdot(t, wt) - mp.fdot(z, z)) / 2


def mp_posterior(Phi, t, alpha, beta, dps=60, weights=None):
    """`posterior` at dps digits, rounded to float64: Sigma (k, k), mu (k,)."""
    with mp.workdps(dps):
        columns, t, alpha, w = _mp_setup(Phi, t, alpha, weights)
        beta = mp.mpf(beta)
        Sigma = _mp_inverse(_mp_precision(columns, alpha, beta, w))
        projection = [beta * mp.fdot(column, [x * y for x, y in zip(w, t, strict=True)]) for column in columns]
        mu = [mp.fdot(row, projection) for row in Sigma]
        return np.array(Sigma, dtype=float).reshape(len(mu), len(mu)), np.array(mu, dtype=float)


def mp_s_q(Phi_all, active, t, alpha, beta, dps=60, weights=None):
    """`s_q` at dps digits, rounded to float64: TF03 eq. (19), through eqs. (24)-(25) in the model without m."""
    active = np.asarray(active, dtype=int)
    s, q = np.empty(Phi_all.shape[1]), np.empty(Phi_all.shape[1])
    with mp.workdps(dps):
        columns, t, alpha, w = _mp_setup(Phi_all, t, alpha, weights)
        beta = mp.mpf(beta)
        for m, column in enumerate(columns):
            others = [(columns[i], a) for i, a in zip(active, alpha, strict=True) if i != m]
            Phi, precisions = [x for x, _ in others], [a for _, a in others]
            L = _mp_cholesky(_mp_precision(Phi, precisions, beta, w))
            weighted = [beta * x * y for x, y in zip(w, column, strict=True)]
            zm = _mp_forward(L, [mp.fdot(x, weighted) for x in Phi])
            zt = _mp_forward(L, [beta * mp.fdot(x, [u * v for u, v in zip(w, t, strict=True)]) for x in Phi])
            s[m] = float(mp.fdot(column, weighted) - mp.fdot(zm, zm))
            q[m] = float(mp.fdot(weighted, t) - mp.fdot(zm, zt))
    return s, q


def _mp_central(function, x, i, h):
    """Central difference in x[i] of a function of a list of mpf."""
    up, down = list(x), list(x)
    up[i] += h
    down[i] -= h
    return (function(up) - function(down)) / (2 * h)


def mp_gradient(Phi, t, alpha, beta, dps=60, weights=None):
    """Gradient (k + 1,) of the log evidence in (log alpha, log beta), by differences at dps digits, as float64."""
    with mp.workdps(dps):
        theta, h = [mp.log(mp.mpf(float(v))) for v in [*alpha, beta]], mp.mpf(10) ** (-dps // 3)

        def f(x):
            return mp_log_evidence(Phi, t, [mp.exp(v) for v in x[:-1]], mp.exp(x[-1]), dps, weights)

        return np.array([_mp_central(f, theta, i, h) for i in range(len(theta))], dtype=float)


def mp_hessian(Phi, t, alpha, beta, dps=60, weights=None):
    """Hessian (k + 1, k + 1) of the log evidence in (log alpha, log beta), by differences at dps digits, as float64."""
    with mp.workdps(dps):
        theta, h = [mp.log(mp.mpf(float(v))) for v in [*alpha, beta]], mp.mpf(10) ** (-dps // 4)

        def f(x):
            return mp_log_evidence(Phi, t, [mp.exp(v) for v in x[:-1]], mp.exp(x[-1]), dps, weights)

        n = len(theta)
        H = np.empty((n, n))
        for i in range(n):
            for j in range(i + 1):
                H[i, j] = H[j, i] = float(_mp_central(lambda x, i=i: _mp_central(f, x, i, h), theta, j, h))
        return H


def _mp_likelihood(eta, target, likelihood):
    """Means y (N, K), B (N, K, K) and the log-likelihood of each sample, as lists of mpf."""
    y, B, terms = [], [], []
    for e, t in zip(eta, target, strict=True):
        if likelihood == "bernoulli":
            p, not_p = 1 / (1 + mp.exp(-e[0])), 1 / (1 + mp.exp(e[0]))
            y.append([p])
            B.append([[p * not_p]])
            terms.append(t[0] * mp.log(p) + (1 - t[0]) * mp.log(not_p))
        elif likelihood == "poisson":
            rate = mp.exp(e[0])
            y.append([rate])
            B.append([[rate]])
            terms.append(t[0] * e[0] - rate - mp.loggamma(t[0] + 1))
        else:
            powers = [mp.exp(v) for v in e]
            p = [v / mp.fsum(powers) for v in powers]
            y.append(p)
            B.append([[p[k] * ((k == j) - p[j]) for j in range(len(p))] for k in range(len(p))])
            terms.append(mp.fsum(tk * mp.log(pk) for tk, pk in zip(t, p, strict=True)))
    return y, B, terms


def _mp_newton(w, pairs, columns, target, precision, weight, likelihood):
    """Log-likelihood, gradient (p,) and minus Hessian (p, p) of T01 eq. (24) over the (class, function) pairs."""
    K = len(target[0])
    eta = [[mp.mpf(0)] * K for _ in weight]
    for (k, m), value in zip(pairs, w, strict=True):
        for n, v in enumerate(columns[m]):
            eta[n][k] += v * value
    y, B, terms = _mp_likelihood(eta, target, likelihood)
    samples = range(len(weight))
    weighted = [[weight[n] * v for n, v in enumerate(column)] for column in columns]
    g = [mp.fdot(weighted[m], [target[n][k] - y[n][k] for n in samples]) for k, m in pairs]
    H = [[mp.fsum(weighted[m][n] * B[n][k][j] * columns[p][n] for n in samples) for j, p in pairs] for k, m in pairs]
    for i, a in enumerate(precision):
        g[i] -= a * w[i]
        H[i][i] += a
    return mp.fdot(weight, terms), g, H


def mp_laplace_evidence(Phi, t, alpha, likelihood, dps=40, weights=None, start=None):
    """`laplace_evidence` at dps digits, as an mpf: the double-precision mode (or start) polished by Newton steps.

    alpha: floats (inf takes a pair out), or an object array of mpf.
    """
    rough = np.array(alpha, dtype=float)
    start = np.atleast_2d(laplace_mode(Phi, t, rough, likelihood, weights) if start is None else start)
    alpha, rough = np.atleast_2d(np.array(alpha, dtype=object)), np.atleast_2d(rough)
    pairs = [(k, m) for k, m in np.ndindex(rough.shape) if np.isfinite(rough[k, m])]
    targets = _targets(t, likelihood, rough.shape[0])[_sample_weights(weights, len(t)) > 0]
    with mp.workdps(dps):
        columns, _, precision, weight = _mp_setup(Phi, t, [alpha[pair] for pair in pairs], weights)
        target, w = [_mp_list(row) for row in targets], _mp_list([start[pair] for pair in pairs])
        for _ in range(20):
            value, g, H = _mp_newton(w, pairs, columns, target, precision, weight, likelihood)
            if max(map(abs, g), default=0) < mp.mpf(10) ** (8 - dps) * max(1, *weight):
                break
            w = [x + mp.fdot(row, g) for x, row in zip(w, _mp_inverse(H), strict=True)]
        else:
            raise ArithmeticError("mode not found at this precision")
        quadratic = mp.fsum(a * x**2 for a, x in zip(precision, w, strict=True))
        return value + (mp.fsum(map(mp.log, precision)) - _mp_logdet(_mp_cholesky(H)) - quadratic) / 2


def mp_laplace_gradient_log_alpha(Phi, t, alpha, likelihood, dps=40, weights=None):
    """Gradient of the Laplace evidence in log alpha, by differences at dps digits, as float64 in the shape of alpha."""
    alpha = np.asarray(alpha, dtype=float)
    start = laplace_mode(Phi, t, alpha, likelihood, weights)
    with mp.workdps(dps):
        theta, h = [mp.log(mp.mpf(v)) for v in alpha.ravel().tolist()], mp.mpf(10) ** (-dps // 3)

        def f(x):
            precisions = np.array([mp.exp(v) for v in x], dtype=object).reshape(alpha.shape)
            return mp_laplace_evidence(Phi, t, precisions, likelihood, dps, weights, start)

        return np.array([_mp_central(f, theta, i, h) for i in range(len(theta))], dtype=float).reshape(alpha.shape)


# ---------------------------------------------------------------- TF03's appendix: rank-one updates
# S, Q (M,) belong to every atom of the dictionary; ``cross`` (k, M) is beta Phi_a' Phi.


def update_add(Sigma, mu, S, Q, cross, own, i, alpha_i):
    """TF03 A.2: add atom i with precision alpha_i. ``own`` (M,) is beta phi_i' Phi."""
    Sigma_ii = 1.0 / (alpha_i + S[i])
    mu_i = Sigma_ii * Q[i]
    v = Sigma @ cross[:, i]  # beta Sigma Phi' phi_i
    projected = own - v @ cross  # beta phi_m' e_i
    k = len(mu)
    bigger = np.empty((k + 1, k + 1))
    bigger[:k, :k] = Sigma + Sigma_ii * np.outer(v, v)
    bigger[:k, k] = bigger[k, :k] = -Sigma_ii * v
    bigger[k, k] = Sigma_ii
    return bigger, np.append(mu - mu_i * v, mu_i), S - Sigma_ii * projected**2, Q - mu_i * projected


def update_reestimate(Sigma, mu, S, Q, cross, j, alpha_old, alpha_new):
    """TF03 A.3: move the precision of the j-th atom of the model."""
    change = alpha_new - alpha_old
    kappa = change / (1.0 + Sigma[j, j] * change)  # (Sigma_jj + 1 / change)^-1, and 0 for no change
    column = Sigma[:, j].copy()
    projected = column @ cross
    return (Sigma - kappa * np.outer(column, column), mu - kappa * mu[j] * column, S + kappa * projected**2,
            Q + kappa * mu[j] * projected)  # fmt: skip


def update_delete(Sigma, mu, S, Q, cross, j):
    """TF03 A.4: delete the j-th atom of the model."""
    column = Sigma[:, j].copy()
    projected = column @ cross
    keep = np.arange(len(mu)) != j
    smaller = Sigma - np.outer(column, column) / column[j]
    return (smaller[np.ix_(keep, keep)], (mu - (mu[j] / column[j]) * column)[keep], S + projected**2 / column[j],
            Q + (mu[j] / column[j]) * projected)  # fmt: skip
