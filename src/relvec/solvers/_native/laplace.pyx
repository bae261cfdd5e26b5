"""Laplace's approximation with one output on rows in memory: the mode by Newton's method, and sums over the rows.

Arithmetic only: what to fit and how far is decided in Python (`relvec.inference.laplace`, `relvec.solvers.laplace`),
which also gives the constants. Rows are taken in parts, and sums are the same however many threads there are. Memory
belongs to NumPy arrays: there is nothing to free, and running out of it is a MemoryError.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport exp, fabs, INFINITY, isfinite, log, NAN, sqrt
from libc.string cimport memcpy, memset

from relvec.solvers._native.blas cimport cholesky, invert_upper, solve, solve_factored
from relvec.solvers._native.memory cimport empty

cdef extern from "laplace_rows.h":
    double dot(const double *a, const double *b, int n) noexcept nogil
    void add_products(const double *columns, int k, size_t apart, const double *x, int n, double *into) noexcept nogil
    void add_columns(const double *columns, int k, size_t apart, const double *w, int n, double *f) noexcept nogil
    void add_gram(const double *columns, int k, size_t apart, const double *W, int n, double *column,
                  double *G) noexcept nogil
    double bernoulli_rows(const double *t, const double *w, const double *f, int n, double *r, double *W,
                          double *e, double *rest) noexcept nogil
    double log_sums(const double *w, const double *e, int n, int equal) noexcept nogil
    double poisson_rows(const double *t, const double *w, const double *f, int n, double largest, double *r,
                        double *W, double *rest) noexcept nogil
    void curvature_rows(const double *f, const double *W, const double *h, int n, int counts, double *s) noexcept nogil

cdef enum:
    BLOCK = 512  # rows at a time, so that the columns of a model stay in the cache
    SHARES = 8  # parts of many rows, one thread each
    MIN_SHARED = 16384  # rows: fewer are not worth further threads


cdef class Rows:
    """Targets t (n,) and sample weights (n,) of n rows, and the likelihood: counts (Poisson) or two classes.

    ``constant`` is added to every log likelihood, ``largest`` the largest logarithm of a rate. Parts of many rows are
    given to ``run(function, count)``, which calls function(i) for i below count, in any order, in threads or not. The
    other constants are those of `relvec.inference.laplace.newton`; normal equations are given up where they would lose
    digits: a diagonal above ``max_diagonal`` with a pivot below ``min_pivot`` of it.
    """

    cdef const double[::1] t, weights
    cdef int n, shares
    cdef bint counts, equal
    cdef double constant, largest
    cdef object run
    cdef int max_steps, max_idle
    cdef double roughly, exactly, still, max_diagonal, min_pivot

    def __init__(self, const double[::1] t, const double[::1] weights, bint counts, double constant, double largest,
                 run, int max_steps, int max_idle, double roughly, double exactly, double still, double max_diagonal,
                 double min_pivot):
        if t.shape[0] != weights.shape[0] or t.shape[0] > 2**30:
            raise ValueError(f"{t.shape[0]} targets and {weights.shape[0]} weights")
        self.t, self.weights, self.n = t, weights, <int>t.shape[0]
        self.counts, self.constant, self.largest, self.run = counts, constant, largest, run
        self.max_steps, self.max_idle, self.roughly, self.exactly = max_steps, max_idle, roughly, exactly
        self.still, self.max_diagonal, self.min_pivot = still, max_diagonal, min_pivot
        self.shares = SHARES if self.n >= MIN_SHARED else 1
        self.equal = bool(np.all(np.asarray(weights) == 1.0))

    def fit(self, Phi, alpha, start=None):
        """The `Mode` of weights with columns Phi (n, k) and precisions alpha (k,), from ``start`` (k,) or zeros.

        None where the normal equations would lose digits.
        """
        cdef const double[::1] begin
        cdef Mode mode = Mode(self, Phi, alpha)
        if start is None:
            mode._mean[:] = 0.0
        else:
            begin = start
            if begin.shape[0] != mode.k:
                raise ValueError(f"a start of {begin.shape[0]} weights for {mode.k}")
            mode._mean[:] = begin
        return mode if mode.find() else None


cdef class Mode:
    """Laplace's approximation to the posterior of k weights of one output on rows in memory (T01 eq. (24)-(26))."""

    cdef readonly Rows rows
    cdef int k
    cdef readonly object Phi, alpha, mean, root, variance, state
    cdef const double[::1, :] _Phi
    cdef const double[::1] _alpha
    cdef double[::1] _mean, _variance
    cdef double[:, ::1] _root, _state
    cdef readonly double log_evidence

    def __init__(self, Rows rows, Phi, alpha):
        self.rows, self.Phi, self.alpha = rows, Phi, alpha
        self._Phi, self._alpha = Phi, alpha
        cdef int k = <int>self._alpha.shape[0]
        if self._Phi.shape[0] != rows.n or self._Phi.shape[1] != k:
            raise ValueError(f"{self._Phi.shape[0]} x {self._Phi.shape[1]} columns for {rows.n} rows and {k} weights")
        self.k = k
        self.mean, self.root, self.variance, self.state = empty(k), empty((k, k)), empty(k), empty((3, rows.n))
        self._mean, self._root, self._variance, self._state = self.mean, self.root, self.variance, self.state

    cdef bint find(self) except -1:
        return _Newton(self).climb()

    @property
    def beta(self):
        """`LaplacePosterior.beta`."""
        return NAN

    @property
    def trust(self):
        """`LaplacePosterior.trust`."""
        cdef double energy = 0.0, total = 0.0
        cdef int i
        for i in range(self.k):
            energy += self._alpha[i] * self._mean[i] * self._mean[i]
            total += self.determined(i)
        return energy / total if total > 0.0 else 1.0

    cdef double determined(self, int i) noexcept:
        return min(max(1.0 - self._alpha[i] * self._variance[i], 0.0), 1.0)

    @property
    def gamma(self):
        """`LaplacePosterior.gamma`."""
        return np.minimum(np.maximum(1.0 - self.alpha * self.variance, 0.0), 1.0)

    @property
    def any_infinite(self):
        """`LaplacePosterior.any_infinite`."""
        cdef int i
        for i in range(self.k):
            if self._mean[i] * self._mean[i] <= self.determined(i) * self._variance[i]:
                return True
        return False

    def slopes(self, root=None):
        """Phi's (k,) with s = -1/2 dB/df h (n,), where h = |phi_n' root|^2: the variances of f, or under ``root``."""
        return _Slope(self, self.root if root is None else root).total()

    def system(self):
        """The `NewtonSystem` of the evidence over log alpha."""
        return NewtonSystem(*evidence_system(self._alpha, self._mean, self._root, self._variance, self.slopes()))


