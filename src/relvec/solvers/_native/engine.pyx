# distutils: language = c++
"""The search of `engine.h` for a problem in memory: one call, with the interpreter free while it runs."""

from cpython.exc cimport PyErr_CheckSignals
from libcpp cimport bool as cbool
from libcpp.vector cimport vector
from libc.stdint cimport uint64_t

from scipy.linalg cimport cython_blas as blas
from scipy.linalg cimport cython_lapack as lapack

import numpy as np

from relvec.inference.evidence import MAX_CORRELATION, near_copy_price


cdef extern from "engine.h" namespace "relvec" nogil:
    cdef struct Blas:
        void* dgemv
        void* dtrsv
        void* dtrsm
        void* dtrmm
        void* dpotrf
        void* dpotri
        void* dpotrs
        void* dtrtri

    cdef cppclass Settings:
        double tol, tol_of_many
        int large_model
        double noise_floor, noise_start
        cbool fixed_noise
        double prior_c, prior_d, near_correlation, near_price
        int prior
        double price, least_price
        int max_functions, restarts, batch, noise_every
        cbool exchange, thorough
        int max_steps
        double seconds
        uint64_t seed
        cbool watched

    cdef cppclass Step:
        int action, atom, size
        double objective, noise

    cdef cppclass CModel "relvec::Model":
        vector[int] atoms
        vector[double] alpha
        double beta, objective

    ctypedef int (*Fetch)(void*, const int*, int, double*) noexcept nogil
    ctypedef int (*Tick)(void*, int, double, double) noexcept nogil

    cdef cppclass CEngine "relvec::Engine":
        vector[Step] history
        CModel model
        double largest
        cbool sure
        CEngine(Blas&, Settings&, int, double, double, const double*, const double*, const long long*, int, Fetch, Tick,
                void*) except +
        int run(const int*, const double*, int, double) except +


cdef extern from *:
    """
    template <class F> static inline void set_function(F& to, void* from) { to = reinterpret_cast<F>(from); }
    static inline relvec::Blas table_of(void** f) {
      relvec::Blas b;
      set_function(b.dgemv, f[0]); set_function(b.dtrsv, f[1]); set_function(b.dtrsm, f[2]);
      set_function(b.dtrmm, f[3]); set_function(b.dpotrf, f[4]); set_function(b.dpotri, f[5]);
      set_function(b.dpotrs, f[6]); set_function(b.dtrtri, f[7]);
      return b;
    }
    """
    Blas table_of(void**) nogil

ACTIONS = ("start", "add", "reestimate", "delete", "exchange", "restart")
ENDED = ("done", "stopped", "late", "max_steps", "no_digits", "failed")
PRIORS = ("flat", "size", "constant")


cdef class Gram:
    """Columns of Phi'Phi of a design, and what is asked while the engine runs."""

    cdef object design, watch, error
    cdef const double[::1] phi
    cdef cbool dense, by_rows
    cdef int n, M

    def __init__(self, design, watch):
        self.design, self.watch, self.error = design, watch, None
        self.n, self.M = design.n_rows, design.n_atoms
        matrix = design.matrix
        self.dense = (
            matrix is not None and matrix.dtype == float and (matrix.flags.c_contiguous or matrix.flags.f_contiguous)
        )
        if self.dense:
            self.by_rows = matrix.flags.c_contiguous
            self.phi = (matrix if self.by_rows else matrix.T).reshape(-1)

    cdef int fetch(self, const int* atoms, int count, double* into) noexcept nogil:
        cdef double one = 1.0, zero = 0.0
        cdef int step = 1, i, row
        cdef double* phi
        cdef vector[double] own
        if not self.dense:
            return self.ask(atoms, count, into)
        phi = <double*>&self.phi[0]
        if count == 1 and self.by_rows:
            blas.dgemv(b"N", &self.M, &self.n, &one, phi, &self.M, phi + atoms[0], &self.M, &zero, into, &step)
        elif count == 1:
            blas.dgemv(b"T", &self.n, &self.M, &one, phi, &self.n, phi + <Py_ssize_t>atoms[0] * self.n, &step, &zero,
                       into, &step)
        else:
            own.resize(<size_t>self.n * count)
            for i in range(count):
                for row in range(self.n):
                    own[<size_t>i * self.n + row] = phi[self.place(row, atoms[i])]
            blas.dgemm(b"N" if self.by_rows else b"T", b"N", &self.M, &count, &self.n, &one, phi,
                       &self.M if self.by_rows else &self.n, own.data(), &self.n, &zero, into, &self.M)
        return 0

    cdef inline Py_ssize_t place(self, int row, int atom) noexcept nogil:
        return <Py_ssize_t>row * self.M + atom if self.by_rows else <Py_ssize_t>atom * self.n + row

    cdef int ask(self, const int* atoms, int count, double* into) noexcept with gil:
        cdef double[:, ::1] found
        cdef int i, j
        try:
            columns = self.design.columns([atoms[i] for i in range(count)])
            found = np.ascontiguousarray(self.design.project(columns), dtype=float)
            for i in range(count):
                for j in range(self.M):
                    into[<Py_ssize_t>i * self.M + j] = found[i, j]
        except BaseException as error:
            self.error = error
            return 1
        return 0

    cdef int tick(self, int size, double objective, double gain) noexcept with gil:
        try:
            PyErr_CheckSignals()
            return 1 if size >= 0 and self.watch is not None and self.watch(size, objective, gain) else 0
        except BaseException as error:
            self.error = error
            return 1


