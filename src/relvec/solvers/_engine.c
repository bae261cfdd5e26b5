/* The moves of the sequential method in C: what _frame.py, _newton.py and _moves.py do, without the interpreter.
 *
 * A Search holds the problem and the frame, a Model a support with its posterior. Same formulas, same constants and
 * same order of decisions as the modules named, whose docstrings explain them. Matrices are stored by columns. BLAS
 * and LAPACK are SciPy's, found when the module is imported, so that a C compiler is all it takes to build it.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEPENDENT 1e-11
#define COLLINEAR 1e-14
#define NORMAL_EQUATIONS_LIMIT 1e8
#define LONGEST 3.0
#define LEAST_DAMPING 3e-3
#define SLACK 1e-13
#define CLOSE 0.01
#define TIE 1e-9
#define WORTH 0.3
#define APART 0.3
#define TRIES 4
#define HOPELESS -1.0
#define REFUTED 16
#define COPY (1.0 - 1e-12)
#define LOG_2PI 1.8378770664093454836

/* ---------------------------------------------------------------- BLAS and LAPACK of SciPy */

typedef void (*gemm_t)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *,
                       double *, int *);
typedef void (*gemv_t)(char *, int *, int *, double *, double *, int *, double *, int *, double *, double *, int *);
typedef void (*syrk_t)(char *, char *, int *, int *, double *, double *, int *, double *, double *, int *);
typedef void (*trmm_t)(char *, char *, char *, char *, int *, int *, double *, double *, int *, double *, int *);
typedef void (*trmv_t)(char *, char *, char *, int *, double *, int *, double *, int *);
typedef void (*potrf_t)(char *, int *, double *, int *, int *);
typedef void (*trtri_t)(char *, char *, int *, double *, int *, int *);
typedef void (*posv_t)(char *, int *, int *, double *, int *, double *, int *, int *);
typedef void (*geqrf_t)(int *, int *, double *, int *, double *, double *, int *, int *);

static gemm_t dgemm;
static gemv_t dgemv;
static syrk_t dsyrk;
static trmm_t dtrmm;
static trmv_t dtrmv;
static potrf_t dpotrf, dlauum;
static trtri_t dtrtri;
static posv_t dposv;
static geqrf_t dgeqrf;

static double one = 1.0, zero = 0.0, minus_one = -1.0;
static int step1 = 1;

static void *find(PyObject *table, const char *name) {
    PyObject *capsule = PyMapping_GetItemString(table, name);
    if (!capsule) return NULL;
    const char *signature = PyCapsule_GetName(capsule);
    void *pointer = NULL;
    if (signature && strstr(signature, "void (") == signature && strstr(signature, ", int *") &&
        !strstr(signature, "blas_int"))
        pointer = PyCapsule_GetPointer(capsule, signature);
    else
        PyErr_Format(PyExc_ImportError, "SciPy's %s has an unknown signature", name);
    Py_DECREF(capsule);
    return pointer;
}

static int find_all(void) {
    PyObject *blas = PyImport_ImportModule("scipy.linalg.cython_blas");
    PyObject *lapack = blas ? PyImport_ImportModule("scipy.linalg.cython_lapack") : NULL;
    PyObject *b = lapack ? PyObject_GetAttrString(blas, "__pyx_capi__") : NULL;
    PyObject *l = b ? PyObject_GetAttrString(lapack, "__pyx_capi__") : NULL;
    int found = l && (dgemm = (gemm_t)find(b, "dgemm")) && (dgemv = (gemv_t)find(b, "dgemv")) &&
                (dsyrk = (syrk_t)find(b, "dsyrk")) && (dtrmm = (trmm_t)find(b, "dtrmm")) &&
                (dtrmv = (trmv_t)find(b, "dtrmv")) && (dpotrf = (potrf_t)find(l, "dpotrf")) &&
                (dlauum = (potrf_t)find(l, "dlauum")) && (dtrtri = (trtri_t)find(l, "dtrtri")) &&
                (dposv = (posv_t)find(l, "dposv")) && (dgeqrf = (geqrf_t)find(l, "dgeqrf"));
    Py_XDECREF(blas);
    Py_XDECREF(lapack);
    Py_XDECREF(b);
    Py_XDECREF(l);
    return found;
}

/* ---------------------------------------------------------------- memory: one allocator that ends in one error */

typedef struct {
    int failed; /* a number that is not finite, or no memory: every function returns at once */
} Health;

static void *room(Health *health, size_t count, size_t size) {
    void *p = calloc(count ? count : 1, size);
    if (!p) health->failed = 1;
    return p;
}

/* ---------------------------------------------------------------- the problem and its frame */

typedef struct {
    PyObject_HEAD
    Py_buffer phi_view;
    double *Phi;   /* n x M, by columns or by rows */
    int by_rows;   /* how Phi is stored */
    int n, M;
    double n_samples, noise_floor, outside, c, d;
    int fixed_noise;
    double *target; /* n */
    double *unit;   /* M: squared norms of the columns, 1 or 0 */
    int64_t *order; /* M */
    /* the frame: Q (n x f) orthonormal, P (M x f) with P' = Q' Phi, z = Q't */
    int f, capacity, version;
    double *Q, *P, *z, *left, *Q_left;
    char *held;
    double rest;
    /* the support last evaluated, in the frame: R (f x k) and its Gram matrix (upper half) */
    int R_k, R_f, R_version;
    int *R_active;
    double *R, *gram;
    Health health;
} Search;

typedef struct {
    int refs;
    int k, f, version;
    int *active;
    double *alpha;
    double beta, residual, objective;
    double *v, *V, *X, *remainder, *shrinkage;
    double *gamma, *leverage; /* NULL until asked for */
    int atom;
} Core;

static double *column(Search *s, int j, double *into) {
    if (s->by_rows)
        for (int i = 0; i < s->n; i++) into[i] = s->Phi[(size_t)i * s->M + j];
    else
        memcpy(into, s->Phi + (size_t)j * s->n, sizeof(double) * s->n);
    return into;
}

/* Y'Phi for Y (n x j): into (M x j) */
static void project(Search *s, double *Y, int j, double *into) {
    if (j == 1)
        dgemv(s->by_rows ? "N" : "T", s->by_rows ? &s->M : &s->n, s->by_rows ? &s->n : &s->M, &one, s->Phi,
              s->by_rows ? &s->M : &s->n, Y, &step1, &zero, into, &step1);
    else
        dgemm(s->by_rows ? "N" : "T", "N", &s->M, &j, &s->n, &one, s->Phi, s->by_rows ? &s->M : &s->n, Y, &s->n, &zero,
              into, &s->M);
}

static double dot(const double *a, const double *b, int n) {
    double total = 0.0;
    for (int i = 0; i < n; i++) total += a[i] * b[i];
    return total;
}

static void start_frame(Search *s) {
    s->f = 0;
    s->version++;
    memcpy(s->left, s->target, sizeof(double) * s->n);
    s->rest = dot(s->target, s->target, s->n) + s->outside;
    project(s, s->target, 1, s->Q_left);
    memset(s->held, 0, s->M);
}

