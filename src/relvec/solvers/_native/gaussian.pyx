"""The moves of the sequential method under Gaussian noise: the only implementation of them.

A `Frame` holds the problem and orthonormal coordinates in which every model of a search is small; a `Model` is a support
with its posterior in those coordinates, and never changes. Matrices are stored by columns. Which move comes when, and
what is done with its result, is decided in `relvec.solvers.sequential`.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, exp, fabs, fmax, fmin, frexp, isfinite, ldexp, log, rint, sqrt

from relvec.solvers._native.blas cimport (
    cholesky, dot, factor_qr, form_q, gram, invert_upper, matmul, matvec, reflect, solve, square_upper, times_upper,
    upper_times,
)
from relvec.solvers._native.memory cimport room, room_of_integers

from threading import RLock

import numpy as np

from relvec.inference.evidence import (
    MAX_CORRELATION, MIN_COPY_CORRELATION, SMALL_GAMMA, TIE_NATS, Posterior, near_copy_price,
)
from relvec.inference.linalg import NORMAL_EQUATIONS_LIMIT, Reflections, SingularError
from relvec.solvers.loop import OBJECTIVE_SLACK

cdef double LIMIT = NORMAL_EQUATIONS_LIMIT
cdef double LOG_2PI = log(2.0 * 3.14159265358979323846)

# A column whose part outside the frame is smaller than this (relative) lies inside it: such a part has no digits.
cdef double DEPENDENT = 1e-14
cdef double KEPT = 0.5  # share of its length that a direction keeps when it is made orthogonal for the last time
# S / beta of an atom below this is rounding where it is a difference; below CLOSE `refine` finds it without one.
COLLINEAR = 1e-14
cdef double LEAST_S = COLLINEAR
cdef double CLOSE = 1e-9
cdef int REFINED_AT_ONCE = 64  # atoms
cdef double LARGE_FACTOR = 1e3  # diagonal of U above which X'z would lose digits
cdef double NO_GAMMA = SMALL_GAMMA
cdef double LONGEST_STEP = 3.0  # in log units: one step changes a precision by a factor of 20 at most
cdef double LEAST_DAMPING = 3e-3  # a refused factorisation is cheap, so damping starts low: valleys are left in few steps
cdef int MAX_DAMPINGS = 40
cdef double SLACK = OBJECTIVE_SLACK
cdef double TIE = TIE_NATS
cdef double MIN_NEWTON_GAIN_NATS = 0.01  # Newton steps that promise less wait
cdef double BATCH_GAIN_SHARE = 0.3  # of the best gain, for further atoms of a batch
cdef double MAX_BATCH_CORRELATION = 0.3  # of those with the atoms before them, in the metric C^-1
cdef int BATCH_CANDIDATES = 4  # for each atom of a batch
cdef double EXCHANGE_TIE_NATS = 1e-6  # a gain of an exchange is a difference, and with little noise has fewer digits
cdef double RATIO_ROUNDING = 1e-12  # of Q^2 / S without the atom that leaves
cdef int MAX_EXCHANGES = 4  # tried with re-estimation before giving up
cdef double MIN_EXCHANGE_GAIN_NATS = -1.0  # before re-estimation: an exchange that loses more is not tried
cdef int MAX_REFUTED = 16  # candidates whose predicted gain may turn out to be rounding before the search ends
cdef double COPIED = MIN_COPY_CORRELATION, NEAR = MAX_CORRELATION
cdef double MAX_COPY_GAIN_NATS = 1e-5  # from an exchange for a copy, by rounding: one that gains more is none
cdef int ALPHA_BITS = 13, BETA_BITS = 20  # that `coarse` keeps
cdef int FIRST_CAPACITY = 32


cdef inline double coarse(double x, int bits) noexcept:
    """A positive number rounded to a few bits.

    A search takes hundreds of steps from one another's results, and the order of the rows or of a sum would decide
    where it ends if their last digits were carried along. What rounding does to the evidence is far below tol.
    """
    cdef int exponent
    cdef double mantissa = frexp(x, &exponent)
    return ldexp(rint(ldexp(mantissa, bits)), exponent - bits)


cdef inline bint not_lower(double new, double old) noexcept:
    return new >= old - SLACK * fmax(1.0, fabs(old))


cdef inline double gain_add(double S, double Q) noexcept:
    """TF03 A.2."""
    cdef double ratio = Q * Q / S if S > 0.0 else 0.0
    return 0.5 * (ratio - 1.0 - log(ratio)) if ratio > 1.0 else 0.0


cdef not_finite():
    return SingularError("a matrix of the model holds NaN or infinite values; rescale the basis functions")


cdef object as_array(double[::1] view, Py_ssize_t rows, Py_ssize_t columns):
    """A matrix (rows, columns) that shares the memory of the view."""
    return np.asarray(view)[: rows * columns].reshape(columns, rows).T


cdef class Scan:
    """S and Q (M,) of TF03 eq. (22), T (M, k) with S = beta (|phi|^2 - |T|^2), and the gains of additions (M,)."""

    cdef double[::1] S, Q, T, gain


cdef class Frame:
    """A dictionary with its target, and an orthonormal basis Q (n, f) of the columns met so far, with P' = Q'Phi (f, M).

    Any model whose atoms are in the frame is then a problem of f rows. One new atom costs one product with Phi, other
    alpha and beta or atoms left out cost none. The frame grows, and is made anew when it holds far more than a model
    needs; models made before find their place in it again.
    """

    cdef object design
    cdef const double[::1] phi  # by columns or by rows, empty where only the design has it
    cdef bint dense, by_rows
    cdef readonly int n, M
    cdef readonly double n_samples
    cdef double noise_floor, outside, prior_c, prior_d
    cdef bint fixed_noise
    cdef double[::1] target, unit
    cdef const long long[::1] order
    cdef readonly int size
    cdef int capacity, version
    cdef double[::1] Q, P, z, left, Q_left
    cdef double rest
    cdef unsigned char[::1] held
    cdef Support support  # the one last evaluated
    cdef int bias
    cdef double near_price  # nats that a near-copy has to gain
    cdef dict near  # near-copies of the atoms that were met in a model
    cdef readonly object lock  # models share the frame, and products release the interpreter: one thread at a time

    def __init__(self, problem):
        self.lock = RLock()
        design = self.design = problem.design
        if not 0 < design.n_rows < 2**31 or not design.n_atoms < 2**31:
            raise ValueError(f"a dictionary of {design.n_rows} rows and {design.n_atoms} atoms has no place in the engine")
        self.n, self.M = design.n_rows, design.n_atoms
        matrix = design.matrix
        self.dense = (
            matrix is not None and matrix.dtype == float and (matrix.flags.c_contiguous or matrix.flags.f_contiguous)
        )
        if self.dense:
            self.by_rows = matrix.flags.c_contiguous
            self.phi = (matrix if self.by_rows else matrix.T).reshape(-1)
        self.target = np.ascontiguousarray(problem.target, dtype=float)
        self.unit = (design.scale > 0.0).astype(float)  # squared norms of the columns: 1, or 0 where they vanish
        self.order = np.ascontiguousarray(problem.order, dtype=np.int64)
        if self.target.shape[0] != self.n or self.unit.shape[0] != self.M or self.order.shape[0] != self.M:
            raise ValueError("the arrays of a problem do not fit each other")
        self.outside, self.n_samples, self.noise_floor = problem.target_norm2_outside, problem.n_samples, problem.noise_floor
        self.fixed_noise, self.prior_c, self.prior_d = problem.fixed_noise, problem.prior.c, problem.prior_d
        self.bias, self.near, self.near_price = problem.bias, {}, near_copy_price(self.M)
        self.start()

    cdef int start(self) except -1:
        """An empty frame."""
        cdef double[::1] Q_left = room(self.M), left = room(self.n)
        left[:] = self.target
        self.project(self.target, 1, Q_left)
        self.reserve(FIRST_CAPACITY)
        self.left, self.Q_left = left, Q_left
        self.held = np.zeros(self.M, np.uint8)
        self.rest = dot(self.target, self.target, self.n) + self.outside
        self.support = None
        self.size = 0
        self.version += 1
        return 0

    cdef int project(self, const double[::1] Y, int count, double[::1] into) except -1:
        """Y'Phi for Y (n, count): into (M, count)."""
        cdef double[::1] found
        if not self.dense:
            directions = np.asarray(Y)[: self.n * count].reshape(count, self.n).T
            found = np.ascontiguousarray(self.design.project(directions), dtype=float).reshape(-1)
            into[: <Py_ssize_t>self.M * count] = found
        else:
            matmul(b"N" if self.by_rows else b"T", b"N", self.M, count, self.n, 1.0, self.phi, Y, 0.0, into)
        return 0

    cdef double[::1] columns(self, const int[::1] atoms, int count):
        """The columns of some atoms (n, count)."""
        cdef Py_ssize_t n = self.n, M = self.M, i, r
        cdef double[::1] found
        if not self.dense:
            columns = self.design.columns(np.asarray(atoms)[:count].astype(np.intp))
            return np.ascontiguousarray(np.asarray(columns, dtype=float).T).reshape(-1)
        found = room(n * count)
        for i in range(count):
            for r in range(n):
                found[i * n + r] = self.phi[r * M + atoms[i]] if self.by_rows else self.phi[atoms[i] * n + r]
        return found

    cdef const int[::1] near_copies(self, int atom):
        """The other atoms whose columns correlate above `MAX_CORRELATION` with that of this one, the constant excepted."""
        found = self.near.get(atom)
        cdef double[::1] correlation
        cdef int[::1] fresh = room_of_integers(1)
        if found is not None:
            return found
        close = np.zeros(0, dtype=np.intc)
        if atom != self.bias:
            fresh[0], correlation = atom, room(self.M)
            self.project(self.columns(fresh, 1), 1, correlation)
            close = np.flatnonzero(np.abs(np.asarray(correlation)[: self.M]) > NEAR)
            close = close[(close != atom) & (close != self.bias)].astype(np.intc)
        self.near[atom] = close
        return close

    cdef int reserve(self, int capacity) except -1:
        """Room for so many directions."""
        if capacity <= self.capacity:
            return 0
        capacity = max(capacity, 2 * self.capacity)
        cdef double[::1] Q = room(<Py_ssize_t>capacity * self.n)
        cdef double[::1] P = room(<Py_ssize_t>capacity * self.M)
        cdef double[::1] z = room(capacity)
        cdef Py_ssize_t f = self.size
        if f:
            Q[: f * self.n] = self.Q[: f * self.n]
            P[: f * self.M] = self.P[: f * self.M]
            z[:f] = self.z[:f]
        self.Q, self.P, self.z, self.capacity = Q, P, z, capacity
        return 0

    cdef int remove(self, int f, int count, double[::1] V, double[::1] work) except -1:
        """V -= Q (Q'V) for V (n, count), over the first f directions."""
        matmul(b"T", b"N", f, count, self.n, 1.0, self.Q, V, 0.0, work)
        matmul(b"N", b"N", self.n, count, f, -1.0, self.Q, work, 1.0, V)
        return 0

    cdef int span(self, const int[::1] atoms, int k) except -1:
        """Take the given atoms into the frame (Gram-Schmidt, repeated where digits cancel)."""
        cdef Py_ssize_t n = self.n, i, r, count = 0, first = self.size, f = first
        for i in range(k):
            count += not self.held[atoms[i]]
        if not count:
            return 0
        cdef int[::1] fresh = room_of_integers(count)
        count = 0
        for i in range(k):
            if not self.held[atoms[i]]:
                fresh[count] = atoms[i]
                count += 1
        self.reserve(<int>(first + count))
        cdef double[::1] V = self.columns(fresh, <int>count), work = room((first + count) * count), v
        cdef double[::1] left = room(n), Q_left = room(self.M)
        cdef double length, shrunk, norm, z
        left[:] = self.left
        Q_left[:] = self.Q_left
        self.remove(<int>first, <int>count, V, work)
        for i in range(count):
            v = V[i * n : (i + 1) * n]
            length, shrunk = sqrt(dot(v, v, n)), 0.0
            while length >= DEPENDENT and shrunk < KEPT:  # what is left of a short part may lie in the frame again
                norm = sqrt(dot(v, v, n))
                for r in range(n):
                    v[r] /= norm
                self.remove(<int>f, 1, v, work)
                shrunk = sqrt(dot(v, v, n))
                length *= shrunk
            if not length >= DEPENDENT:
                if length != length:
                    raise not_finite()
                continue
            for r in range(n):
                v[r] /= shrunk
            self.Q[f * n : (f + 1) * n] = v
            z = dot(v, left, n)
            self.z[f] = z
            for r in range(n):
                left[r] -= z * v[r]
            f += 1
        cdef double[::1] P
        if f > first:
            P = self.P[first * self.M :]
            self.project(self.Q[first * n :], <int>(f - first), P)
            matvec(b"N", self.M, <int>(f - first), -1.0, P, self.z[first:], 1.0, Q_left)
        for i in range(count):  # from here on nothing fails
            self.held[fresh[i]] = 1
        self.left, self.Q_left, self.size = left, Q_left, <int>f
        self.rest = dot(left, left, n) + self.outside
        return 0

    cdef Support load(self, const int[::1] active, int k):
        """The coordinates of a support, kept for the next model of the same one."""
        cdef Support s = self.support
        cdef Py_ssize_t f = self.size, M = self.M, i, r
        if s is not None and s.k == k and s.f == f:
            for i in range(k):
                if s.active[i] != active[i]:
                    break
            else:
                return s
        s = Support()
        s.k, s.f = k, <int>f
        s.active = active
        s.R = room(f * k)
        s.gram = room(<Py_ssize_t>k * k)
        for r in range(f):
            for i in range(k):
                s.R[i * f + r] = self.P[r * M + active[i]]
        gram(k, <int>f, 1.0, s.R, 0.0, s.gram)
        self.support = s
        return s

    def model(self, active, alpha, double beta, int atom=-1):
        """The model of some atoms (k,) with precisions (k,)."""
        cdef int[::1] atoms = np.ascontiguousarray(active, dtype=np.intc)
        cdef double[::1] precisions = np.array(alpha, dtype=float, ndmin=1)
        cdef int k = <int>atoms.shape[0], i
        if precisions.shape[0] != k:
            raise ValueError(f"{k} atoms with {precisions.shape[0]} precisions")
        for i in range(k):
            if not 0 <= atoms[i] < self.M:
                raise IndexError(f"there is no atom {atoms[i]}")
            if not (precisions[i] > 0.0 and isfinite(precisions[i])):
                raise not_finite()
        if not (beta > 0.0 and isfinite(beta)):
            raise not_finite()
        with self.lock:
            return make(self, atoms, precisions, k, beta, atom)

    def apart(self, atoms):
        """Places of those of some atoms (k,) that are no near-copies of others that come before them in order."""
        cdef int atom
        places, refused = [], set()
        with self.lock:
            for place in np.argsort(np.asarray(self.order)[atoms], kind="stable"):
                atom = atoms[place]
                if atom not in refused:
                    places.append(place)
                    refused.update(np.asarray(self.near_copies(atom)).tolist())
        return np.sort(np.array(places, dtype=np.intp))

    @property
    def directions(self):
        """Q, and the part of t outside the frame (n, f + 1)."""
        return np.column_stack([as_array(self.Q, self.n, self.size), np.asarray(self.left)])