cdef class _Pass:
    """A sum over rows: parts of it in ``sums``, one row a share, that `add` computes and `total` adds in order."""

    cdef Rows rows
    cdef const double[::1, :] Phi
    cdef double[:, ::1] sums
    cdef int k

    cdef void add(self, int first, int end, double *into) noexcept nogil:
        pass

    def part(self, int i):
        """The share i of the rows."""
        cdef long long n = self.rows.n, shares = self.rows.shares
        with nogil:
            self.add(<int>(n * i // shares), <int>(n * (i + 1) // shares), &self.sums[i, 0])

    cdef double *all(self, int width) except NULL:
        """The sum of ``width`` numbers over all rows."""
        cdef int i, j
        if self.rows.shares == 1:
            self.add(0, self.rows.n, &self.sums[0, 0])
        else:
            self.rows.run(self.part, self.rows.shares)
            for i in range(1, self.rows.shares):
                for j in range(width):
                    self.sums[0, j] += self.sums[i, j]
        return &self.sums[0, 0]


cdef class _Newton(_Pass):
    """The way to a mode: v = A^1/2 w, in which the Hessian I + A^-1/2 Phi'B Phi A^-1/2 has no eigenvalue below one."""

    cdef Mode mode
    cdef double[:, ::1] other
    cdef double *w  # (k,) where the rows are looked at
    cdef double[:, ::1] at  # f, r and W there

    def __init__(self, Mode mode):
        cdef int k = mode.k
        self.mode, self.rows, self.Phi, self.k = mode, mode.rows, mode._Phi, k
        self.other = empty((3, self.rows.n))
        self.sums = empty((self.rows.shares, 1 + k + k * k + 2 * BLOCK))  # value, Phi'r, Phi'B Phi, two columns

    cdef void add(self, int first, int end, double *into) noexcept nogil:
        cdef int a = first, count, k = self.k
        cdef size_t n = self.rows.n
        cdef double *f = &self.at[0, 0]
        cdef double *r = &self.at[1, 0]
        cdef double *W = &self.at[2, 0]
        cdef double *G = into + 1 + k
        cdef double *column = G + k * k
        cdef double *e = column + BLOCK
        cdef const double *Phi
        memset(into, 0, sizeof(double) * (1 + k + k * k))
        memset(f + first, 0, sizeof(double) * (end - first))
        while a < end:
            count = min(end - a, BLOCK)
            Phi = &self.Phi[0, 0] + a if k else NULL
            add_columns(Phi, k, n, self.w, count, f + a)
            if self.rows.counts:
                into[0] += poisson_rows(&self.rows.t[a], &self.rows.weights[a], f + a, count, self.rows.largest, r + a, W + a,
                                        column)
            else:
                into[0] += bernoulli_rows(&self.rows.t[a], &self.rows.weights[a], f + a, count, r + a, W + a, e,
                                          column)
                into[0] -= log_sums(&self.rows.weights[a], e, count, self.rows.equal)
            add_products(Phi, k, n, r + a, count, into + 1)
            add_gram(Phi, k, n, W + a, count, column, G)
            a += BLOCK

    cdef double look(self, const double[::1] v, double[::1] w, double[:, ::1] at) except? -1.0:
        """The objective at v = A^1/2 w, with its gradient and curvature in ``sums``."""
        self.w, self.at = &w[0], at
        return self.all(1 + self.k + self.k * self.k)[0] + self.rows.constant - 0.5 * dot(&v[0], &v[0], self.k)

    cdef bint climb(self) except -1:
        cdef int k = self.k, i, j, idle = 0, turn
        cdef double[:, ::1] work = empty((7, k + 1))
        cdef double[::1] spread = work[0], v = work[1], trial = work[2], w = work[3], g = work[4], step = work[5]
        cdef double[::1] own = work[6], U = self.sums[0, 1 + k:]
        cdef double value, new, size, decrement, length, pivot, last = INFINITY, bend = INFINITY, before
        cdef bint small, still
        for j in range(k):
            spread[j] = 1.0 / sqrt(self.mode._alpha[j])
            w[j] = self.mode._mean[j]
            v[j] = w[j] / spread[j]
        value = self.look(v, w, self.mode._state)
        if not value > -INFINITY:
            v[:], w[:] = 0.0, 0.0
            value = self.look(v, w, self.mode._state)
        for turn in range(self.rows.max_steps if k else 0):
            PyErr_CheckSignals()
            for i in range(k):  # the lower half by rows, which is the upper by columns
                for j in range(i + 1):
                    U[i * k + j] *= spread[i] * spread[j]
                U[i * k + i] += 1.0
                own[i] = U[i * k + i]
                g[i] = step[i] = spread[i] * self.sums[0, 1 + i] - v[i]
            if cholesky(k, U):
                return False
            for i in range(k):
                pivot = U[i * k + i] * U[i * k + i]
                if not pivot > (0.0 if own[i] <= self.rows.max_diagonal else self.rows.min_pivot * own[i]):
                    return False
            solve_factored(k, U, step)
            decrement, size = dot(&g[0], &step[0], k), max(1.0, fabs(value))
            small = decrement < self.rows.roughly * size
            before, bend = bend, 0.0
            for i in range(k):
                bend += log(U[i * k + i])
            still = decrement >= 0.5 * last and fabs(bend - before) < self.rows.still
            if small and (decrement < self.rows.exactly * size or still):
                break
            if idle == self.rows.max_idle or turn == self.rows.max_steps - 1:
                break
            last, length = decrement, 1.0
            while True:
                for j in range(k):
                    trial[j] = v[j] + length * step[j]
                    w[j] = spread[j] * trial[j]
                new = self.look(trial, w, self.other)
                # near the mode values no longer tell steps apart, and Newton converges by itself
                if small or new >= value + 1e-4 * length * decrement or length < 1e-12:
                    break
                length *= 0.5
            idle += not (small or new > value)
            v[:], value = trial, new
            memcpy(&self.mode._state[0, 0], &self.other[0, 0], sizeof(double) * 3 * self.rows.n)
        return self.finish(value, spread, v, U)

    cdef bint finish(self, double value, const double[::1] spread, const double[::1] v, double[::1] U) except -1:
        """Mean, root = A^-1/2 U^-1, variance and evidence from the factor U of minus the Hessian at the mode."""
        cdef int k = self.k, i, j
        cdef double[:, ::1] root = self.mode._root
        for j in range(k):
            value -= log(U[j * k + j])
        self.mode.log_evidence = value
        if not isfinite(value) or (k and invert_upper(k, U)):
            return False
        for i in range(k):
            self.mode._mean[i] = spread[i] * v[i]
            for j in range(k):
                root[i, j] = spread[i] * U[j * k + i] if j >= i else 0.0
            self.mode._variance[i] = dot(&root[i, 0], &root[i, 0], k)
        return True


cdef class _Slope(_Pass):
    cdef const double[:, ::1] root  # its columns as rows
    cdef const double[:, ::1] state

    def __init__(self, Mode mode, root):
        self.rows, self.Phi, self.k, self.state = mode.rows, mode._Phi, mode.k, mode._state
        self.root = np.ascontiguousarray(root.T)
        if self.root.shape[1] != self.k:
            raise ValueError(f"a root of {self.root.shape[1]} rows for {self.k} weights")
        self.sums = empty((self.rows.shares, self.k + 3 * BLOCK))

    cdef void add(self, int first, int end, double *into) noexcept nogil:
        cdef int a = first, b, j, last, count, k = self.k, columns = <int>self.root.shape[0] if self.k else 0
        cdef double *h = into + k
        cdef double *part = h + BLOCK
        cdef double *s = part + BLOCK
        cdef const double *Phi
        memset(into, 0, sizeof(double) * k)
        while a < end:
            count = min(end - a, BLOCK)
            Phi = &self.Phi[0, 0] + a if k else NULL
            memset(h, 0, sizeof(double) * count)
            for j in range(columns):  # column j of Phi root
                memset(part, 0, sizeof(double) * count)
                last = k
                while last and self.root[j, last - 1] == 0.0:  # of a triangular root
                    last -= 1
                add_columns(Phi, last, self.rows.n, &self.root[j, 0], count, part)
                for b in range(count):
                    h[b] += part[b] * part[b]
            curvature_rows(&self.state[0, a], &self.state[2, a], h, count, self.rows.counts, s)
            add_products(Phi, k, self.rows.n, s, count, into)
            a += BLOCK

    def total(self):
        """Phi's (k,)."""
        self.all(self.k)
        return np.array(self.sums[0, : self.k])


# ---------------------------------------------------------------- precisions of k weights


def evidence_system(const double[::1] alpha, const double[::1] mean, const double[:, ::1] root,
                    const double[::1] variance, const double[::1] back):
    """Gradient (k,) of the Laplace evidence over log alpha, minus its linearised Hessian (k, k), and the diagonal (k,)
    of the expectation-maximisation step; ``back`` (k,) is dL/dw through B alone (`PosteriorOnRows.slopes`).
    """
    cdef int k = <int>alpha.shape[0], i, j
    if not mean.shape[0] == root.shape[0] == root.shape[1] == variance.shape[0] == back.shape[0] == k:
        raise ValueError("the arrays of a posterior do not fit each other")
    gradient, minus_hessian, diagonal = empty(k), empty((k, k)), empty(k)
    cdef double[::1] g = gradient, em = diagonal
    cdef double[:, ::1] H = minus_hessian
    cdef double B, implicit, own
    for i in range(k):  # Sigma for the moment
        for j in range(i + 1):
            H[i, j] = H[j, i] = dot(&root[i, 0], &root[j, 0], k)
    for i in range(k):
        implicit = dot(&H[i, 0], &back[0], k)
        own = alpha[i] * mean[i] * mean[i]
        em[i] = 0.5 * (own + alpha[i] * variance[i])
        g[i] = 0.5 * (min(max(1.0 - alpha[i] * variance[i], 0.0), 1.0) - own) - alpha[i] * mean[i] * implicit
    for i in range(k):
        for j in range(i + 1):
            B = sqrt(alpha[i]) * sqrt(alpha[j]) * H[i, j]
            H[i, j] = H[j, i] = -(sqrt(alpha[i]) * mean[i] * sqrt(alpha[j]) * mean[j] * B + 0.5 * B * B)
        H[i, i] += em[i]
    return gradient, minus_hessian, diagonal


cdef class NewtonSystem:
    """Gradient (u,) over log alpha, minus the linearised Hessian (u, u), and the diagonal (u,) it is damped towards:
    that of the expectation-maximisation step.
    """

    cdef readonly object gradient, minus_hessian
    cdef double[::1] g, em
    cdef double[:, ::1] H
    cdef int k

    def __init__(self, gradient, minus_hessian, em):
        self.gradient, self.minus_hessian = gradient, minus_hessian
        self.g, self.H, self.em = gradient, minus_hessian, em
        self.k = <int>self.g.shape[0]
        if not self.H.shape[0] == self.H.shape[1] == self.em.shape[0] == self.k:
            raise ValueError("a gradient and a curvature do not fit each other")

    def step(self, double damping, const double[::1] towards=None):
        """The damped Newton step (u,), or that for another gradient; None where the curvature is not positive."""
        cdef int k = self.k, i
        cdef double[::1] A = empty(k * k), x
        solution = x = empty(k)
        if towards is not None and towards.shape[0] != k:
            raise ValueError(f"a gradient of {towards.shape[0]} numbers for {k} precisions")
        if not k:
            return solution
        memcpy(&A[0], &self.H[0, 0], sizeof(double) * k * k)
        x[:] = self.g if towards is None else towards
        for i in range(k):
            A[i * k + i] += damping * self.em[i]
        return None if solve(k, A, x) else solution



def moved_mode(const double[::1] alpha, const double[::1] mean, const double[:, ::1] root, const double[::1] step,
               bint predict):
    """alpha exp(step) (k,), and the weights (k,) where the linearised problem has its mode then, or as they are.

    dw/dlog alpha_j = -Sigma_j alpha_j w_j.
    """
    cdef int k = <int>alpha.shape[0], i, j
    if not mean.shape[0] == root.shape[0] == root.shape[1] == step.shape[0] == k:
        raise ValueError("the arrays of a posterior do not fit each other")
    moved, start = empty(k), empty(k)
    cdef double[::1] a = moved, w = start, inner = empty(k)
    for j in range(k):
        a[j] = alpha[j] * exp(step[j])
        inner[j] = 0.0
        if predict:
            for i in range(k):
                inner[j] += root[i, j] * alpha[i] * mean[i] * step[i]
    for i in range(k):
        w[i] = mean[i] - dot(&root[i, 0], &inner[0], k)
    return moved, start


def scan_gains(const double[:, ::1] projected, const double[::1] squares, const unsigned char[::1] outside,
               Py_ssize_t k, double error):
    """S, Q, gains and precisions (M,) of adding each atom, TF03 eq. (20)-(25), from the [T; Q] (k + 1, M) of k weights.

    S = squares - |T|^2 is zero where it is less than ``error`` of the squares; atoms that are not ``outside`` gain
    nothing. With a further row E, Q^2 + 2 Q E in the place of Q^2 makes the derivative of the evidence over 1/alpha at
    zero exact: an atom moves B too.
    """
    cdef Py_ssize_t M = squares.shape[0], more = projected.shape[0] - k - 1, i, j
    if projected.shape[1] != M or outside.shape[0] != M or k < 0 or more not in (0, 1):
        raise ValueError("the sums of a scan do not fit each other")
    found = empty((4, M))
    cdef double[:, ::1] out = found
    cdef double S, Q, ratio
    out[0, :] = squares
    for i in range(k):
        for j in range(M):
            out[0, j] -= projected[i, j] * projected[i, j]
    for j in range(M):
        S, Q = out[0, j], projected[k, j]
        if not S >= error * squares[j]:
            S = 0.0
        ratio = (Q * Q + (2.0 * Q * projected[k + 1, j] if more else 0.0)) / S if S > 0.0 else 0.0
        out[0, j], out[1, j] = S, Q
        out[2, j] = 0.5 * (ratio - 1.0 - log(ratio)) if ratio > 1.0 and outside[j] else 0.0
        out[3, j] = S / (ratio - 1.0) if ratio > 1.0 else INFINITY
    return found[0], found[1], found[2], found[3]