static void reserve(Search *s, int size) {
    if (size <= s->capacity) return;
    int capacity = size > 2 * s->capacity ? size : 2 * s->capacity;
    double *Q = realloc(s->Q, sizeof(double) * capacity * s->n);
    if (Q) s->Q = Q;
    double *P = Q ? realloc(s->P, sizeof(double) * capacity * s->M) : NULL;
    if (P) s->P = P;
    double *z = P ? realloc(s->z, sizeof(double) * capacity) : NULL;
    if (z) s->z = z;
    if (z)
        s->capacity = capacity;
    else
        s->health.failed = 1;
}

/* v -= Q (Q'v) over some columns of the frame */
static void remove_part(Search *s, int first, int last, double *v, double *work) {
    int width = last - first;
    if (width <= 0) return;
    double *Q = s->Q + (size_t)first * s->n;
    dgemv("T", &s->n, &width, &one, Q, &s->n, v, &step1, &zero, work, &step1);
    dgemv("N", &s->n, &width, &minus_one, Q, &s->n, work, &step1, &one, v, &step1);
}

/* Frame.span */
static void span(Search *s, const int *atoms, int k) {
    int count = 0, n = s->n, first = s->f;
    int *fresh = room(&s->health, k, sizeof(int));
    if (!fresh) return;
    for (int i = 0; i < k; i++)
        if (!s->held[atoms[i]]) {
            s->held[atoms[i]] = 1;
            fresh[count++] = atoms[i];
        }
    if (count) reserve(s, s->f + count);
    double *V = count ? room(&s->health, (size_t)n * count, sizeof(double)) : NULL;
    double *work = count ? room(&s->health, (size_t)(first + count) * count, sizeof(double)) : NULL;
    if (count && !s->health.failed) {
        for (int i = 0; i < count; i++) column(s, fresh[i], V + (size_t)i * n);
        if (first) {
            for (int i = 0; i < count; i++)
                for (int r = 0; r < first; r++) work[(size_t)i * first + r] = s->P[(size_t)r * s->M + fresh[i]];
            dgemm("N", "N", &n, &count, &first, &minus_one, s->Q, &n, work, &first, &one, V, &n);
            dgemm("T", "N", &first, &count, &n, &one, s->Q, &n, V, &n, &zero, work, &first);
            dgemm("N", "N", &n, &count, &first, &minus_one, s->Q, &n, work, &first, &one, V, &n);
        }
        for (int i = 0; i < count; i++) {
            double *v = V + (size_t)i * n;
            remove_part(s, first, s->f, v, work);
            remove_part(s, first, s->f, v, work);
            double length = sqrt(dot(v, v, n));
            if (!(length >= DEPENDENT)) continue;
            for (int r = 0; r < n; r++) v[r] /= length;
            if (length < 1e-5) {
                remove_part(s, 0, s->f, v, work);
                length = sqrt(dot(v, v, n));
                for (int r = 0; r < n; r++) v[r] /= length;
            }
            memcpy(s->Q + (size_t)s->f * n, v, sizeof(double) * n);
            double z = dot(v, s->left, n);
            s->z[s->f] = z;
            for (int r = 0; r < n; r++) s->left[r] -= z * v[r];
            s->f++;
        }
        int grown = s->f - first;
        if (grown) {
            double *P = s->P + (size_t)first * s->M;
            project(s, s->Q + (size_t)first * n, grown, P);
            dgemv("N", &s->M, &grown, &minus_one, P, &s->M, s->z + first, &step1, &one, s->Q_left, &step1);
            s->rest = dot(s->left, s->left, n) + s->outside;
        }
    }
    free(fresh);
    free(V);
    free(work);
}

/* ---------------------------------------------------------------- models */

static void release(Core *m) {
    if (!m || --m->refs > 0) return;
    free(m->active);
    free(m->alpha);
    free(m->v);
    free(m->V);
    free(m->X);
    free(m->remainder);
    free(m->shrinkage);
    free(m->gamma);
    free(m->leverage);
    free(m);
}

/* R and its Gram matrix for a support, kept for the next model of the same support */
static void load_support(Search *s, const int *active, int k) {
    int f = s->f;
    if (s->R_k == k && s->R_f == f && s->R_version == s->version && s->R &&
        !memcmp(s->R_active, active, sizeof(int) * k))
        return;
    free(s->R_active);
    free(s->R);
    free(s->gram);
    s->R_active = room(&s->health, k, sizeof(int));
    s->R = room(&s->health, (size_t)f * k, sizeof(double));
    s->gram = room(&s->health, (size_t)k * k, sizeof(double));
    if (s->health.failed) return;
    memcpy(s->R_active, active, sizeof(int) * k);
    for (int r = 0; r < f; r++) {
        const double *P = s->P + (size_t)r * s->M;
        for (int i = 0; i < k; i++) s->R[(size_t)i * f + r] = P[active[i]];
    }
    if (k && f) dsyrk("U", "T", &k, &f, &one, s->R, &f, &zero, s->gram, &k);
    s->R_k = k;
    s->R_f = f;
    s->R_version = s->version;
}

/* U (upper, k x k) with U'U = I + X'X, _linalg.factor_ridge; U holds X'X (upper) when called */
static void factor(Search *s, Core *m, double *U) {
    int k = m->k, f = m->f, info = 1;
    double size = 0.0;
    for (int i = 0; i < k; i++) {
        double g = U[(size_t)i * k + i];
        if (!(g <= size)) size = g;
    }
    if (!isfinite(size)) {
        s->health.failed = 1;
        return;
    }
    if (size <= NORMAL_EQUATIONS_LIMIT) {
        for (int i = 0; i < k; i++) U[(size_t)i * k + i] += 1.0;
        dpotrf("U", &k, U, &k, &info);
        if (info == 0) return;
    }
    int rows = f + k, width = 64 * k;
    double *stacked = room(&s->health, (size_t)rows * k, sizeof(double));
    double *tau = room(&s->health, k, sizeof(double)), *work = room(&s->health, width, sizeof(double));
    if (!s->health.failed) {
        for (int i = 0; i < k; i++) {
            memcpy(stacked + (size_t)i * rows, m->X + (size_t)i * f, sizeof(double) * f);
            stacked[(size_t)i * rows + f + i] = 1.0;
        }
        dgeqrf(&rows, &k, stacked, &rows, tau, work, &width, &info);
        for (int i = 0; i < k; i++) {
            double sign = stacked[(size_t)i * rows + i] < 0.0 ? -1.0 : 1.0;
            for (int j = i; j < k; j++) U[(size_t)j * k + i] = sign * stacked[(size_t)j * rows + i];
        }
    }
    free(stacked);
    free(tau);
    free(work);
}

