/* The problem, and the orthonormal frame in which every model of a search is small: _frame.py. */
#ifndef RELVEC_FRAME_H
#define RELVEC_FRAME_H

#include "blas.h"

#define DEPENDENT 1e-11

typedef struct {
    int failed; /* a number that is not finite, or no memory: every function returns at once */
} Health;

static void *room(Health *health, size_t count, size_t size) {
    void *p = calloc(count ? count : 1, size);
    if (!p) health->failed = 1;
    return p;
}

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
    double *packed, *tau;     /* _linalg.Reflections, (f + k) x k and k, or NULL */
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

#endif
