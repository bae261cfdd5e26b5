"""BLAS and LAPACK of SciPy on dense matrices stored by columns, each as long as its shape says: the extents of every
operand are checked, and other threads of Python run during the products.
"""

from libc.math cimport isfinite

from scipy.linalg cimport cython_blas as blas
from scipy.linalg cimport cython_lapack as lapack

from relvec.solvers._native.memory cimport room

cdef inline double* at(const double[::1] array, Py_ssize_t count) except NULL:
    """Where ``count`` numbers begin."""
    if array.shape[0] < max(count, 1):
        raise IndexError(f"an array of {array.shape[0]} numbers where {count} are needed")
    return <double*>&array[0]


cdef inline double dot(const double[::1] a, const double[::1] b, Py_ssize_t n) except? -7.25:
    cdef int count = <int>n, one = 1
    return blas.ddot(&count, at(a, n), &one, at(b, n), &one) if n else 0.0


cdef inline int matvec(
    char* t, int m, int n, double alpha, const double[::1] A, const double[::1] x, double beta, double[::1] y
) except -1:
    """y = alpha op(A) x + beta y, for A (m, n)."""
    cdef int one = 1
    if not (m and n):
        return 0
    cdef double* a = at(A, <Py_ssize_t>m * n)
    cdef double* from_ = at(x, n if t[0] == b"N" else m)
    cdef double* to = at(y, m if t[0] == b"N" else n)
    with nogil:
        blas.dgemv(t, &m, &n, &alpha, a, &m, from_, &one, &beta, to, &one)
    return 0


cdef inline int matmul(
    char* ta, char* tb, int m, int n, int k, double alpha, const double[::1] A, const double[::1] B, double beta,
    double[::1] C,
) except -1:
    """C (m, n) = alpha op(A) op(B) + beta C, with op(A) (m, k)."""
    cdef int lda = m if ta[0] == b"N" else k, ldb = k if tb[0] == b"N" else n
    if not (m and n and k):
        return 0
    if n == 1 and tb[0] == b"N":  # dgemm copies A first, which takes twice as long as the product
        return matvec(ta, lda, k if ta[0] == b"N" else m, alpha, A, B, beta, C)
    cdef double* a = at(A, <Py_ssize_t>m * k)
    cdef double* b = at(B, <Py_ssize_t>k * n)
    cdef double* c = at(C, <Py_ssize_t>m * n)
    with nogil:
        blas.dgemm(ta, tb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &m)
    return 0


cdef inline int gram(int k, int n, double alpha, const double[::1] A, double beta, double[::1] C) except -1:
    """C (k, k) = alpha A'A + beta C for A (n, k), its upper half."""
    if not (k and n):
        return 0
    cdef double* a = at(A, <Py_ssize_t>k * n)
    cdef double* c = at(C, <Py_ssize_t>k * k)
    with nogil:
        blas.dsyrk(b"U", b"T", &k, &n, &alpha, a, &n, &beta, c, &k)
    return 0


cdef inline int times_upper(char* t, int m, int k, const double[::1] U, double[::1] B) except -1:
    """B = B op(U) for B (m, k) and an upper triangular U (k, k)."""
    cdef double one = 1.0
    if not (m and k):
        return 0
    cdef double* u = at(U, <Py_ssize_t>k * k)
    cdef double* b = at(B, <Py_ssize_t>m * k)
    with nogil:
        blas.dtrmm(b"R", b"U", t, b"N", &m, &k, &one, u, &k, b, &m)
    return 0


cdef inline int upper_times(char* t, int k, const double[::1] U, double[::1] x) except -1:
    """x = op(U) x for an upper triangular U (k, k)."""
    cdef int one = 1
    if k:
        blas.dtrmv(b"U", t, b"N", &k, at(U, <Py_ssize_t>k * k), &k, at(x, k), &one)
    return 0


cdef inline int cholesky(int k, double[::1] A) except -1:
    """A = U with U'U = A, its upper half; what LAPACK says: 0 where A is positive definite."""
    cdef int info
    cdef double* a = at(A, <Py_ssize_t>k * k)
    with nogil:
        lapack.dpotrf(b"U", &k, a, &k, &info)
    return abs(info)


cdef inline int invert_upper(int k, double[::1] U) except -1:
    """U = U^-1; 0 where there is one."""
    cdef int info
    cdef double* u = at(U, <Py_ssize_t>k * k)
    with nogil:
        lapack.dtrtri(b"U", b"N", &k, u, &k, &info)
    return abs(info)


cdef inline int square_upper(int k, double[::1] U) except -1:
    """U = U U', its upper half."""
    cdef int info
    cdef double* u = at(U, <Py_ssize_t>k * k)
    with nogil:
        lapack.dlauum(b"U", &k, u, &k, &info)
    return 0


cdef inline int solve_factored(int k, const double[::1] U, double[::1] x) except -1:
    """x = (U'U)^-1 x for an upper triangular U (k, k)."""
    cdef int info, one = 1
    lapack.dpotrs(b"U", &k, &one, at(U, <Py_ssize_t>k * k), &k, at(x, k), &k, &info)
    return abs(info)


cdef inline int solve(int k, double[::1] A, double[::1] x) except -1:
    """x = A^-1 x; 0 where A is positive definite and x finite. A is overwritten."""
    cdef int info = cholesky(k, A) or solve_factored(k, A, x), i
    for i in range(k):
        info = info or not isfinite(x[i])
    return info


cdef inline int factor_qr(int rows, int k, double[::1] A, double[::1] tau) except -1:
    """A (rows, k) becomes R and the reflections of A = Q R."""
    cdef int info, width = 64 * k
    cdef double* a = at(A, <Py_ssize_t>rows * k)
    cdef double* t = at(tau, k)
    cdef double[::1] work = room(width)
    with nogil:
        lapack.dgeqrf(&rows, &k, a, &rows, t, &work[0], &width, &info)
    return 0


cdef inline int form_q(int rows, int k, double[::1] A, const double[::1] tau) except -1:
    """The reflections in A (rows, k) become Q."""
    cdef int info, width = 64 * k
    cdef double* a = at(A, <Py_ssize_t>rows * k)
    cdef double* t = at(tau, k)
    cdef double[::1] work = room(width)
    with nogil:
        lapack.dorgqr(&rows, &k, &k, a, &rows, t, &work[0], &width, &info)
    return 0


cdef inline int reflect(
    char* t, int rows, int k, int count, const double[::1] A, const double[::1] tau, double[::1] C
) except -1:
    """C (rows, count) = op(Q) C for the whole Q (rows, rows) of the reflections in A (rows, k)."""
    cdef int info, width = 64 * count
    if not (rows and k and count):
        return 0
    cdef double* a = at(A, <Py_ssize_t>rows * k)
    cdef double* h = at(tau, k)
    cdef double* c = at(C, <Py_ssize_t>rows * count)
    cdef double[::1] work = room(width)
    with nogil:
        lapack.dormqr(b"L", t, &rows, &count, &k, a, &rows, h, c, &rows, &work[0], &width, &info)
    return 0