static double *leverage(Search *s, Core *m) {
    if (!m->leverage && (m->leverage = room(&s->health, (size_t)m->f * m->k, sizeof(double)))) {
        memcpy(m->leverage, m->X, sizeof(double) * m->f * m->k);
        if (m->k && m->f) dtrmm("R", "U", "N", "N", &m->f, &m->k, &one, m->V, &m->k, m->leverage, &m->f);
    }
    return m->leverage;
}

/* posterior.gaussian, in a frame that holds the atoms; m has active, alpha and beta */
static void evaluate(Search *s, Core *m) {
    int k = m->k, info = 0;
    load_support(s, m->active, k);
    int f = m->f = s->f;
    m->version = s->version;
    m->v = room(&s->health, k, sizeof(double));
    m->V = room(&s->health, (size_t)k * k, sizeof(double));
    m->X = room(&s->health, (size_t)f * k, sizeof(double));
    m->remainder = room(&s->health, f, sizeof(double));
    m->shrinkage = room(&s->health, k, sizeof(double));
    if (s->health.failed) return;
    double precision = sqrt(m->beta), widest = 0.0, log_det = 0.0;
    double *spread = m->shrinkage; /* for a while */
    for (int i = 0; i < k; i++) spread[i] = precision / sqrt(m->alpha[i]);
    for (int i = 0; i < k; i++) {
        const double *R = s->R + (size_t)i * f;
        double *X = m->X + (size_t)i * f;
        for (int r = 0; r < f; r++) X[r] = R[r] * spread[i];
        for (int j = 0; j <= i; j++) m->V[(size_t)i * k + j] = s->gram[(size_t)i * k + j] * spread[i] * spread[j];
    }
    if (k) {
        factor(s, m, m->V);
        if (s->health.failed) return;
        for (int i = 0; i < k; i++) {
            double u = m->V[(size_t)i * k + i];
            log_det += log(u);
            if (u > widest) widest = u;
        }
        dtrtri("U", "N", &k, m->V, &k, &info);
        if (info) {
            s->health.failed = 1;
            return;
        }
        if (f) {
            double *X = widest > 1e3 ? leverage(s, m) : m->X; /* X'z loses digits, or overflows, where X is large */
            if (s->health.failed) return;
            dgemv("T", &f, &k, &precision, X, &f, s->z, &step1, &zero, m->v, &step1);
            if (widest <= 1e3) dtrmv("U", "T", "N", &k, m->V, &k, m->v, &step1);
            dtrmv("U", "N", "N", &k, m->V, &k, m->v, &step1);
        }
    }
    memcpy(m->remainder, s->z, sizeof(double) * f);
    if (k && f) {
        double shrink = -1.0 / precision;
        dgemv("N", &f, &k, &shrink, m->X, &f, m->v, &step1, &one, m->remainder, &step1);
    }
    m->residual = dot(m->remainder, m->remainder, f) + s->rest;
    memset(m->shrinkage, 0, sizeof(double) * k);
    for (int j = 0; j < k; j++)
        for (int i = 0; i <= j; i++) {
            double x = m->V[(size_t)j * k + i];
            m->shrinkage[i] += x * x;
        }
    m->objective = -0.5 * (s->n_samples * (LOG_2PI - log(m->beta)) + 2.0 * log_det + m->beta * m->residual +
                           dot(m->v, m->v, k));
    m->objective += s->c * log(m->beta) - s->d * m->beta;
}

static Core *make(Search *s, const int *active, const double *alpha, int k, double beta, int atom) {
    Core *m = room(&s->health, 1, sizeof(Core));
    if (!m) return NULL;
    m->refs = 1;
    m->k = k;
    m->beta = beta;
    m->atom = atom;
    m->active = room(&s->health, k, sizeof(int));
    m->alpha = room(&s->health, k, sizeof(double));
    if (!s->health.failed) {
        memcpy(m->active, active, sizeof(int) * k);
        memcpy(m->alpha, alpha, sizeof(double) * k);
        span(s, active, k);
    }
    if (!s->health.failed) evaluate(s, m);
    if (s->health.failed) {
        release(m);
        return NULL;
    }
    return m;
}

/* Posterior.gamma */
static double *gamma_of(Search *s, Core *m) {
    int k = m->k, f = m->f;
    if (m->gamma) return m->gamma;
    m->gamma = room(&s->health, k, sizeof(double));
    if (!m->gamma) return NULL;
    double *explained = NULL;
    for (int i = 0; i < k; i++) {
        double g = 1.0 - m->shrinkage[i];
        if (g < 1e-6) {
            if (!explained && !(explained = room(&s->health, k, sizeof(double)))) break;
            if (!leverage(s, m)) break;
            double *X = m->X + (size_t)i * f;
            g = 0.0;
            if (f) {
                dgemv("T", &f, &k, &one, m->leverage, &f, X, &step1, &zero, explained, &step1);
                g = dot(X, X, f) - dot(explained, explained, k);
            }
            g = g < 0.0 ? 0.0 : (g > 1.0 ? 1.0 : g);
        }
        m->gamma[i] = g;
    }
    free(explained);
    return s->health.failed ? NULL : m->gamma;
}

static int not_lower(double new, double old) { return new >= old - SLACK * fmax(1.0, fabs(old)); }

static double coarse(double x, int bits) {
    int exponent;
    double mantissa = frexp(x, &exponent);
    return ldexp(rint(ldexp(mantissa, bits)), exponent - bits);
}

static double gain_delete(const Core *m, int i) {
    return 0.5 * (-log(m->shrinkage[i]) - m->v[i] * m->v[i] / m->shrinkage[i]);
}

/* the model without the atoms marked */
static Core *without(Search *s, const Core *m, const char *leave) {
    int k = 0;
    int *active = room(&s->health, m->k, sizeof(int));
    double *alpha = room(&s->health, m->k, sizeof(double));
    Core *made = NULL;
    if (!s->health.failed) {
        for (int i = 0; i < m->k; i++)
            if (!leave[i]) {
                active[k] = m->active[i];
                alpha[k++] = m->alpha[i];
            }
        made = make(s, active, alpha, k, m->beta, m->atom);
    }
    free(active);
    free(alpha);
    return made;
}

/* _newton.prune; takes over the caller's reference, as relax does */
static Core *prune(Search *s, Core *m) {
    char *leave = m ? room(&s->health, m->k, 1) : NULL;
    while (m && leave && m->k) {
        int dead = 0, worst = -1;
        double most = -INFINITY;
        const double *gamma = gamma_of(s, m);
        if (!gamma) break;
        for (int i = 0; i < m->k; i++) {
            leave[i] = m->v[i] * m->v[i] <= gamma[i] * m->shrinkage[i]; /* q^2 <= s in units of the prior */
            if (!leave[i]) continue;
            dead++;
            double gain = gain_delete(m, i);
            if (worst < 0 || gain > most) most = gain, worst = i;
        }
        if (!dead) break;
        Core *fewer = NULL;
        for (int turn = 0; turn < 2; turn++) {
            if (turn) {
                memset(leave, 0, m->k);
                leave[worst] = 1;
            }
            fewer = without(s, m, leave);
            if (!fewer) break;
            if (not_lower(fewer->objective, m->objective)) break;
            release(fewer);
            fewer = NULL;
        }
        if (!fewer) break;
        release(m);
        m = fewer;
    }
    free(leave);
    if (s->health.failed) {
        release(m);
        return NULL;
    }
    return m;
}