cdef class Support:
    """Columns R (f, k) of some atoms in the frame, and R'R (k, k), its upper half."""

    cdef int k, f
    cdef const int[::1] active
    cdef double[::1] R, gram


cdef Model make(Frame frame, const int[::1] active, double[::1] alpha, int k, double beta, int atom):
    """A model, in a frame that holds its atoms; it keeps the arrays."""
    PyErr_CheckSignals()
    cdef Model m = Model.__new__(Model)
    m.frame, m.active, m.alpha, m.k, m.beta, m.atom = frame, active, alpha, k, beta, atom
    frame.span(active, k)
    m.evaluate()
    return m


cdef class Model:
    """A support with its posterior, at given precisions."""

    cdef readonly Frame frame
    cdef const int[::1] active
    cdef double[::1] alpha
    cdef readonly int atom  # the one last moved
    cdef readonly double beta, residual, objective
    cdef int k, f, version
    cdef double[::1] v, V, X, remainder, shrinkage, _gamma, _leverage, packed, tau
    cdef bint large, has_gamma, has_leverage  # large: packed and tau hold the reflections of [X; I] = Q U

    cdef int evaluate(self) except -1:
        """Posterior and evidence, as `relvec.inference.evidence.gaussian` has them, in the coordinates of the frame."""
        cdef Frame frame = self.frame
        cdef Support s = frame.load(self.active, self.k)
        cdef Py_ssize_t k = self.k, f = frame.size, i, j, r
        cdef double[::1] memory = room(2 * k + k * k + k * f + f)
        cdef double[::1] v = memory[:k], shrinkage = memory[k : 2 * k], V = memory[2 * k : 2 * k + k * k]
        cdef double[::1] X = memory[2 * k + k * k : 2 * k + k * k + k * f], remainder = memory[2 * k + k * k + k * f :]
        cdef double precision = sqrt(self.beta), widest = 0.0, log_det = 0.0, spread
        self.f, self.version = <int>f, frame.version
        self.v, self.shrinkage, self.V, self.X, self.remainder = v, shrinkage, V, X, remainder
        for i in range(k):
            shrinkage[i] = precision / sqrt(self.alpha[i])  # for a while
        for i in range(k):
            spread = shrinkage[i]
            for r in range(f):
                X[i * f + r] = s.R[i * f + r] * spread
            for j in range(i + 1):
                V[i * k + j] = s.gram[i * k + j] * spread * shrinkage[j]
        remainder[:] = frame.z[:f] if f else remainder
        if k:
            self.factor()
            for i in range(k):
                log_det += log(fabs(V[i * k + i]))
                widest = fmax(widest, fabs(V[i * k + i]))
            if invert_upper(<int>k, V):
                raise not_finite()
            if self.large:
                self.split()
                for i in range(k):
                    v[i] *= precision
            else:
                # X'z loses digits, or overflows, where X is large
                matvec(b"T", <int>f, <int>k, precision, self.leverage() if widest > LARGE_FACTOR else X, frame.z, 0.0, v)
                if widest <= LARGE_FACTOR:
                    upper_times(b"T", <int>k, V, v)
            upper_times(b"N", <int>k, V, v)
            if not self.large:
                matvec(b"N", <int>f, <int>k, -1.0 / precision, X, v, 1.0, remainder)
        self.residual = dot(remainder, remainder, f) + frame.rest
        shrinkage[:] = 0.0
        for j in range(k):
            for i in range(j + 1):
                shrinkage[i] += V[j * k + i] * V[j * k + i]
        # T01 eq. (38) and (41): log |C| = 2 log |U| - N log beta, t'C^-1 t = beta |t - Phi mu|^2 + mu'A mu
        self.objective = frame.prior_c * log(self.beta) - frame.prior_d * self.beta - 0.5 * (
            frame.n_samples * (LOG_2PI - log(self.beta)) + 2.0 * log_det + self.beta * self.residual + dot(v, v, k)
        )
        if not isfinite(self.objective):
            raise not_finite()
        return 0

    cdef int factor(self) except -1:
        """V, which holds X'X (upper half), becomes U with U'U = I + X'X; its diagonal may be negative."""
        cdef Py_ssize_t k = self.k, i, j, rows = self.f + k
        cdef double[::1] U = self.V
        cdef double size = 0.0
        for i in range(k):
            if not U[i * k + i] <= size:
                size = U[i * k + i]
        if not isfinite(size):
            raise not_finite()
        if size <= LIMIT:
            for i in range(k):
                U[i * k + i] += 1.0
            if cholesky(<int>k, U) == 0:
                return 0
        self.large = True
        self.packed, self.tau = self.reflections()
        for j in range(k):
            U[j * k : j * k + j + 1] = self.packed[j * rows : j * rows + j + 1]
        return 0

    cdef tuple reflections(self):
        """Householder's reflections of [X; I] (f + k, k), and their factors."""
        cdef Py_ssize_t k = self.k, f = self.f, rows = f + k, i
        cdef double[::1] packed = room(rows * k)
        cdef double[::1] tau = room(k)
        for i in range(k):
            packed[i * rows : i * rows + f] = self.X[i * f : (i + 1) * f]
            packed[i * rows + f + i] = 1.0
        factor_qr(<int>rows, <int>k, packed, tau)
        return packed, tau

    cdef int split(self) except -1:
        """Q'[z; 0] to v, and what Q Q' leaves of z to the remainder."""
        cdef Py_ssize_t k = self.k, f = self.f, rows = f + k
        cdef double[::1] z = room(rows)
        z[:f] = self.frame.z[:f]
        reflect(b"T", <int>rows, <int>k, 1, self.packed, self.tau, z)
        self.v[:] = z[:k]
        z[:k] = 0.0
        reflect(b"N", <int>rows, <int>k, 1, self.packed, self.tau, z)
        self.remainder[:] = z[:f]
        return 0

    cdef double[::1] leverage(self):
        """X V (f, k); C^-1 = beta (I - leverage leverage') inside the frame."""
        cdef Py_ssize_t k = self.k, f = self.f, rows = f + k, i
        cdef double[::1] found, Q
        if self.has_leverage:
            return self._leverage
        found = room(f * k)
        if self.large:
            Q = room(rows * k)
            Q[:] = self.packed
            form_q(<int>rows, <int>k, Q, self.tau)
            for i in range(k):
                found[i * f : (i + 1) * f] = Q[i * rows : i * rows + f]
        elif k and f:
            found[:] = self.X
            times_upper(b"N", <int>f, <int>k, self.V, found)
        self._leverage, self.has_leverage = found, True
        return found

    cdef double[::1] gamma(self):
        """1 - alpha_i Sigma_ii (k,), T01 eq. (17); where that has no digits as `Posterior.gamma` finds it."""
        cdef Py_ssize_t k = self.k, f = self.f, i, j
        cdef double[::1] found, above, below
        if self.has_gamma:
            return self._gamma
        found = room(k)
        for i in range(k):
            found[i] = 1.0 - self.shrinkage[i]
            if found[i] < NO_GAMMA:
                above, below = room(f), room(k)
                for j in range(k):
                    below[j] = self.V[j * k + i] if j >= i else 0.0
                matvec(b"N", <int>f, <int>k, 1.0, self.leverage(), below, 0.0, above)
                upper_times(b"N", <int>k, self.V, below)
                below[i] = 0.0
                found[i] = dot(above, above, f) + dot(below, below, k)
                found[i] += found[i] * found[i]
        self._gamma, self.has_gamma = found, True
        return found

    cdef double gain_delete(self, Py_ssize_t i) noexcept:
        """TF03 A.4."""
        return 0.5 * (-log(self.shrinkage[i]) - self.v[i] * self.v[i] / self.shrinkage[i])

    cdef Model here(self):
        """The model in the present frame."""
        if self.version == self.frame.version:
            return self
        return make(self.frame, self.active, self.alpha, self.k, self.beta, self.atom)

    cdef bint leaves(self, Py_ssize_t i, double[::1] gamma) noexcept:
        """Whether the optimal precision of the i-th atom is infinite: q^2 <= s, TF03 eq. (21), in units of the prior."""
        return self.v[i] * self.v[i] <= gamma[i] * self.shrinkage[i]

    cdef Model without(self, Py_ssize_t only):
        """The model without the i-th of its atoms; without all that leave for a negative number."""
        cdef int[::1] active = room_of_integers(self.k)
        cdef double[::1] alpha = room(self.k), gamma = self.gamma()
        cdef Py_ssize_t i, k = 0
        for i in range(self.k):
            if not (i == only if only >= 0 else self.leaves(i, gamma)):
                active[k], alpha[k] = self.active[i], self.alpha[i]
                k += 1
        return make(self.frame, active, alpha, <int>k, self.beta, self.atom)

    # ------------------------------------------------------------ precisions

    cdef Model pruned(self):
        """Without the atoms whose optimal precision is infinite (TF03 eq. (21)), while the objective does not fall."""
        cdef Model m = self, fewer
        cdef Py_ssize_t i, first
        cdef double[::1] gamma
        while True:
            gamma, first = m.gamma(), -1
            for i in range(m.k):
                if m.leaves(i, gamma) and (first < 0 or m.gain_delete(i) > m.gain_delete(first)):
                    first = i
            if first < 0:
                return m
            fewer = m.without(-1)
            if not not_lower(fewer.objective, m.objective):
                fewer = m.without(first)  # the one whose deletion gains most, alone
                if not not_lower(fewer.objective, m.objective):
                    return m
            m = fewer

    cdef int derivatives(self, int free, double g_beta, double[::1] g, double[::1] em, double[::1] H) except -1:
        """Gradient g (n,), the EM step's curvature (n,) and -Hessian H (n, n) in log alpha and, if free, log beta."""
        cdef Py_ssize_t k = self.k, n = k + free, i, j
        cdef double[::1] B = room(k * k), gamma = self.gamma(), v = self.v
        cdef double trace = 0.0, squares = 0.0, moves = 0.0, moved, square, b, diagonal
        B[: k * k] = self.V
        if k:
            square_upper(<int>k, B)
        for j in range(k):
            for i in range(j):
                B[i * k + j] = B[j * k + i]
        # `evidence.prior_unit_hessian` with B = A^1/2 Sigma A^1/2
        for j in range(k):
            moved = square = 0.0
            for i in range(k):
                b = B[j * k + i]
                moved += b * v[i]
                square += b * b
                H[j * n + i] = -(v[i] * v[j] * b + 0.5 * b * b)
            diagonal = B[j * k + j]
            moved *= v[j]
            square *= 0.5
            H[j * n + j] += 0.5 * (v[j] * v[j] + diagonal)
            g[j] = 0.5 * (gamma[j] - v[j] * v[j])
            em[j] = 0.5 * (v[j] * v[j] + self.shrinkage[j])
            if free:
                H[j * n + k] = H[k * n + j] = -(0.5 * diagonal - moved - square)
            trace += diagonal
            squares += square
            moves += moved
        if free:
            g[k] = g_beta
            em[k] = 0.5 * self.frame.n_samples
            H[k * n + k] = self.frame.prior_d * self.beta - (
                squares - 0.5 * (trace + self.beta * self.residual) + moves
            )
        return 0

    cdef Model newton(self, int free, double[::1] g, double[::1] em, double[::1] H, bint rough, double ceiling,
                      double* damping, double* promised):
        """The model after one step, damped towards the expectation-maximisation step until the objective does not fall.

        None where no step helps.
        """
        cdef Py_ssize_t k = self.k, n = k + free, i, turn
        cdef double[::1] memory = room(n * n + n), damped = memory[: n * n], step = memory[n * n :], alpha
        cdef double longest, beta
        cdef Model moved
        for turn in range(MAX_DAMPINGS):
            damped[:] = H
            step[:] = g
            for i in range(n):
                damped[i * n + i] += damping[0] * em[i]
            if solve(<int>n, damped, step) == 0:
                longest = 0.0
                for i in range(n):
                    longest = fmax(longest, fabs(step[i]))
                if longest > LONGEST_STEP:
                    for i in range(n):
                        step[i] *= LONGEST_STEP / longest
                beta = self.beta
                if free:
                    beta = fmin(fmax(beta * exp(step[k]), 1.0 / ceiling), 1.0 / self.frame.noise_floor)
                    beta = coarse(beta, BETA_BITS) if rough else beta
                alpha = room(k)
                for i in range(k):
                    alpha[i] = self.alpha[i] * exp(step[i])
                    if rough:
                        alpha[i] = coarse(alpha[i], ALPHA_BITS)
                moved = make(self.frame, self.active, alpha, <int>k, beta, self.atom)
                if not_lower(moved.objective, self.objective):
                    promised[0] = 0.5 * dot(g, step, n)
                    damping[0] = 0.5 * damping[0] if damping[0] > LEAST_DAMPING else 0.0
                    return moved
            damping[0] = fmax(LEAST_DAMPING, 2.0 * damping[0])
        return None

    cdef Model relaxed(self, int steps, bint hold, double min_gain, double ceiling):
        cdef Model m = self, moved
        cdef double damping = 0.0, promised = 0.0, total, g_beta, old
        cdef double[::1] gamma, memory
        cdef Py_ssize_t turn, i, n
        cdef int free
        hold = hold or self.frame.fixed_noise
        for turn in range(steps):
            m = m.pruned()
            gamma, total = m.gamma(), 0.0
            for i in range(m.k):
                total += gamma[i]
            g_beta = 0.5 * (m.frame.n_samples - m.beta * m.residual - total)  # T01 eq. (45)
            g_beta += m.frame.prior_c - m.frame.prior_d * m.beta
            free = not hold and (m.beta < 1.0 / m.frame.noise_floor if g_beta > 0.0 else m.beta * ceiling > 1.0)
            n = m.k + free
            if not n:
                break
            memory = room(n * (n + 2))  # the gradient, the curvature of EM's step, the Hessian
            m.derivatives(free, g_beta, memory[:n], memory[n : 2 * n], memory[2 * n :])
            moved = m.newton(free, memory[:n], memory[n : 2 * n], memory[2 * n :], min_gain > 0.0, ceiling, &damping,
                             &promised)
            if moved is None:
                break
            old, m = m.objective, moved
            if promised < fmax(min_gain, SLACK * fmax(1.0, fabs(old))):
                break
        return m.pruned()

    def relax(self, int steps, bint hold_noise=False, double min_gain_nats=0.0, double ceiling=INFINITY):
        """The model after at most ``steps`` Newton steps on (log alpha, log beta); atoms leave on the way.

        Ends early where the quadratic model expects less than ``min_gain_nats``, or rounding, from the next step; where
        that is positive the results are coarse. The noise variance does not rise above ``ceiling``.
        """
        with self.frame.lock:
            return self.here().relaxed(steps, hold_noise, min_gain_nats, ceiling)

    # ------------------------------------------------------------ additions

    cdef Scan scanned(self):
        """The statistics of all atoms, as differences: S of atoms that the model nearly spans has no digits."""
        cdef Frame frame = self.frame
        cdef Py_ssize_t M = frame.M, k = self.k, f = self.f, i, j, later = frame.size - f
        cdef Scan scan = Scan()
        cdef double[::1] memory = room(M * (k + 3))
        cdef double[::1] S = memory[:M], Q = memory[M : 2 * M], T = memory[3 * M :]
        scan.S, scan.Q, scan.gain, scan.T = S, Q, memory[2 * M : 3 * M], T
        S[:M] = frame.unit
        Q[:M] = frame.Q_left
        matmul(b"N", b"N", <int>M, <int>k, <int>f, 1.0, frame.P, self.leverage(), 0.0, T)
        for i in range(k):
            for j in range(M):
                S[j] -= T[i * M + j] * T[i * M + j]
        matvec(b"N", <int>M, <int>f, 1.0, frame.P, self.remainder, 1.0, Q)
        if later > 0:  # the frame has grown since: there the model has no part
            matvec(b"N", <int>M, <int>later, 1.0, frame.P[f * M :], frame.z[f:], 1.0, Q)
        for j in range(M):
            S[j] = 0.0 if S[j] < LEAST_S else S[j] * self.beta
            Q[j] *= self.beta
            scan.gain[j] = gain_add(S[j], Q[j])
        self.refuse(scan)
        return scan

    cdef int[::1] crowd(self):
        """How many atoms of the model each atom (M,) is a near-copy of."""
        cdef int[::1] found = room_of_integers(self.frame.M)
        cdef const int[::1] near
        cdef Py_ssize_t i, j
        for i in range(self.k):
            near = self.frame.near_copies(self.active[i])
            for j in range(near.shape[0]):
                found[near[j]] += 1
        return found

    cdef int refuse(self, Scan scan) except -1:
        """No gain of atoms of the model, nor of their near-copies below the price."""
        cdef int[::1] crowd = self.crowd()
        cdef Py_ssize_t i
        for i in range(self.frame.M):
            if crowd[i] and not scan.gain[i] > self.frame.near_price:
                scan.gain[i] = 0.0
        for i in range(self.k):
            scan.gain[self.active[i]] = 0.0
        return 0

    cdef unsigned char[::1] outside(self):
        """Which atoms (M,) are neither zero nor in the model."""
        cdef unsigned char[::1] found = np.asarray(self.frame.unit).astype(np.uint8)
        cdef Py_ssize_t i
        for i in range(self.k):
            found[self.active[i]] = 0
        return found

    cdef int refine(self, Scan scan) except -1:
        """S, Q and gain of the atoms outside that the model nearly spans, without differences of equal numbers.

        With [X; I] = Q U the model leaves of a column p (in the frame) the part of [p; 0] outside Q, and of its part
        outside the frame all: S / beta is the squared length of both, Q / beta their product with those of the target.
        """
        cdef Frame frame = self.frame
        cdef Py_ssize_t M = frame.M, n = frame.n, k = self.k, f = self.f, F = frame.size, rows = f + k, i, j, r
        cdef Py_ssize_t start, width, count
        cdef int[::1] near
        cdef unsigned char[::1] outside
        cdef double[::1] packed, tau, z, C, V, work
        cdef double S, Q
        outside, near, count = self.outside(), room_of_integers(M), 0  # the model's own atoms stay as they are
        for j in range(M):
            if outside[j] and scan.S[j] < CLOSE * self.beta:
                near[count] = <int>j
                count += 1
        if not (k and count):
            return 0
        packed, tau = (self.packed, self.tau) if self.large else self.reflections()
        z = room(rows)
        z[:f] = frame.z[:f]
        reflect(b"T", <int>rows, <int>k, 1, packed, tau, z)
        for start in range(0, count, REFINED_AT_ONCE):
            PyErr_CheckSignals()
            width = min(REFINED_AT_ONCE, count - start)
            V = frame.columns(near[start:], <int>width)
            work = room(F * width)
            frame.remove(<int>F, <int>width, V, work)
            frame.remove(<int>F, <int>width, V, work)
            C = room(rows * width)
            for i in range(width):
                for r in range(f):
                    C[i * rows + r] = frame.P[r * M + near[start + i]]
            reflect(b"T", <int>rows, <int>k, <int>width, packed, tau, C)
            for i in range(width):
                j = near[start + i]
                S, Q = dot(V[i * n :], V[i * n :], n), dot(V[i * n :], frame.left, n)
                for r in range(k, rows):
                    S += C[i * rows + r] * C[i * rows + r]
                    Q += C[i * rows + r] * z[r]
                for r in range(f, F):
                    S += frame.P[r * M + j] * frame.P[r * M + j]
                    Q += frame.P[r * M + j] * frame.z[r]
                scan.S[j] = S * self.beta
                scan.Q[j] = Q * self.beta
                scan.gain[j] = gain_add(scan.S[j], scan.Q[j])
        self.refuse(scan)
        return 0

    cdef Scan refined(self):
        """The statistics of all atoms, with all their digits."""
        cdef Scan scan = self.scanned()
        self.refine(scan)
        return scan

    cdef list choose(self, Scan scan, int first, int most):
        """The best atom and further good ones that hardly overlap with it or each other in the metric C^-1."""
        cdef Frame frame = self.frame
        cdef Py_ssize_t M = frame.M, n = frame.n, a, b, i, j, r, count
        cdef int[::1] near
        cdef double[::1] C, gain
        cdef double overlap
        cdef list kept = [0]
        if most == 1:
            return [first]
        near, gain, count = room_of_integers(min(M, BATCH_CANDIDATES * most)), room(M), 0
        gain[:] = scan.gain
        while count < near.shape[0]:
            j = best(gain, frame.order, <int>M)
            if j < 0 or not gain[j] >= BATCH_GAIN_SHARE * scan.gain[first]:
                break
            near[count], gain[j] = <int>j, -INFINITY
            count += 1
        C = frame.columns(near, <int>count)
        for a in range(1, count):
            j = near[a]
            for b in kept:
                i = near[b]
                overlap = dot(C[a * n :], C[b * n :], n)
                if fabs(overlap) > NEAR:
                    break
                for r in range(self.k):  # phi_i' C^-1 phi_j / beta
                    overlap -= scan.T[r * M + i] * scan.T[r * M + j]
                if not fabs(overlap) <= MAX_BATCH_CORRELATION * sqrt(scan.S[i] * scan.S[j]) / self.beta:
                    break
            else:
                kept.append(a)
            if len(kept) == most:
                break
        return [near[a] for a in kept]

    cdef Model with_atoms(self, list chosen, Scan scan):
        """The model with more atoms, each at its optimal precision."""
        cdef int k = self.k, count = <int>len(chosen), i, j
        cdef int[::1] active = room_of_integers(k + count)
        cdef double[::1] alpha = room(k + count)
        cdef double S, Q
        for i in range(k):
            active[i], alpha[i] = self.active[i], self.alpha[i]
        for i in range(count):
            j = chosen[i]
            S, Q = scan.S[j], scan.Q[j]
            active[k + i], alpha[k + i] = j, coarse(S * S / (Q * Q - S), ALPHA_BITS)  # TF03 eq. (20)
        return make(self.frame, active, alpha, k + count, self.beta, chosen[0])

    cdef Model grown(self, Scan scan, int most, double tol, bint hold, double ceiling):
        """The model with the most useful atoms; None where the exact evidence refutes what the scan promises."""
        cdef Model grown
        cdef Py_ssize_t turn
        cdef int first
        cdef list chosen
        for turn in range(MAX_REFUTED):
            first = best(scan.gain, self.frame.order, self.frame.M)
            if first < 0 or not scan.gain[first] > tol:
                break
            chosen = self.choose(scan, first, most)
            while chosen:
                grown = self.with_atoms(chosen, scan)
                if grown.objective > self.objective:
                    grown = grown.relaxed(1, hold, MIN_NEWTON_GAIN_NATS, ceiling)
                    if grown.k <= self.k:  # atoms took the place of others: such steps come in long chains
                        grown = grown.relaxed(10, hold, MIN_NEWTON_GAIN_NATS, ceiling)
                    if grown.objective > self.objective + 0.1 * tol:
                        return grown
                chosen = chosen[: len(chosen) // 2]
            scan.gain[first] = 0.0
        return None

    def grow(self, int batch, double tol, bint hold_noise=False, double ceiling=INFINITY, double apart=0.0):
        """Add the most useful atoms, then one Newton step; None where no addition gains more than tol.

        Atoms of which less than a part ``apart`` (squared) lies outside the model, in the metric C^-1, do not enter.
        """
        cdef Model m, grown
        cdef Scan scan
        cdef Py_ssize_t j
        cdef int[::1] crowd
        with self.frame.lock:
            m = self.here()
            scan = m.scanned()
            if hold_noise:  # gains under a noise that is held at a fifth promise five times as much
                crowd = m.crowd()
                for j in range(m.frame.M):
                    if crowd[j] and not scan.gain[j] > 5.0 * m.frame.near_price:
                        scan.gain[j] = 0.0
            if apart > 0.0:
                for j in range(m.frame.M):
                    if scan.S[j] < apart * m.beta:
                        scan.gain[j] = 0.0
            grown = m.grown(scan, max(batch, m.k // 8) if batch > 1 else 1, tol, hold_noise, ceiling)
            if grown is None and apart == 0.0:
                m.refine(scan)
                grown = m.grown(scan, 1, tol, hold_noise, ceiling)
            return grown

    def scan(self):
        """S, Q (M,) of TF03 eq. (22) and the gains (M,) of additions, with all their digits; 0 for near-copies."""
        cdef Model m
        cdef Scan scan
        with self.frame.lock:
            m = self.here()
            scan = m.refined()
        M = m.frame.M
        return np.asarray(scan.S)[:M], np.asarray(scan.Q)[:M], np.asarray(scan.gain)[:M]

    # ------------------------------------------------------------ exchanges

    cdef tuple best_exchanges(self):
        """For each atom of the model the gain of the best exchange; with the atom that enters, its S and Q without the other."""
        cdef Frame frame = self.frame
        cdef Scan scan = self.refined()
        cdef Py_ssize_t M = frame.M, k = self.k, i, j, r, found
        cdef double[::1] cross = room(M * k), root = room(k * k), ratio = room(M), c
        cdef list offers = []
        cdef unsigned char[::1] outside = self.outside()
        cdef int[::1] crowd = self.crowd()
        cdef const int[::1] near
        cdef double variance, mean, top, tie, S, Q, overlap, gain
        # cross = Sigma Phi_a' B Phi = beta^1/2 root T, its transpose here (M, k)
        cross[: M * k] = scan.T[: M * k]
        for j in range(k):
            for i in range(j + 1):
                root[j * k + i] = sqrt(self.beta / self.alpha[i]) * self.V[j * k + i]
        times_upper(b"T", <int>M, <int>k, root, cross)
        for i in range(k):
            variance, mean = self.shrinkage[i] / self.alpha[i], self.v[i] / sqrt(self.alpha[i])
            c, near = cross[i * M : (i + 1) * M], frame.near_copies(self.active[i])
            for j in range(near.shape[0]):  # of what leaves, none of what stays
                crowd[near[j]] -= 1
            while True:
                top = 0.0
                for j in range(M):  # TF03 A.4: what leaves is added to S and Q
                    S = scan.S[j] + c[j] * c[j] / variance
                    Q = scan.Q[j] + c[j] * (mean / variance)
                    ratio[j] = Q * Q / S if outside[j] and S > 0.0 else 0.0
                    if crowd[j] and not gain_add(S, Q) > frame.near_price:
                        ratio[j] = 0.0
                    top = fmax(top, ratio[j])
                found = -1
                tie = fmin(TIE * top, fmax(2.0 * EXCHANGE_TIE_NATS, RATIO_ROUNDING * top))
                for j in range(M):
                    if ratio[j] >= top - tie and (found < 0 or frame.order[j] < frame.order[found]):
                        found = j
                if not top > 0.0 or found < 0:
                    offers.append((-INFINITY, self.active[i], 1.0, 1.0))
                    break
                S, Q = scan.S[found] + c[found] * c[found] / variance, scan.Q[found] + c[found] * (mean / variance)
                gain = gain_add(S, Q) + self.gain_delete(i)
                overlap = 0.0
                for r in range(frame.size):
                    overlap += frame.P[r * M + found] * frame.P[r * M + self.active[i]]
                if fabs(overlap) <= COPIED or gain > MAX_COPY_GAIN_NATS:
                    offers.append((gain, found, S, Q))
                    break
                outside[found] = 0  # a copy of the atom that leaves hides those that would gain
            for j in range(near.shape[0]):
                crowd[near[j]] += 1
        return np.array([offer[0] for offer in offers]), offers

    cdef Model exchanged(self, Py_ssize_t i, tuple offer):
        """The model after the exchange of its i-th atom."""
        cdef int[::1] active = room_of_integers(self.k)
        cdef double[::1] alpha = room(self.k)
        cdef double S = offer[2], Q = offer[3]
        active[:] = self.active[: self.k]
        alpha[:] = self.alpha[: self.k]
        # where the entering atom alone would not stay, start it in the prior's reach and let Newton decide
        active[i], alpha[i] = offer[1], coarse(S * S / fmax(Q * Q - S, 1e-3 * S), ALPHA_BITS)
        return make(self.frame, active, alpha, self.k, self.beta, active[i])

    def exchange(self, double tol):
        """Exchange one atom of the model for another outside (TF03 6.2), the precisions re-estimated after.

        The pairs of largest gain, one for each leaving atom, are tried in turn, the first that gains more than tol is kept.
        """
        cdef Model m, swapped
        cdef Py_ssize_t i
        with self.frame.lock:
            m = self.here()
            gains, offers = m.best_exchanges()
            for _ in range(min(m.k, MAX_EXCHANGES)):
                i = best(gains, np.asarray(m.frame.order)[m.atoms], m.k, EXCHANGE_TIE_NATS)
                if i < 0 or not gains[i] >= MIN_EXCHANGE_GAIN_NATS:
                    break
                gains[i] = -INFINITY
                swapped = m.exchanged(i, offers[i]).relaxed(2, False, tol, INFINITY)
                if swapped.objective > m.objective + tol:
                    return swapped.relaxed(30, False, tol, INFINITY)
        return None

    def exchanges(self):
        """The best exchange of every atom: gains (k,), and a function that makes the i-th."""
        cdef Model m
        with self.frame.lock:
            m = self.here()
            gains, offers = m.best_exchanges()

        def exchanged(Py_ssize_t i):
            with m.frame.lock:
                return m.exchanged(i, offers[i])

        return gains, exchanged

    # ------------------------------------------------------------ for Python

    def trim(self):
        """The model in a frame without what it no longer needs."""
        with self.frame.lock:
            if self.frame.size > 1.5 * self.k + 48:
                self.frame.start()
            return self.here()

    @property
    def size(self):
        """Number of atoms k."""
        return self.k

    @property
    def atoms(self):
        """Atoms (k,)."""
        return np.asarray(self.active)[: self.k].astype(np.intp)

    @property
    def precisions(self):
        """Weight precisions (k,)."""
        return np.asarray(self.alpha)[: self.k]

    def gram(self):
        """Inner products (k, k) of the atoms of the model."""
        cdef Model m
        with self.frame.lock:
            m = self.here()
            full = as_array(m.frame.load(m.active, m.k).gram, m.k, m.k)  # nothing below the diagonal
            return full + full.T - np.diag(full.diagonal())

    def posterior(self):
        """The posterior, in the coordinates of the frame."""
        cdef Model m
        with self.frame.lock:
            m = self.here()
        k, f = m.k, m.f
        basis = Reflections(as_array(m.packed, f + k, k), np.asarray(m.tau)[:k]) if m.large else None
        log_evidence = m.objective - m.frame.prior_c * log(m.beta) + m.frame.prior_d * m.beta
        return Posterior(
            self.precisions, m.beta, np.asarray(m.v), np.triu(as_array(m.V, k, k)), m.residual, log_evidence,
            m.frame.n_samples, as_array(m.X, f, k), np.asarray(m.remainder), basis,
        )


cdef int best(double[::1] gain, const long long[::1] order, int M, double tie=TIE) except -2:
    """Index of the largest gain; among equals the lowest in order; -1 where no gain is a number."""
    cdef double largest = -INFINITY, least
    cdef int first = -1, j
    for j in range(M):
        if gain[j] > largest:
            largest = gain[j]
    least = largest - tie * fmax(1.0, largest)
    for j in range(M):
        if gain[j] >= least and (first < 0 or order[j] < order[first]):
            first = j
    return first
