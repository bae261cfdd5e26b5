"""Laplace's approximation with one output on rows in memory: the mode by Newton's method, and sums over the rows.

Arithmetic only: what to fit and how far is decided in Python (`relvec.inference.laplace`, `relvec.solvers.laplace`),
which also gives the constants. Rows are taken in parts that do not depend on the number of threads, so that sums are
the same however many there are. Memory belongs to NumPy arrays: there is nothing to free, and running out of it is a
MemoryError.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport exp, fabs, INFINITY, isfinite, log, NAN, sqrt
from libc.string cimport memcpy, memset

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

cdef object _empty = np.empty


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
    cdef double roughly, exactly, max_diagonal, min_pivot

    def __init__(self, const double[::1] t, const double[::1] weights, bint counts, double constant, double largest,
                 run, int max_steps, int max_idle, double roughly, double exactly, double max_diagonal,
                 double min_pivot):
        if t.shape[0] != weights.shape[0] or t.shape[0] > 2**30:
            raise ValueError(f"{t.shape[0]} targets and {weights.shape[0]} weights")
        self.t, self.weights, self.n = t, weights, <int>t.shape[0]
        self.counts, self.constant, self.largest, self.run = counts, constant, largest, run
        self.max_steps, self.max_idle, self.roughly, self.exactly = max_steps, max_idle, roughly, exactly
        self.max_diagonal, self.min_pivot = max_diagonal, min_pivot
        self.shares = SHARES if self.n >= MIN_SHARED else 1
        self.equal = True
        cdef int i
        for i in range(self.n):
            if weights[i] != 1.0:
                self.equal = False
                break

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

    cdef Rows rows
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
        self.mean, self.root, self.variance, self.state = _empty(k), _empty((k, k)), _empty(k), _empty((3, rows.n))
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
            total += self.gamma(i)
        return energy / total if total > 0.0 else 1.0

    cdef double gamma(self, int i) noexcept:
        return min(max(1.0 - self._alpha[i] * self._variance[i], 0.0), 1.0)

    @property
    def any_infinite(self):
        """`LaplacePosterior.any_infinite`."""
        cdef int i
        for i in range(self.k):
            if self._mean[i] * self._mean[i] <= self.gamma(i) * self._variance[i]:
                return True
        return False

    def slopes(self, root=None):
        """Phi's (k,) with s = -1/2 dB/df h (n,), where h = |phi_n' root|^2: the variances of f, or under ``root``."""
        return _Slope(self, self.root if root is None else root).total()

    def system(self):
        """The `NewtonSystem` of the evidence over log alpha."""
        return NewtonSystem(*evidence_system(self._alpha, self._mean, self._root, self._variance, self.slopes()))

    def at(self, alpha, start):
        """The same columns at other precisions."""
        return self.rows.fit(self.Phi, alpha, start)

    def deletions(self):
        """Gain (k,) of deleting each weight in the linearised problem, TF03 A.4, and whether its optimal precision is
        infinite (k,), TF03 eq. (21).
        """
        cdef int i
        gains, infinite = _empty(self.k), _empty(self.k, dtype=np.bool_)
        cdef double[::1] gain = gains
        cdef unsigned char[::1] dead = infinite.view(np.uint8)
        cdef double v, square
        for i in range(self.k):
            v, square = self._variance[i], self._mean[i] * self._mean[i]
            gain[i] = 0.5 * (-log(self._alpha[i] * v) - square / v)
            dead[i] = square <= self.gamma(i) * v
        return gains, infinite

    def drop(self, const unsigned char[::1] leave):
        """Without some of the weights (mask): the others begin where the linearised problem puts them, TF03 A.4:
        mu_keep - Sigma_kl Sigma_ll^-1 mu_l.
        """
        cdef int k = self.k, n = self.rows.n, gone = 0, kept = 0, i, a, b
        if leave.shape[0] != k:
            raise ValueError(f"a mask of {leave.shape[0]} for {k} weights")
        for i in range(k):
            gone += leave[i] != 0
        Phi, alpha, start = _empty((n, k - gone), order="F"), _empty(k - gone), _empty(k - gone)
        cdef double[::1, :] columns = Phi
        cdef double[::1] precisions = alpha, w = start
        cdef double[:, ::1] S = _empty((gone + 1, gone))
        cdef double *x = &S[gone, 0] if gone else NULL
        cdef int[::1] places = _empty(gone + 1, dtype=np.intc)
        for i in range(k):
            if leave[i]:
                places[kept] = i
                kept += 1
        for a in range(gone):
            x[a] = self._mean[places[a]]
            for b in range(a + 1):
                S[a, b] = dot(&self._root[places[a], 0], &self._root[places[b], 0], k)
        cdef bint known = gone and cholesky(&S[0, 0], gone)
        if known:
            solve_lower(&S[0, 0], gone, x)
            solve_lower_transposed(&S[0, 0], gone, x)
        kept = 0
        for i in range(k):
            if leave[i]:
                continue
            w[kept] = self._mean[i]
            for a in range(gone if known else 0):
                w[kept] -= x[a] * dot(&self._root[i, 0], &self._root[places[a], 0], k)
            precisions[kept] = self._alpha[i]
            memcpy(&columns[0, kept], &self._Phi[0, i], sizeof(double) * n)
            kept += 1
        return self.rows.fit(Phi, alpha, start)

    def add(self, const double[::1, :] more, const double[::1] alpha, const double[::1] start):
        """With further columns (n, m) at precisions (m,), whose weights begin at ``start`` (m,)."""
        cdef int k = self.k, n = self.rows.n, m = <int>alpha.shape[0]
        if more.shape[0] != n or more.shape[1] != m or start.shape[0] != m:
            raise ValueError("columns, precisions and weights do not fit each other")
        Phi, precisions, begin = _empty((n, k + m), order="F"), _empty(k + m), _empty(k + m)
        cdef double[::1, :] columns = Phi
        cdef double[::1] a = precisions, w = begin
        if k:
            memcpy(&columns[0, 0], &self._Phi[0, 0], sizeof(double) * n * <size_t>k)
            a[:k], w[:k] = self._alpha, self._mean
        if m:
            memcpy(&columns[0, k], &more[0, 0], sizeof(double) * n * <size_t>m)
            a[k:], w[k:] = alpha, start
        return self.rows.fit(Phi, precisions, begin)

    def swap(self, int place, const double[::1, :] column, double alpha, double weight):
        """With another column (n, 1) in the place of one."""
        if not 0 <= place < self.k or column.shape[0] != self.rows.n or column.shape[1] != 1:
            raise ValueError("a column does not fit the model")
        Phi, precisions, begin = self.Phi.copy(order="F"), self.alpha.copy(), self.mean.copy()
        cdef double[::1, :] columns = Phi
        cdef double[::1] a = precisions, w = begin
        memcpy(&columns[0, place], &column[0, 0], sizeof(double) * self.rows.n)
        a[place], w[place] = alpha, weight
        return self.rows.fit(Phi, precisions, begin)

    def directions(self, bint moving):
        """Y' (k + 1, n) with Y'Phi = [T; Q] for a scan: B Phi_a root, and the residuals.

        Where B counts as ``moving`` a further row gives E, the way in which an atom moves log|Phi'B Phi + A| through B:
        s - B Phi_a Sigma Phi_a's with the s of `slopes`.
        """
        cdef int k = self.k, n = self.rows.n, i, j
        found = _empty((k + 1 + moving, n))
        cdef double[:, ::1] Y = found, work = _empty((2, n))
        cdef double[::1] w = _empty(2 * k + 1)
        memset(&work[0, 0], 0, sizeof(double) * n)
        for j in range(k):
            memset(&Y[j, 0], 0, sizeof(double) * n)
            for i in range(j + 1):
                w[i] = self._root[i, j]
            add_columns(&self._Phi[0, 0], j + 1, n, &w[0], n, &Y[j, 0])
            for i in range(n):
                work[0, i] += Y[j, i] * Y[j, i]
                Y[j, i] *= self._state[2, i]
        Y[k, :] = self._state[1, :]
        if not moving:
            return found
        curvature_rows(&self._state[0, 0], &self._state[2, 0], &work[0, 0], n, self.rows.counts, &Y[k + 1, 0])
        memset(&w[0], 0, sizeof(double) * 2 * k)
        if k:
            add_products(&self._Phi[0, 0], k, n, &Y[k + 1, 0], n, &w[0])
        for j in range(k):  # Y_j = B Phi root_j, so that B Phi Sigma back = sum_j Y_j (root_j . back)
            for i in range(k):
                w[k + j] += self._root[i, j] * w[i]
        for j in range(k):
            for i in range(n):
                Y[k + 1, i] -= w[k + j] * Y[j, i]
        return found

    def choose_apart(self, const double[::1, :] columns, const double[:, :] T, const double[:] S, int most,
                     double max_correlation):
        """Places of the first of c candidates, and of up to ``most`` in all that hardly correlate with those before.

        Columns (n, c), and T (k, c) and S (c,) of their scan; correlations are those in the metric C^-1 of the
        linearised problem.
        """
        cdef int c = <int>columns.shape[1], n = self.rows.n, a, b, i, taken = 0
        cdef double inner
        cdef bint apart
        if columns.shape[0] != n or T.shape[0] != self.k or T.shape[1] != c or S.shape[0] != c or most < 1:
            raise ValueError("candidates and their scan do not fit each other")
        cdef double[:, ::1] weighted = _empty((most, n))
        cdef list chosen = []
        for a in range(c):
            apart = True
            for b in range(taken):
                inner = dot(&weighted[b, 0], &columns[0, a], n)
                for i in range(self.k):
                    inner -= T[i, <int>chosen[b]] * T[i, a]
                if not fabs(inner) <= max_correlation * sqrt(max(S[<int>chosen[b]] * S[a], 1e-300)):
                    apart = False
                    break
            if not apart:
                continue
            for i in range(n):
                weighted[taken, i] = self._state[2, i] * columns[i, a]
            chosen.append(a)
            taken += 1
            if taken == most:
                break
        return chosen


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
    cdef double[::1] work
    cdef double[:, ::1] other
    cdef double *w  # (k,) where the rows are looked at
    cdef double[:, ::1] at  # f, r and W there

    def __init__(self, Mode mode):
        cdef int k = mode.k
        self.mode, self.rows, self.Phi, self.k = mode, mode.rows, mode._Phi, k
        self.other = _empty((3, self.rows.n))
        self.sums = _empty((self.rows.shares, 1 + k + k * k + 2 * BLOCK))  # value, Phi'r, Phi'B Phi, two columns
        self.work = _empty(6 * k + 1)

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

    cdef double look(self, double *v, double *w, double[:, ::1] at) except? -1.0:
        """The objective at v, with its gradient and curvature in ``sums``."""
        self.w, self.at = w, at
        return self.all(1 + self.k + self.k * self.k)[0] + self.rows.constant - 0.5 * dot(v, v, self.k)

    cdef bint climb(self) except -1:
        cdef int k = self.k, i, j, idle = 0, turn
        cdef double *spread = &self.work[0]
        cdef double *v = spread + k
        cdef double *trial = v + k
        cdef double *w = trial + k
        cdef double *g = w + k
        cdef double *own = g + k
        cdef double *L = &self.sums[0, 0] + 1 + k
        cdef double value, new, size, decrement, length, pivot, best = INFINITY
        cdef bint small
        for j in range(k):
            spread[j] = 1.0 / sqrt(self.mode._alpha[j])
            w[j] = self.mode._mean[j]
            v[j] = w[j] / spread[j]
        value = self.look(v, w, self.mode._state)
        if not value > -INFINITY:
            memset(v, 0, sizeof(double) * k)
            memset(w, 0, sizeof(double) * k)
            value = self.look(v, w, self.mode._state)
        for turn in range(self.rows.max_steps):
            PyErr_CheckSignals()
            for i in range(k):
                for j in range(i + 1):
                    L[i * k + j] *= spread[i] * spread[j]
                L[i * k + i] += 1.0
                own[i] = L[i * k + i]
                g[i] = spread[i] * self.sums[0, 1 + i] - v[i]
            if not cholesky(L, k):
                return False
            for i in range(k):
                pivot = L[i * k + i] * L[i * k + i]
                if not (own[i] <= self.rows.max_diagonal or pivot > self.rows.min_pivot * own[i]):
                    return False
            if not k:
                break
            solve_lower(L, k, g)
            decrement = dot(g, g, k)
            size = max(1.0, fabs(value))
            small = decrement < self.rows.roughly * size
            if small and (decrement < self.rows.exactly * size or decrement >= 0.5 * best):
                break
            if idle == self.rows.max_idle:
                break
            best = decrement
            solve_lower_transposed(L, k, g)
            length = 1.0
            while True:
                for j in range(k):
                    trial[j] = v[j] + length * g[j]
                    w[j] = spread[j] * trial[j]
                new = self.look(trial, w, self.other)
                # near the mode values no longer tell steps apart, and Newton converges by itself
                if small or new >= value + 1e-4 * length * decrement or length < 1e-12:
                    break
                length *= 0.5
            idle += not (small or new > value)
            memcpy(v, trial, sizeof(double) * k)
            memcpy(&self.mode._state[0, 0], &self.other[0, 0], sizeof(double) * 3 * self.rows.n)
            value = new
        return self.finish(value, spread, v, L)

    cdef bint finish(self, double value, double *spread, double *v, double *L) noexcept:
        """Mean, root = A^-1/2 L^-T, variance and evidence from the factor L of minus the Hessian at the mode."""
        cdef int k = self.k, i, j
        cdef double *V
        for j in range(k):
            value -= log(L[j * k + j])
            self.mode._mean[j] = spread[j] * v[j]
        if k:
            V = &self.mode._root[0, 0]
            memset(V, 0, sizeof(double) * k * k)
            for j in range(k):  # row j of L^-1 is column j of V
                V[j * k + j] = 1.0 / L[j * k + j]
                for i in range(j):
                    V[i * k + j] = -V[j * k + j] * dot(L + j * k + i, V + i * k + i, j - i)
            for i in range(k):
                for j in range(i, k):
                    V[i * k + j] *= spread[i]
                self.mode._variance[i] = dot(V + i * k + i, V + i * k + i, k - i)
        self.mode.log_evidence = value
        return isfinite(value)


cdef class _Slope(_Pass):
    cdef const double[:, ::1] root  # its columns as rows
    cdef const double[:, ::1] state

    def __init__(self, Mode mode, root):
        self.rows, self.Phi, self.k, self.state = mode.rows, mode._Phi, mode.k, mode._state
        self.root = np.ascontiguousarray(root.T)
        if self.root.shape[1] != self.k:
            raise ValueError(f"a root of {self.root.shape[1]} rows for {self.k} weights")
        self.sums = _empty((self.rows.shares, self.k + 3 * BLOCK))

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
        back = _empty(self.k)
        cdef double[::1] into = back
        cdef double *found = self.all(self.k)
        if self.k:
            memcpy(&into[0], found, sizeof(double) * self.k)
        return back


# ---------------------------------------------------------------- precisions of k weights


def evidence_system(const double[::1] alpha, const double[::1] mean, const double[:, ::1] root,
                    const double[::1] variance, const double[::1] back):
    """Gradient (k,) of the Laplace evidence over log alpha, minus its linearised Hessian (k, k), and the diagonal (k,)
    of the expectation-maximisation step; ``back`` (k,) is dL/dw through B alone (`PosteriorOnRows.slopes`).
    """
    cdef int k = <int>alpha.shape[0], i, j
    if not mean.shape[0] == root.shape[0] == root.shape[1] == variance.shape[0] == back.shape[0] == k:
        raise ValueError("the arrays of a posterior do not fit each other")
    gradient, minus_hessian, diagonal = _empty(k), _empty((k, k)), _empty(k)
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
        cdef double[:, ::1] L = _empty((k, k))
        solution = _empty(k)
        cdef double[::1] x = solution
        if towards is not None and towards.shape[0] != k:
            raise ValueError(f"a gradient of {towards.shape[0]} numbers for {k} precisions")
        if not k:
            return solution
        L[:] = self.H
        x[:] = self.g if towards is None else towards
        for i in range(k):
            L[i, i] += damping * self.em[i]
        if not cholesky(&L[0, 0], k):
            return None
        solve_lower(&L[0, 0], k, &x[0])
        solve_lower_transposed(&L[0, 0], k, &x[0])
        for i in range(k):
            if not isfinite(x[i]):
                return None
        return solution

    def gain(self, const double[::1] step):
        """Nats that the quadratic model expects of a step (u,)."""
        cdef int k = self.k, i
        cdef double total = 0.0
        if step.shape[0] != k:
            raise ValueError(f"a step of {step.shape[0]} numbers for {k} precisions")
        for i in range(k):
            total += step[i] * (self.g[i] - 0.5 * dot(&self.H[i, 0], &step[0], k))
        return total

    def correct(self, const double[::1] x_old, const double[::1] g_old, const double[::1] x_new,
                const double[::1] g_new, double min_ratio):
        """Correct the curvature by what the gradient did from x_old to x_new (BFGS).

        Not where the curvature on the way is less than ``min_ratio`` of the linearised one.
        """
        cdef int k = self.k, i, j
        if not x_old.shape[0] == g_old.shape[0] == x_new.shape[0] == g_new.shape[0] == k:
            raise ValueError("the steps of a path do not fit each other")
        cdef double[:, ::1] work = _empty((3, k))
        cdef double sHs, sy
        for i in range(k):
            work[0, i] = x_new[i] - x_old[i]
            work[1, i] = g_old[i] - g_new[i]
        for i in range(k):
            work[2, i] = dot(&self.H[i, 0], &work[0, 0], k)
        sHs, sy = dot(&work[0, 0], &work[2, 0], k), dot(&work[0, 0], &work[1, 0], k)
        if sHs > 0.0 and sy > min_ratio * sHs:
            for i in range(k):
                for j in range(k):
                    self.H[i, j] += work[1, i] * work[1, j] / sy - work[2, i] * work[2, j] / sHs


def moved_mode(const double[::1] alpha, const double[::1] mean, const double[:, ::1] root, const double[::1] step,
               bint predict):
    """alpha exp(step) (k,), and the weights (k,) where the linearised problem has its mode then, or as they are.

    dw/dlog alpha_j = -Sigma_j alpha_j w_j.
    """
    cdef int k = <int>alpha.shape[0], i, j
    if not mean.shape[0] == root.shape[0] == root.shape[1] == step.shape[0] == k:
        raise ValueError("the arrays of a posterior do not fit each other")
    moved, start = _empty(k), _empty(k)
    cdef double[::1] a = moved, w = start, inner = _empty(k)
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
    found = _empty((4, M))
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


# ---------------------------------------------------------------- small matrices, by rows


cdef bint cholesky(double *A, int k) noexcept nogil:
    """Lower L with L L' = A in place (lower half); false where A is not positive definite."""
    cdef int i, j
    cdef double pivot
    cdef double *row
    for j in range(k):
        row = A + <size_t>j * k
        for i in range(j):
            row[i] = (row[i] - dot(row, A + <size_t>i * k, i)) / A[<size_t>i * k + i]
        pivot = row[j] - dot(row, row, j)
        if not (pivot > 0.0 and isfinite(pivot)):
            return False
        row[j] = sqrt(pivot)
    return True


cdef void solve_lower(const double *L, int k, double *x) noexcept nogil:
    cdef int i
    for i in range(k):
        x[i] = (x[i] - dot(L + <size_t>i * k, x, i)) / L[<size_t>i * k + i]


cdef void solve_lower_transposed(const double *L, int k, double *x) noexcept nogil:
    cdef int i, j
    cdef const double *row
    for i in range(k - 1, -1, -1):
        row = L + <size_t>i * k
        x[i] /= row[i]
        for j in range(i):
            x[j] -= row[j] * x[i]