/* _newton.relax */
static Core *relax(Search *s, Core *m, int steps, int hold, double enough, double ceiling) {
    double damping = 0.0;
    hold = hold || s->fixed_noise;
    int room_for = -1;
    double *g = NULL, *em = NULL, *H = NULL, *H_damped = NULL, *B = NULL, *step = NULL, *alpha = NULL;
    for (int turn = 0; turn < steps && m; turn++) {
        m = prune(s, m);
        if (!m) break;
        int k = m->k, info;
        const double *gamma = gamma_of(s, m), *v = m->v;
        if (!gamma) break;
        double total = 0.0;
        for (int i = 0; i < k; i++) total += gamma[i];
        double g_beta = 0.5 * (s->n_samples - m->beta * m->residual - total) + s->c - s->d * m->beta;
        int free_noise = !hold && (g_beta > 0.0 ? m->beta < 1.0 / s->noise_floor : m->beta * ceiling > 1.0);
        int n = k + free_noise;
        if (!n) break;
        if (n > room_for) {
            size_t square = (size_t)n * n;
            free(g), free(em), free(H), free(H_damped), free(B), free(step), free(alpha);
            g = room(&s->health, n, sizeof(double));
            em = room(&s->health, n, sizeof(double));
            step = room(&s->health, n, sizeof(double));
            alpha = room(&s->health, n, sizeof(double));
            H = room(&s->health, square, sizeof(double));
            H_damped = room(&s->health, square, sizeof(double));
            B = room(&s->health, square, sizeof(double));
            room_for = n;
            if (s->health.failed) break;
        }
        /* evidence.prior_unit_hessian, with B = V V' (upper half, then mirrored) */
        if (k) {
            memcpy(B, m->V, sizeof(double) * k * k);
            dlauum("U", &k, B, &k, &info);
        }
        for (int j = 0; j < k; j++)
            for (int i = 0; i < j; i++) B[(size_t)i * k + j] = B[(size_t)j * k + i];
        double trace = 0.0, squares = 0.0, moves = 0.0;
        for (int j = 0; j < k; j++) {
            const double *column_j = B + (size_t)j * k;
            double moved = 0.0, square = 0.0;
            double *H_j = H + (size_t)j * n;
            for (int i = 0; i < k; i++) {
                double b = column_j[i];
                moved += b * v[i];
                square += b * b;
                H_j[i] = -(v[i] * v[j] * b + 0.5 * b * b);
            }
            double diagonal = column_j[j];
            moved *= v[j];
            square *= 0.5;
            H_j[j] += 0.5 * (v[j] * v[j] + diagonal);
            g[j] = 0.5 * (gamma[j] - v[j] * v[j]);
            em[j] = 0.5 * (v[j] * v[j] + m->shrinkage[j]);
            if (free_noise) H_j[k] = H[(size_t)k * n + j] = -(0.5 * diagonal - moved - square);
            trace += diagonal;
            squares += square;
            moves += moved;
        }
        if (free_noise) {
            g[k] = g_beta;
            em[k] = 0.5 * s->n_samples;
            H[(size_t)k * n + k] = s->d * m->beta - (squares - 0.5 * (trace + m->beta * m->residual) + moves);
        }
        Core *moved = NULL;
        double promised = 0.0;
        for (int trial = 0; trial < 40 && !moved; trial++) {
            memcpy(H_damped, H, sizeof(double) * n * n);
            memcpy(step, g, sizeof(double) * n);
            if (damping)
                for (int i = 0; i < n; i++) H_damped[(size_t)i * n + i] += damping * em[i];
            dposv("U", &n, &step1, H_damped, &n, step, &n, &info);
            double longest = 0.0;
            for (int i = 0; i < n; i++) {
                if (!isfinite(step[i])) info = 1;
                if (fabs(step[i]) > longest) longest = fabs(step[i]);
            }
            if (info == 0) {
                if (longest > LONGEST)
                    for (int i = 0; i < n; i++) step[i] *= LONGEST / longest;
                double beta = m->beta;
                if (free_noise) beta = fmin(fmax(beta * exp(step[k]), 1.0 / ceiling), 1.0 / s->noise_floor);
                for (int i = 0; i < k; i++) alpha[i] = m->alpha[i] * exp(step[i]);
                if (enough > 0.0) {
                    for (int i = 0; i < k; i++) alpha[i] = coarse(alpha[i], 13);
                    beta = coarse(beta, 20);
                }
                moved = make(s, m->active, alpha, k, beta, m->atom);
                if (!moved) break;
                if (not_lower(moved->objective, m->objective)) {
                    promised = 0.5 * dot(g, step, n);
                    break;
                }
                release(moved);
                moved = NULL;
            }
            damping = fmax(LEAST_DAMPING, 2.0 * damping);
        }
        if (!moved) break;
        damping = damping > LEAST_DAMPING ? 0.5 * damping : 0.0;
        double old = m->objective;
        release(m);
        m = moved;
        if (promised < fmax(enough, SLACK * fmax(1.0, fabs(old)))) break;
    }
    free(g), free(em), free(H), free(H_damped), free(B), free(step), free(alpha);
    if (s->health.failed) {
        release(m);
        return NULL;
    }
    return prune(s, m);
}

/* ---------------------------------------------------------------- moves */

typedef struct {
    double *S, *Q, *T, *gain; /* M, M, M x k, M */
} Scan;

static void release_scan(Scan *scan) {
    free(scan->S);
    free(scan->Q);
    free(scan->T);
    free(scan->gain);
}

/* Frame.scan and evidence.gain_add */
static int scan_all(Search *s, Core *m, Scan *scan) {
    int M = s->M, k = m->k, f = m->f;
    memset(scan, 0, sizeof(Scan));
    scan->S = room(&s->health, M, sizeof(double));
    scan->Q = room(&s->health, M, sizeof(double));
    scan->gain = room(&s->health, M, sizeof(double));
    scan->T = malloc(sizeof(double) * ((size_t)M * k + 1));
    if (!scan->T) s->health.failed = 1;
    if (s->health.failed || !leverage(s, m)) {
        release_scan(scan);
        return 0;
    }
    double *S = scan->S, *Q = scan->Q;
    memcpy(S, s->unit, sizeof(double) * M);
    if (k && f) dgemm("N", "N", &M, &k, &f, &one, s->P, &M, m->leverage, &f, &zero, scan->T, &M);
    else memset(scan->T, 0, sizeof(double) * (size_t)M * k);
    for (int i = 0; i < k; i++) {
        const double *T = scan->T + (size_t)i * M;
        for (int j = 0; j < M; j++) S[j] -= T[j] * T[j];
    }
    memcpy(Q, s->Q_left, sizeof(double) * M);
    if (f) dgemv("N", &M, &f, &one, s->P, &M, m->remainder, &step1, &one, Q, &step1);
    int later = s->f - f;
    if (later > 0)
        dgemv("N", &M, &later, &one, s->P + (size_t)f * M, &M, s->z + f, &step1, &one, Q, &step1);
    for (int j = 0; j < M; j++) {
        S[j] = S[j] < COLLINEAR ? 0.0 : S[j] * m->beta;
        Q[j] *= m->beta;
        double ratio = S[j] > 0.0 ? Q[j] * Q[j] / S[j] : 0.0;
        scan->gain[j] = ratio > 1.0 ? 0.5 * (ratio - 1.0 - log(ratio)) : 0.0;
    }
    for (int i = 0; i < k; i++) scan->gain[m->active[i]] = 0.0;
    return 1;
}