cdef int fetch(void* context, const int* atoms, int count, double* into) noexcept nogil:
    return (<Gram>context).fetch(atoms, count, into)


cdef int tick(void* context, int size, double objective, double gain) noexcept nogil:
    with gil:
        return (<Gram>context).tick(size, objective, gain)


def search(problem, start, int restarts, cbool exchange, cbool thorough, int max_steps, double seconds, str prior,
           double price, double least_price, int max_functions, int large_model, watch=None, int batch=0,
           int noise_every=1):
    """Search from a model (atoms, precisions, noise precision).

    Returns how that ended (one of `ENDED`), atoms, precisions, noise precision, objective, the largest gain of a single
    move that is left, whether all of that has digits, and the steps as tuples (action, atom, size, objective, noise).
    """
    cdef Gram gram = Gram(problem.design, watch)
    cdef Settings s
    cdef double[::1] q0 = np.ascontiguousarray(problem.design.project(problem.target[:, None])[0], dtype=float)
    cdef double[::1] unit = (problem.design.scale > 0.0).astype(float)
    cdef const long long[::1] order = np.ascontiguousarray(problem.order, dtype=np.int64)
    cdef int[::1] atoms = np.append(start[0], 0).astype(np.intc)
    cdef double[::1] alpha = np.append(np.asarray(start[1], dtype=float), 0.0)
    cdef double tt = float(problem.target @ problem.target) + problem.target_norm2_outside, beta = start[2]
    cdef int k = <int>len(start[0]), ended, M = gram.M
    cdef void* table[8]
    cdef CEngine* engine
    if q0.shape[0] != M or unit.shape[0] != M or order.shape[0] != M:
        raise ValueError("the arrays of a problem do not fit each other")
    if k and not 0 <= min(start[0]) <= max(start[0]) < M:
        raise IndexError("there is no such atom")
    s.tol = problem.tol
    s.tol_of_many = problem.tol if problem.tol_of_many is None else problem.tol_of_many
    s.large_model = large_model
    s.noise_floor, s.noise_start, s.fixed_noise = problem.noise_floor, problem.noise_start, problem.fixed_noise
    s.prior_c, s.prior_d = problem.prior.c, problem.prior_d
    s.near_correlation, s.near_price = MAX_CORRELATION, near_copy_price(M)
    s.prior, s.price, s.least_price, s.max_functions = PRIORS.index(prior), price, least_price, max_functions
    s.restarts, s.exchange, s.max_steps, s.seconds = restarts, exchange, max_steps, seconds
    s.thorough = thorough
    s.batch, s.noise_every = batch, noise_every
    s.seed = int(problem.rng.integers(2**62)) if restarts > 3 else 0
    s.watched = watch is not None
    table[0], table[1], table[2] = <void*>blas.dgemv, <void*>blas.dtrsv, <void*>blas.dtrsm
    table[3], table[4], table[5] = <void*>blas.dtrmm, <void*>lapack.dpotrf, <void*>lapack.dpotri
    table[6], table[7] = <void*>lapack.dpotrs, <void*>lapack.dtrtri
    engine = new CEngine(table_of(table), s, M, problem.n_samples, tt, &q0[0], &unit[0], &order[0], problem.bias, fetch,
                         tick, <void*>gram)
    try:
        with nogil:
            ended = engine.run(&atoms[0], &alpha[0], k, beta)
        if gram.error is not None:
            raise gram.error
        k = <int>engine.model.atoms.size()
        return (
            ENDED[ended],
            np.array([engine.model.atoms[i] for i in range(k)], dtype=np.intp),
            np.array([engine.model.alpha[i] for i in range(k)], dtype=float),
            engine.model.beta,
            engine.model.objective,
            engine.largest,
            bool(engine.sure),
            [(ACTIONS[step.action], step.atom, step.size, step.objective, step.noise) for step in engine.history],
        )
    finally:
        del engine