/* _moves.best */
static int best(const double *gain, const int64_t *order, int M) {
    double largest = gain[0];
    for (int j = 1; j < M; j++)
        if (gain[j] > largest) largest = gain[j];
    double least = largest - TIE * fmax(1.0, largest);
    int first = -1;
    for (int j = 0; j < M; j++)
        if (gain[j] >= least && (first < 0 || order[j] < order[first])) first = j;
    return first;
}

typedef struct {
    double key;
    int64_t order;
    int index;
} Ranked;

static int by_rank(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* _moves._batch: how many atoms were chosen, the first is the best */
static int choose(Search *s, Core *m, int first, const Scan *scan, int batch, int *chosen) {
    int M = s->M, n = s->n, k = m->k, count = 0, taken = 1;
    double least = WORTH * scan->gain[first];
    chosen[0] = first;
    for (int j = 0; j < M; j++) count += scan->gain[j] >= least;
    if (count == 1) return 1;
    Ranked *near = room(&s->health, count, sizeof(Ranked));
    if (!near) return 1;
    count = 0;
    for (int j = 0; j < M; j++)
        if (scan->gain[j] >= least)
            near[count++] = (Ranked){j == first ? -INFINITY : -rint(1e9 * scan->gain[j] / scan->gain[first]),
                                     s->order[j], j};
    qsort(near, count, sizeof(Ranked), by_rank);
    if (count > 4 * batch) count = 4 * batch;
    double *C = room(&s->health, (size_t)n * count, sizeof(double));
    double *T = room(&s->health, (size_t)k * count, sizeof(double));
    double *overlap = room(&s->health, (size_t)count * count, sizeof(double));
    int *kept = room(&s->health, batch, sizeof(int));
    if (!s->health.failed) {
        for (int a = 0; a < count; a++) {
            column(s, near[a].index, C + (size_t)a * n);
            for (int i = 0; i < k; i++) T[(size_t)a * k + i] = scan->T[(size_t)i * M + near[a].index];
        }
        dsyrk("U", "T", &count, &n, &one, C, &n, &zero, overlap, &count);
        if (k) dsyrk("U", "T", &count, &k, &minus_one, T, &k, &one, overlap, &count);
        kept[0] = 0;
        for (int a = 1; a < count && taken < batch; a++) {
            int apart = 1;
            for (int b = 0; b < taken && apart; b++) {
                double size = sqrt(scan->S[near[a].index] / m->beta) * sqrt(scan->S[near[kept[b]].index] / m->beta);
                apart = !(fabs(overlap[(size_t)a * count + kept[b]]) > APART * size);
            }
            if (apart) {
                kept[taken] = a;
                chosen[taken++] = near[a].index;
            }
        }
    }
    free(near);
    free(C);
    free(T);
    free(overlap);
    free(kept);
    return taken;
}

/* _moves.grow: NULL where no addition gains more than tol */
static Core *grow(Search *s, Core *m, int batch, double tol, int hold, double ceiling, double apart) {
    Scan scan;
    if (!scan_all(s, m, &scan)) return NULL;
    int k = m->k, most = batch > 1 ? (batch > k / 8 ? batch : k / 8) : 1;
    if (apart > 0.0)
        for (int j = 0; j < s->M; j++)
            if (scan.S[j] < apart * m->beta) scan.gain[j] = 0.0;
    int *active = room(&s->health, k + most, sizeof(int)), *chosen = room(&s->health, most, sizeof(int));
    double *alpha = room(&s->health, k + most, sizeof(double));
    Core *grown = NULL;
    for (int turn = 0; turn < REFUTED && !grown && !s->health.failed; turn++) {
        int first = best(scan.gain, s->order, s->M);
        if (!(scan.gain[first] > tol)) break;
        chosen[0] = first;
        int count = most > 1 ? choose(s, m, first, &scan, most, chosen) : 1;
        for (; count && !grown && !s->health.failed; count /= 2) {
            memcpy(active, m->active, sizeof(int) * k);
            memcpy(alpha, m->alpha, sizeof(double) * k);
            for (int i = 0; i < count; i++) {
                double S = scan.S[chosen[i]], Q = scan.Q[chosen[i]];
                active[k + i] = chosen[i];
                alpha[k + i] = coarse(S * S / (Q * Q - S), 13); /* TF03 eq. (20) */
            }
            grown = make(s, active, alpha, k + count, m->beta, first);
            if (grown && grown->objective > m->objective) {
                grown = relax(s, grown, 1, hold, CLOSE, ceiling);
                /* atoms took the place of others: such steps come in long chains */
                if (grown && grown->k <= k) grown = relax(s, grown, 10, hold, CLOSE, ceiling);
                if (grown && grown->objective > m->objective + 0.1 * tol) break;
            }
            release(grown);
            grown = NULL;
        }
        scan.gain[first] = 0.0; /* the exact evidence refutes what the scan promised */
    }
    free(active);
    free(chosen);
    free(alpha);
    release_scan(&scan);
    return grown;
}

/* _moves.exchange: NULL where none gains more than tol */
static Core *exchange(Search *s, Core *m, double tol) {
    int M = s->M, k = m->k;
    Scan scan;
    if (!k || !scan_all(s, m, &scan)) return NULL;
    double *cross = room(&s->health, (size_t)M * k, sizeof(double)), *root = room(&s->health, (size_t)k * k, sizeof(double));
    double *S_best = room(&s->health, k, sizeof(double)), *Q_best = room(&s->health, k, sizeof(double));
    double *ratio = room(&s->health, M, sizeof(double));
    Ranked *pairs = room(&s->health, k, sizeof(Ranked));
    int *entering = room(&s->health, k, sizeof(int));
    char *outside = room(&s->health, M, 1);
    Core *swapped = NULL;
    if (s->health.failed) goto done;
    for (int j = 0; j < M; j++) outside[j] = scan.S[j] > 0.0;
    for (int i = 0; i < k; i++) outside[m->active[i]] = 0;
    /* cross = Sigma Phi_a' B Phi = beta^1/2 root T, its transpose here (M x k) */
    memcpy(cross, scan.T, sizeof(double) * M * k);
    for (int j = 0; j < k; j++)
        for (int i = 0; i <= j; i++) root[(size_t)j * k + i] = sqrt(m->beta / m->alpha[i]) * m->V[(size_t)j * k + i];
    dtrmm("R", "U", "T", "N", &M, &k, &one, root, &k, cross, &M);
    for (int i = 0; i < k && !s->health.failed; i++) {
        double variance = m->shrinkage[i] / m->alpha[i], mean = m->v[i] / sqrt(m->alpha[i]);
        const double *c = cross + (size_t)i * M;
        for (;;) {
            double top = 0.0;
            for (int j = 0; j < M; j++) {
                double S = scan.S[j] + c[j] * c[j] / variance, Q = scan.Q[j] + c[j] * (mean / variance);
                ratio[j] = outside[j] && S > 0.0 ? Q * Q / S : 0.0;
                if (ratio[j] > top) top = ratio[j];
            }
            int j = -1;
            for (int a = 0; a < M; a++)
                if (ratio[a] >= top * (1.0 - TIE) && (j < 0 || s->order[a] < s->order[j])) j = a;
            entering[i] = j;
            S_best[i] = scan.S[j] + c[j] * c[j] / variance;
            Q_best[i] = scan.Q[j] + c[j] * (mean / variance);
            double r = S_best[i] > 0.0 ? Q_best[i] * Q_best[i] / S_best[i] : 0.0;
            double gain = top > 0.0 ? (r > 1.0 ? 0.5 * (r - 1.0 - log(r)) : 0.0) + gain_delete(m, i) : -INFINITY;
            pairs[i] = (Ranked){-rint(1e9 * gain), s->order[m->active[i]], i};
            if (!(top > 0.0)) break;
            double overlap = 0.0; /* a copy of the atom that leaves hides those that would gain */
            for (int r = 0; r < s->f; r++) overlap += s->P[(size_t)r * M + j] * s->P[(size_t)r * M + m->active[i]];
            if (!(fabs(overlap) > COPY)) break;
            outside[j] = 0;
        }
    }
    qsort(pairs, k, sizeof(Ranked), by_rank);
    for (int turn = 0; turn < TRIES && turn < k && !swapped && !s->health.failed; turn++) {
        if (!(-1e-9 * pairs[turn].key >= HOPELESS)) break;
        int i = pairs[turn].index, kept = m->active[i];
        double S = S_best[i], Q = Q_best[i], old = m->alpha[i];
        m->active[i] = entering[i];
        m->alpha[i] = coarse(S * S / fmax(Q * Q - S, 1e-3 * S), 13);
        swapped = make(s, m->active, m->alpha, k, m->beta, entering[i]);
        m->active[i] = kept;
        m->alpha[i] = old;
        if (swapped) swapped = relax(s, swapped, 2, 0, tol, INFINITY);
        if (swapped && swapped->objective > m->objective + tol)
            swapped = relax(s, swapped, 30, 0, tol, INFINITY);
        else {
            release(swapped);
            swapped = NULL;
        }
    }
done:
    free(cross);
    free(root);
    free(S_best);
    free(Q_best);
    free(ratio);
    free(pairs);
    free(entering);
    free(outside);
    release_scan(&scan);
    return swapped;
}

/* Model.merged: NULL where there are no copies, or the objective would fall */
static Core *merge(Search *s, Core *m) {
    int k = m->k, copies = 0;
    load_support(s, m->active, k);
    if (s->health.failed) return NULL;
    for (int j = 0; j < k; j++)
        for (int i = 0; i < j; i++) copies += fabs(s->gram[(size_t)j * k + i]) > COPY;
    if (!copies) return NULL;
    int *active = room(&s->health, k, sizeof(int)), *first = room(&s->health, k, sizeof(int));
    double *alpha = room(&s->health, k, sizeof(double));
    Core *fewer = NULL;
    int count = 0;
    if (!s->health.failed) {
        for (int i = 0; i < k; i++) {
            first[i] = i;
            for (int j = 0; j < k; j++) {
                double g = s->gram[(size_t)(i < j ? j : i) * k + (i < j ? i : j)];
                if (fabs(g) > COPY && s->order[m->active[j]] < s->order[m->active[first[i]]]) first[i] = j;
            }
        }
        for (int i = 0; i < k; i++) {
            if (first[i] != i) continue;
            double total = 0.0;
            for (int j = 0; j < k; j++)
                if (first[j] == i) total += 1.0 / m->alpha[j];
            active[count] = m->active[i];
            alpha[count++] = 1.0 / total;
        }
        fewer = make(s, active, alpha, count, m->beta, m->atom);
        if (fewer && !not_lower(fewer->objective, m->objective)) {
            release(fewer);
            fewer = NULL;
        }
    }
    free(active);
    free(first);
    free(alpha);
    return fewer;
}

/* The model at MacKay's update, T01 eq. (44) and (46), or where that lowers the objective at the EM step, (48) and
 * (50); NULL where rounding lowers it too. */
static Core *update(Search *s, Core *m, double far) {
    int k = m->k;
    const double *gamma = gamma_of(s, m);
    double *alpha = room(&s->health, k, sizeof(double)), total = 0.0;
    Core *moved = NULL;
    for (int i = 0; gamma && i < k; i++) total += gamma[i];
    for (int em = 0; em < 2 && !moved && gamma && alpha && !s->health.failed; em++) {
        for (int i = 0; i < k; i++) {
            double square = m->v[i] * m->v[i]; /* alpha mu^2 */
            double factor = em ? 1.0 / (square + m->shrinkage[i]) : gamma[i] / square;
            alpha[i] = factor > 0.0 ? fmin(factor * m->alpha[i], 10.0 * far) : m->alpha[i];
        }
        double noise = em ? (m->residual + total / m->beta + 2.0 * s->d) / (s->n_samples + 2.0 * s->c)
                          : (m->residual + 2.0 * s->d) / (s->n_samples - total + 2.0 * s->c);
        double beta = s->fixed_noise ? m->beta : 1.0 / (noise > s->noise_floor ? noise : s->noise_floor);
        moved = make(s, m->active, alpha, k, beta, -1);
        if (moved && !not_lower(moved->objective, m->objective)) {
            release(moved);
            moved = NULL;
        }
    }
    free(alpha);
    return moved;
}

/* Every atom at first, thinned out by updates of all precisions (T01): those beyond `far` leave */
static Core *thin(Search *s, double beta, int steps, double far, double tol) {
    int k = 0;
    int *active = room(&s->health, s->M, sizeof(int));
    double *alpha = room(&s->health, s->M, sizeof(double));
    char *leave = room(&s->health, s->M, 1);
    Core *m = NULL;
    for (int j = 0; j < s->M && !s->health.failed; j++)
        if (s->unit[j] > 0.0) {
            active[k] = j;
            alpha[k++] = (1.0 + 1e-3 * (double)s->order[j] / s->M) / s->n_samples; /* as _FixedPoint.init */
        }
    if (!s->health.failed) m = make(s, active, alpha, k, beta, -1);
    for (int turn = 0; turn < steps && m; turn++) {
        Core *moved = update(s, m, far);
        if (!moved) break;
        int gone = 0;
        const double *gamma = gamma_of(s, moved);
        for (int i = 0; gamma && i < moved->k; i++) gone += leave[i] = gamma[i] < 1e-16 || moved->alpha[i] > far;
        Core *fewer = gone ? without(s, moved, leave) : NULL;
        if (fewer && not_lower(fewer->objective, m->objective)) {
            release(moved);
            moved = fewer;
        } else
            release(fewer);
        int settled = moved->k == m->k && moved->objective - m->objective < tol;
        release(m);
        m = moved;
        if (settled) break;
    }
    free(active);
    free(alpha);
    free(leave);
    if (s->health.failed) {
        release(m);
        return NULL;
    }
    return m;
}

/* Model.trimmed: the frame without what the model no longer needs */
static Core *trim(Search *s, Core *m) {
    if (s->f <= 1.5 * m->k + 48) return NULL;
    start_frame(s);
    return make(s, m->active, m->alpha, m->k, m->beta, m->atom);
}

/* ---------------------------------------------------------------- Python types */

static PyTypeObject *model_type;

typedef struct {
    PyObject_HEAD
    Search *search;
    Core *core;
} Model;

static void search_dealloc(Search *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->Phi) PyBuffer_Release(&self->phi_view);
    free(self->target), free(self->unit), free(self->order), free(self->Q), free(self->P), free(self->z);
    free(self->left), free(self->Q_left), free(self->held), free(self->R_active), free(self->R), free(self->gram);
    freefunc release_memory = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_memory(self);
    Py_DECREF(type);
}

static void model_dealloc(Model *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    release(self->core);
    Py_XDECREF((PyObject *)self->search);
    freefunc release_memory = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_memory(self);
    Py_DECREF(type);
}

/* a copy of the numbers behind a Python buffer of the given size; NULL with an error set where it has another */
static void *copied(PyObject *object, size_t count, size_t size, const char *name) {
    Py_buffer view;
    void *copy = NULL;
    if (PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS) < 0) return NULL;
    if ((size_t)view.len != count * size || (size_t)view.itemsize != size)
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes in items of %zd", name, view.len, view.itemsize);
    else if (!(copy = malloc(count * size + 1)))
        PyErr_NoMemory();
    else
        memcpy(copy, view.buf, count * size);
    PyBuffer_Release(&view);
    return copy;
}

static PyObject *wrapped(Search *s, Core *core) {
    if (!core) {
        if (!s->health.failed) Py_RETURN_NONE;
        s->health.failed = 0;
        return PyErr_Format(PyExc_ValueError,
                            "a matrix of the model holds NaN or infinite values; rescale the basis functions");
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(model_type, Py_tp_alloc);
    Model *model = (Model *)allocate(model_type, 0);
    if (!model) {
        release(core);
        return NULL;
    }
    Py_INCREF((PyObject *)s);
    model->search = s;
    model->core = core;
    return (PyObject *)model;
}

static PyObject *search_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *phi, *target, *unit, *order;
    double outside, n_samples, noise_floor, c, d;
    int fixed_noise;
    if (kwargs && PyDict_Size(kwargs)) return PyErr_Format(PyExc_TypeError, "Search takes no keywords");
    if (!PyArg_ParseTuple(args, "OOOOdddidd", &phi, &target, &unit, &order, &outside, &n_samples, &noise_floor,
                          &fixed_noise, &c, &d))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Search *s = (Search *)allocate(type, 0);
    if (!s) return NULL;
    if (PyObject_GetBuffer(phi, &s->phi_view, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT) < 0) goto fail;
    s->Phi = s->phi_view.buf;
    if (s->phi_view.ndim != 2 || strcmp(s->phi_view.format, "d") || s->phi_view.shape[0] > INT32_MAX / 2 ||
        s->phi_view.shape[1] > INT32_MAX / 2 || s->phi_view.shape[0] < 1 || s->phi_view.shape[1] < 1) {
        PyErr_SetString(PyExc_ValueError, "Phi must be a matrix (n, M) of doubles");
        goto fail;
    }
    s->n = (int)s->phi_view.shape[0];
    s->M = (int)s->phi_view.shape[1];
    s->by_rows = PyBuffer_IsContiguous(&s->phi_view, 'C');
    if (!(s->target = copied(target, s->n, sizeof(double), "target"))) goto fail;
    if (!(s->unit = copied(unit, s->M, sizeof(double), "unit"))) goto fail;
    if (!(s->order = copied(order, s->M, sizeof(int64_t), "order"))) goto fail;
    s->outside = outside, s->n_samples = n_samples, s->noise_floor = noise_floor, s->c = c, s->d = d;
    s->fixed_noise = fixed_noise;
    s->left = room(&s->health, s->n, sizeof(double));
    s->Q_left = room(&s->health, s->M, sizeof(double));
    s->held = room(&s->health, s->M, 1);
    reserve(s, 32);
    if (s->health.failed) {
        PyErr_NoMemory();
        goto fail;
    }
    start_frame(s);
    return (PyObject *)s;
fail:
    Py_DECREF(s);
    return NULL;
}

static PyObject *search_at(Search *s, PyObject *args) {
    PyObject *active, *alpha;
    double beta;
    int atom = -1;
    Py_ssize_t k;
    if (!PyArg_ParseTuple(args, "OOd|i", &active, &alpha, &beta, &atom) || (k = PyObject_Size(active)) < 0) return NULL;
    int64_t *wide = copied(active, k, sizeof(int64_t), "active");
    double *precisions = wide ? copied(alpha, k, sizeof(double), "alpha") : NULL;
    int *narrow = precisions ? malloc(sizeof(int) * k + 1) : NULL;
    Core *core = NULL;
    for (Py_ssize_t i = 0; narrow && i < k; i++) {
        narrow[i] = (int)wide[i];
        if (wide[i] < 0 || wide[i] >= s->M) {
            PyErr_Format(PyExc_IndexError, "there is no atom %lld", (long long)wide[i]);
            free(narrow);
            narrow = NULL;
        }
    }
    if (narrow) {
        Py_BEGIN_ALLOW_THREADS
        core = make(s, narrow, precisions, (int)k, beta, atom);
        Py_END_ALLOW_THREADS
    } else if (precisions && !PyErr_Occurred())
        PyErr_NoMemory();
    free(wide);
    free(precisions);
    free(narrow);
    return PyErr_Occurred() ? NULL : wrapped(s, core);
}

static PyObject *search_thinned(Search *s, PyObject *args) {
    double beta, far, tol;
    int steps;
    Core *m;
    if (!PyArg_ParseTuple(args, "didd", &beta, &steps, &far, &tol)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    m = thin(s, beta, steps, far, tol);
    Py_END_ALLOW_THREADS
    return wrapped(s, m);
}

static PyObject *search_frame(Search *s, PyObject *nothing) {
    (void)nothing;
    size_t d = sizeof(double);
    return Py_BuildValue("(iy#y#y#y#y#dy#)", s->f, (char *)s->Q, (Py_ssize_t)(d * s->n * s->f), (char *)s->P,
                         (Py_ssize_t)(d * s->M * s->f), (char *)s->z, (Py_ssize_t)(d * s->f), (char *)s->left,
                         (Py_ssize_t)(d * s->n), (char *)s->Q_left, (Py_ssize_t)(d * s->M), s->rest, s->held,
                         (Py_ssize_t)s->M);
}

/* the model in the present frame, a new reference */
static Core *current(Model *self) {
    Search *s = self->search;
    if (self->core->version != s->version) {
        Core *again = make(s, self->core->active, self->core->alpha, self->core->k, self->core->beta, self->core->atom);
        if (!again) return NULL;
        release(self->core);
        self->core = again;
    }
    self->core->refs++;
    return self->core;
}

static PyObject *model_grown(Model *self, PyObject *args) {
    int batch, hold;
    double tol, ceiling, apart;
    if (!PyArg_ParseTuple(args, "idpdd", &batch, &tol, &hold, &ceiling, &apart)) return NULL;
    Core *grown = NULL, *m;
    Py_BEGIN_ALLOW_THREADS
    if ((m = current(self))) grown = grow(self->search, m, batch, tol, hold, ceiling, apart);
    release(m);
    Py_END_ALLOW_THREADS
    return wrapped(self->search, grown);
}

static PyObject *model_relaxed(Model *self, PyObject *args) {
    int steps, hold;
    double enough, ceiling;
    if (!PyArg_ParseTuple(args, "ipdd", &steps, &hold, &enough, &ceiling)) return NULL;
    Core *m;
    Py_BEGIN_ALLOW_THREADS
    if ((m = current(self))) m = relax(self->search, m, steps, hold, enough, ceiling);
    Py_END_ALLOW_THREADS
    return wrapped(self->search, m);
}

static PyObject *model_exchanged(Model *self, PyObject *args) {
    double tol;
    if (!PyArg_ParseTuple(args, "d", &tol)) return NULL;
    Core *swapped = NULL, *m;
    Py_BEGIN_ALLOW_THREADS
    if ((m = current(self))) swapped = exchange(self->search, m, tol);
    release(m);
    Py_END_ALLOW_THREADS
    return wrapped(self->search, swapped);
}

/* merged and trimmed return None where nothing changes */
static PyObject *model_changed(Model *self, Core *(*change)(Search *, Core *)) {
    Core *changed = NULL, *m;
    Py_BEGIN_ALLOW_THREADS
    if ((m = current(self))) changed = change(self->search, m);
    release(m);
    Py_END_ALLOW_THREADS
    return wrapped(self->search, changed);
}

static PyObject *model_merged(Model *self, PyObject *nothing) {
    (void)nothing;
    return model_changed(self, merge);
}

static PyObject *model_trimmed(Model *self, PyObject *nothing) {
    (void)nothing;
    return model_changed(self, trim);
}

static PyObject *model_active(Model *self, void *unused) {
    (void)unused;
    int k = self->core->k;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizeof(int64_t) * k);
    if (bytes)
        for (int i = 0; i < k; i++) {
            int64_t atom = self->core->active[i];
            memcpy(PyBytes_AsString(bytes) + sizeof(int64_t) * i, &atom, sizeof(int64_t));
        }
    return bytes;
}

static PyObject *model_alpha(Model *self, void *unused) {
    (void)unused;
    return PyBytes_FromStringAndSize((char *)self->core->alpha, (Py_ssize_t)sizeof(double) * self->core->k);
}

static PyObject *model_beta(Model *self, void *unused) {
    (void)unused;
    return PyFloat_FromDouble(self->core->beta);
}

static PyObject *model_objective(Model *self, void *unused) {
    (void)unused;
    return PyFloat_FromDouble(self->core->objective);
}

static PyObject *model_size(Model *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(self->core->k);
}

static PyObject *model_atom(Model *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(self->core->atom);
}

static PyMethodDef search_methods[] = {
    {"at", (PyCFunction)search_at, METH_VARARGS, "at(active, alpha, beta, atom=-1): the model with these atoms"},
    {"thinned", (PyCFunction)search_thinned, METH_VARARGS, "thinned(beta, steps, far, tol): the whole, thinned out"},
    {"frame", (PyCFunction)search_frame, METH_NOARGS, "size, Q, P, z, left, Q_left, rest and held of the frame"},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef model_methods[] = {
    {"grown", (PyCFunction)model_grown, METH_VARARGS, "grown(batch, tol, hold_noise, ceiling, apart), or None"},
    {"relaxed", (PyCFunction)model_relaxed, METH_VARARGS, "relaxed(steps, hold_noise, enough, ceiling)"},
    {"exchanged", (PyCFunction)model_exchanged, METH_VARARGS, "exchanged(tol), or None"},
    {"merged", (PyCFunction)model_merged, METH_NOARGS, "one atom in place of equal ones, or None"},
    {"trimmed", (PyCFunction)model_trimmed, METH_NOARGS, "in a smaller frame, or None"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef model_values[] = {
    {"active", (getter)model_active, NULL, "atoms, as bytes of int64", NULL},
    {"alpha", (getter)model_alpha, NULL, "precisions, as bytes of doubles", NULL},
    {"beta", (getter)model_beta, NULL, "noise precision", NULL},
    {"objective", (getter)model_objective, NULL, "T01 eq. (36)", NULL},
    {"size", (getter)model_size, NULL, "number of atoms", NULL},
    {"atom", (getter)model_atom, NULL, "the atom last moved", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot search_slots[] = {
    {Py_tp_new, (void *)search_new}, {Py_tp_dealloc, (void *)search_dealloc}, {Py_tp_methods, search_methods}, {0, NULL}};
static PyType_Slot model_slots[] = {
    {Py_tp_dealloc, (void *)model_dealloc}, {Py_tp_methods, model_methods}, {Py_tp_getset, model_values}, {0, NULL}};
static PyType_Spec search_spec = {"relvec.solvers._engine.Search", sizeof(Search), 0, Py_TPFLAGS_DEFAULT, search_slots};
static PyType_Spec model_spec = {"relvec.solvers._engine.Model", sizeof(Model), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, model_slots};

static int fill(PyObject *module) {
    if (!find_all()) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "SciPy's BLAS was not found");
        return -1;
    }
    PyObject *search = PyType_FromSpec(&search_spec);
    if (!search) return -1;
    if (!model_type && !(model_type = (PyTypeObject *)PyType_FromSpec(&model_spec))) return -1;
    return PyModule_AddObject(module, "Search", search);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_engine", "Moves of the sequential method.", 0, NULL,
                                        slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__engine(void) { return PyModuleDef_Init(&definition); }
