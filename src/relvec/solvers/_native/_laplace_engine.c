/* The inner problem under the Laplace approximation in C: what laplace.laplace and _laplace.relax do for one output.
 *
 * Same formulas, same constants and same order of decisions as those modules, whose docstrings explain them. Columns
 * lie one after the other, square matrices by rows. Models are small here, so plain loops serve and no BLAS is needed;
 * where a matrix is too badly conditioned for the normal equations the functions return None and Python goes on.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define THREADED 1
#endif

#define MOST_NEWTON 200
#define ROUGHLY 1e-9
#define EXACTLY 1e-18
#define IDLE 5
#define NORMAL_EQUATIONS_LIMIT 1e10 /* entries above lose digits, */
#define LEAST_PIVOT 1e-8            /* but few where no pivot is less than this share of its own */
#define LARGEST 700.0
#define SLACK 1e-13
#define LONGEST 3.0
#define ROWS 512 /* samples at a time, so that the columns of a model stay in the cache */
#define MANY 16384 /* samples: so many are shared out among threads, */
#define SHARES 8   /* always in so many parts: sums are the same however many threads there are */
#define MEMORY 10
#define TIE 1e-9
#define WORTH 0.3
#define APART 0.3
#define REFUTED 6
#define TRIES 8
#define HOPELESS -3.0

enum { BERNOULLI, POISSON };

/* What stays the same while precisions move. */
typedef struct {
    int kind, n, units, threads; /* units: every weight is one */
    const double *t, *weights;
    double constant, shift, trusted, spent;
} Task;

/* A support with its posterior; every array is owned, but for columns that models of one support share. */
typedef struct {
    int k;
    double *Phi;                /* k columns of n */
    int *owners;                /* of Phi; NULL where it is borrowed */
    double *alpha, *mean;       /* k */
    double *root;               /* k x k, upper triangular: Sigma = root root' */
    double *variance, *gamma;   /* k */
    double *f, *r, *W;          /* n */
    double log_evidence;
    int *column;                /* k: atom, or place in the model the call began with */
    char *refused;              /* k */
    int atom;                   /* last moved */
} Model;

/* Loops over samples are compiled twice where that can be, for processors with 256-bit registers and for all others;
 * numbers are added in eight or four lanes, which compilers keep in such registers. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx2,fma", "default")))
#else
#define WIDE
#endif
#if defined(__GNUC__)
typedef double Four __attribute__((vector_size(32), aligned(8), may_alias));
typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
#define LANES_OF(type, x) (*(const type *)(x))
#define SUM4(s) (((s)[0] + (s)[1]) + ((s)[2] + (s)[3]))
#define SUM8(s) ((((s)[0] + (s)[1]) + ((s)[2] + (s)[3])) + (((s)[4] + (s)[5]) + ((s)[6] + (s)[7])))
#define FOUR 4
#define EIGHT 8
#else
typedef double Four;
typedef float Eight;
#define LANES_OF(type, x) (*(x))
#define SUM4(s) (s)
#define SUM8(s) (s)
#define FOUR 1
#define EIGHT 1
#endif

WIDE static double long_dot(const double *a, const double *b, int n) {
    Four s = {0.0}, t = {0.0};
    int i = 0;
    for (; i + 2 * FOUR <= n; i += 2 * FOUR) {
        s += LANES_OF(Four, a + i) * LANES_OF(Four, b + i);
        t += LANES_OF(Four, a + i + FOUR) * LANES_OF(Four, b + i + FOUR);
    }
    s += t;
    double total = SUM4(s);
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

/* Products of an atom (n) with rows (count x n, `apart` numbers apart), four at a time so that the atom is read once
 * for them: added to every `stride`-th number */
WIDE static void dots(const double *rows, int count, size_t apart, const double *atom, int n, double *into,
                      size_t stride) {
    int r = 0;
    for (; r + 4 <= count; r += 4) {
        const double *a = rows + r * apart, *b = a + apart, *c = b + apart, *d = c + apart;
        Four s = {0.0}, t = {0.0}, u = {0.0}, v = {0.0};
        int i = 0;
        for (; i + FOUR <= n; i += FOUR) {
            Four x = LANES_OF(Four, atom + i);
            s += LANES_OF(Four, a + i) * x;
            t += LANES_OF(Four, b + i) * x;
            u += LANES_OF(Four, c + i) * x;
            v += LANES_OF(Four, d + i) * x;
        }
        double sum[4] = {SUM4(s), SUM4(t), SUM4(u), SUM4(v)};
        for (; i < n; i++) {
            sum[0] += a[i] * atom[i];
            sum[1] += b[i] * atom[i];
            sum[2] += c[i] * atom[i];
            sum[3] += d[i] * atom[i];
        }
        for (int l = 0; l < 4; l++) into[(r + l) * stride] += sum[l];
    }
    for (; r < count; r++) into[r * stride] += long_dot(rows + r * apart, atom, n);
}

WIDE static float single_dot(const float *a, const float *b, int n) {
    Eight s = {0.0f}, t = {0.0f};
    int i = 0;
    for (; i + 2 * EIGHT <= n; i += 2 * EIGHT) {
        s += LANES_OF(Eight, a + i) * LANES_OF(Eight, b + i);
        t += LANES_OF(Eight, a + i + EIGHT) * LANES_OF(Eight, b + i + EIGHT);
    }
    s += t;
    float total = SUM8(s);
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

WIDE static void single_dots(const float *rows, int count, const float *atom, int n, float *into, size_t stride) {
    int r = 0;
    for (; r + 4 <= count; r += 4) {
        const float *a = rows + (size_t)r * n, *b = a + n, *c = b + n, *d = c + n;
        Eight s = {0.0f}, t = {0.0f}, u = {0.0f}, v = {0.0f};
        int i = 0;
        for (; i + EIGHT <= n; i += EIGHT) {
            Eight x = LANES_OF(Eight, atom + i);
            s += LANES_OF(Eight, a + i) * x;
            t += LANES_OF(Eight, b + i) * x;
            u += LANES_OF(Eight, c + i) * x;
            v += LANES_OF(Eight, d + i) * x;
        }
        float sum[4] = {SUM8(s), SUM8(t), SUM8(u), SUM8(v)};
        for (; i < n; i++) {
            sum[0] += a[i] * atom[i];
            sum[1] += b[i] * atom[i];
            sum[2] += c[i] * atom[i];
            sum[3] += d[i] * atom[i];
        }
        for (int l = 0; l < 4; l++) into[(r + l) * stride] = sum[l];
    }
    for (; r < count; r++) into[r * stride] = single_dot(rows + (size_t)r * n, atom, n);
}

/* y += c x */
WIDE static void add_single(double *restrict y, double c, const float *restrict x, int n) {
    for (int i = 0; i < n; i++) y[i] += c * x[i];
}

WIDE static void add_scaled(double *restrict y, double c, const double *restrict x, int n) {
    for (int i = 0; i < n; i++) y[i] += c * x[i];
}

WIDE static void weigh(const double *restrict a, const double *restrict b, double *restrict into, int n) {
    for (int i = 0; i < n; i++) into[i] = a[i] * b[i];
}

static double dot(const double *a, const double *b, int n) {
    double total = 0.0;
    if (n >= 16) return long_dot(a, b, n);
    for (int i = 0; i < n; i++) total += a[i] * b[i];
    return total;
}

/* ---------------------------------------------------------------- small matrices, by rows */

/* Lower L with L L' = A in place (lower half); 0 where A is not positive definite */
static int cholesky(double *A, int k) {
    for (int j = 0; j < k; j++) {
        double *row = A + (size_t)j * k;
        for (int i = 0; i < j; i++) row[i] = (row[i] - dot(row, A + (size_t)i * k, i)) / A[(size_t)i * k + i];
        double pivot = row[j] - dot(row, row, j);
        if (!(pivot > 0.0) || !isfinite(pivot)) return 0;
        row[j] = sqrt(pivot);
    }
    return 1;
}

static void solve_lower(const double *L, int k, double *x) {
    for (int i = 0; i < k; i++) x[i] = (x[i] - dot(L + (size_t)i * k, x, i)) / L[(size_t)i * k + i];
}

static void solve_lower_transposed(const double *L, int k, double *x) {
    for (int i = k - 1; i >= 0; i--) {
        x[i] /= L[(size_t)i * k + i];
        const double *row = L + (size_t)i * k;
        for (int j = 0; j < i; j++) x[j] -= row[j] * x[i];
    }
}

/* V = L^-T, upper triangular: I + G = L L', so (I + G)^-1 = V V' */
static void inverse_factor(const double *L, int k, double *V) {
    memset(V, 0, sizeof(double) * k * k);
    for (int j = 0; j < k; j++) { /* row j of L^-1 is column j of V */
        double d = 1.0 / L[(size_t)j * k + j];
        for (int i = 0; i < j; i++) {
            double total = 0.0;
            for (int m = i; m < j; m++) total += L[(size_t)j * k + m] * V[(size_t)i * k + m];
            V[(size_t)i * k + j] = -total * d;
        }
        V[(size_t)j * k + j] = d;
    }
}

/* ---------------------------------------------------------------- samples, shared out among threads */

typedef void Part(void *with, int first, int end, int share);

typedef struct {
    Part *part;
    void *with;
    int n, shares, from, apart;
} Hand;

static int shares_of(const Task *task) { return task->n < MANY ? 1 : SHARES; }

static void *do_shares(void *given) {
    Hand *hand = given;
    for (int i = hand->from; i < hand->shares; i += hand->apart)
        hand->part(hand->with, (int)((int64_t)hand->n * i / hand->shares),
                   (int)((int64_t)hand->n * (i + 1) / hand->shares), i);
    return NULL;
}

/* part(with, first, end, share) for every share of the samples */
static void share_out(const Task *task, Part *part, void *with) {
    int shares = shares_of(task), count = task->threads < shares ? task->threads : shares;
    if (count < 1) count = 1;
    Hand hands[SHARES];
    for (int i = 0; i < count; i++) hands[i] = (Hand){part, with, task->n, shares, i, count};
#ifdef THREADED
    pthread_t threads[SHARES];
    int begun[SHARES] = {0};
    for (int i = 1; i < count; i++) begun[i] = !pthread_create(&threads[i], NULL, do_shares, &hands[i]);
    do_shares(&hands[0]);
    for (int i = 1; i < count; i++) {
        if (begun[i])
            pthread_join(threads[i], NULL);
        else
            do_shares(&hands[i]);
    }
#else
    for (int i = 0; i < count; i++) do_shares(&hands[i]);
#endif
}

static int rows_from(int first, int end) { return end - first < ROWS ? end - first : ROWS; }

/* ---------------------------------------------------------------- likelihoods */

/* Weights w (k) of columns Phi with the latent function they make, and what the likelihood says of it */
typedef struct {
    const Task *task;
    const double *Phi, *w;
    int k;
    double *f, *r, *W, value[SHARES];
} Point;

/* Likelihood.evaluate */
static double evaluate(const Task *task, const double *f, double *r, double *W, int first, int end) {
    const double *t = task->t, *w = task->weights;
    double value = 0.0, factor = 1.0;
    if (task->kind == POISSON) {
        for (int i = first; i < end; i++) {
            double rate = exp(f[i] < LARGEST ? f[i] : LARGEST);
            value += w[i] * (t[i] * f[i] - rate);
            r[i] = w[i] * (t[i] - rate);
            W[i] = w[i] * rate;
        }
        return value;
    }
    for (int i = first; i < end; i++) {
        double e = exp(-fabs(f[i])), large = 1.0 / (1.0 + e), small = e * large;
        int up = !signbit(f[i]);
        value += w[i] * (t[i] - up) * f[i];
        if (task->units) { /* one logarithm of a product in place of many */
            factor *= 1.0 + e;
            if (i % 512 == 511) {
                value -= log(factor);
                factor = 1.0;
            }
        } else
            value -= w[i] * log1p(e);
        r[i] = w[i] * (t[i] - up + (up ? small : -small));
        W[i] = w[i] * (small * large);
    }
    return value - log(factor);
}

static void point_part(void *with, int first, int end, int share) {
    Point *p = with;
    size_t n = p->task->n;
    memset(p->f + first, 0, sizeof(double) * (end - first));
    for (int a = first; a < end; a += ROWS)
        for (int j = 0; j < p->k; j++) add_scaled(p->f + a, p->w[j], p->Phi + j * n + a, rows_from(a, end));
    p->value[share] = evaluate(p->task, p->f, p->r, p->W, first, end);
}

/* f = Phi w, r and W there; returns the log likelihood */
static double at(const Task *task, const double *Phi, int k, const double *w, double *f, double *r, double *W) {
    Point p = {task, Phi, w, k, f, r, W, {0.0}};
    share_out(task, point_part, &p);
    double value = task->kind == POISSON ? task->constant : 0.0;
    for (int i = 0; i < shares_of(task); i++) value += p.value[i];
    return value;
}

/* ---------------------------------------------------------------- models */

static void release(Model *m) {
    if (!m) return;
    if (m->owners && --*m->owners == 0) {
        free(m->Phi);
        free(m->owners);
    }
    free(m->alpha);
    free(m->f);
    free(m->column);
    free(m->refused);
    free(m);
}

/* A model of k columns, which are borrowed where they are given */
static Model *room_beside(const Task *task, int k, double *Phi) {
    Model *m = calloc(1, sizeof(Model));
    if (!m) return NULL;
    size_t n = task->n, c = k ? k : 1;
    m->k = k;
    m->Phi = Phi;
    m->alpha = malloc(sizeof(double) * c * (c + 4));
    m->f = malloc(sizeof(double) * n * 3);
    m->column = calloc(c, sizeof(int));
    m->refused = calloc(c, 1);
    if (!m->alpha || !m->f || !m->column || !m->refused) {
        release(m);
        return NULL;
    }
    m->mean = m->alpha + k;
    m->variance = m->mean + k;
    m->gamma = m->variance + k;
    m->root = m->gamma + k;
    m->r = m->f + n;
    m->W = m->r + n;
    return m;
}

static Model *room_for(const Task *task, int k) {
    Model *m = room_beside(task, k, NULL);
    if (!m) return NULL;
    m->Phi = malloc(sizeof(double) * task->n * (size_t)(k ? k : 1));
    m->owners = malloc(sizeof(int));
    if (!m->Phi || !m->owners) {
        free(m->Phi);
        free(m->owners);
        m->owners = NULL;
        release(m);
        return NULL;
    }
    *m->owners = 1;
    return m;
}

typedef struct {
    const Model *m;
    size_t n, room;
    double *sums; /* for every share L (k x k), g (k) and a column of ROWS numbers */
} Sums;

static void moments_part(void *with, int first, int end, int share) {
    Sums *sums = with;
    const Model *m = sums->m;
    size_t n = sums->n, k = m->k;
    double *L = sums->sums + share * sums->room, *g = L + k * k, *column = g + k;
    memset(L, 0, sizeof(double) * (k * k + k));
    for (int a = first; a < end; a += ROWS) {
        int rows = rows_from(a, end);
        for (size_t i = 0; i < k; i++) {
            weigh(m->W + a, m->Phi + i * n + a, column, rows);
            dots(m->Phi + a, (int)i + 1, n, column, rows, L + i * k, 1);
        }
        dots(m->Phi + a, (int)k, n, m->r + a, rows, g, 1);
    }
}

/* Phi'diag(W) Phi (k x k), its lower half, and behind it Phi'r (k): at the beginning of ``sums`` */
static void moments(const Task *task, const Model *m, double *sums) {
    size_t k = m->k, both = k * k + k;
    Sums all = {m, task->n, both + ROWS, sums};
    share_out(task, moments_part, &all);
    for (int share = 1; share < shares_of(task); share++) add_scaled(sums, 1.0, sums + share * all.room, (int)both);
}

/* variance and gamma from the root */
static void spread_out(Model *m) {
    for (int i = 0; i < m->k; i++) {
        const double *row = m->root + (size_t)i * m->k;
        m->variance[i] = dot(row + i, row + i, m->k - i);
        double gamma = 1.0 - m->alpha[i] * m->variance[i];
        m->gamma[i] = gamma < 0.0 ? 0.0 : gamma > 1.0 ? 1.0 : gamma;
    }
}

/* laplace.laplace: the mode of m->Phi at m->alpha from the weights in m->mean. 0 where Python has to do it. */
static int find_mode(Task *task, Model *m) {
    int n = task->n, k = m->k, done = 0;
    task->spent += 4.0 * n * (25.0 + 0.5 * k + 0.05 * k * k);
    size_t room = (size_t)k * k + k + ROWS;
    double *work = malloc(sizeof(double) * (3 * (size_t)n + 5 * (size_t)k + shares_of(task) * room));
    if (!work) return 0;
    double *f2 = work, *r2 = f2 + n, *W2 = r2 + n;
    double *spread = W2 + n, *v = spread + k, *trial = v + k, *w = trial + k, *own = w + k;
    double *L = own + k, *g = L + (size_t)k * k;
    for (int j = 0; j < k; j++) {
        spread[j] = 1.0 / sqrt(m->alpha[j]);
        v[j] = m->mean[j] / spread[j];
    }
    double value = at(task, m->Phi, k, m->mean, m->f, m->r, m->W) - 0.5 * dot(v, v, k), best = INFINITY;
    if (!(value > -INFINITY)) {
        memset(v, 0, sizeof(double) * k);
        value = at(task, m->Phi, 0, NULL, m->f, m->r, m->W);
    }
    for (int turn = 0, idle = 0; turn < MOST_NEWTON; turn++) {
        moments(task, m, L);
        for (int i = 0; i < k; i++) {
            for (int j = 0; j <= i; j++) L[(size_t)i * k + j] *= spread[i] * spread[j];
            L[(size_t)i * k + i] += 1.0;
            own[i] = L[(size_t)i * k + i];
        }
        if (!cholesky(L, k)) goto end;
        for (int i = 0; i < k; i++) {
            double pivot = L[(size_t)i * k + i] * L[(size_t)i * k + i];
            if (!(own[i] <= NORMAL_EQUATIONS_LIMIT || pivot > LEAST_PIVOT * own[i])) goto end;
        }
        if (!k) break;
        for (int j = 0; j < k; j++) g[j] = spread[j] * g[j] - v[j];
        solve_lower(L, k, g);
        double decrement = dot(g, g, k), size = fabs(value) > 1.0 ? fabs(value) : 1.0;
        int small = decrement < ROUGHLY * size;
        if (small && (decrement < EXACTLY * size || decrement >= 0.5 * best)) break;
        if (idle == IDLE) break; /* rounding, of weights of 1e12 say, hides where the mode is */
        best = decrement;
        solve_lower_transposed(L, k, g);
        double length = 1.0, new;
        for (;;) {
            for (int j = 0; j < k; j++) {
                trial[j] = v[j] + length * g[j];
                w[j] = spread[j] * trial[j];
            }
            new = at(task, m->Phi, k, w, f2, r2, W2) - 0.5 * dot(trial, trial, k);
            if (small || new >= value + 1e-4 * length * decrement || length < 1e-12) break;
            length *= 0.5;
        }
        idle += !(small || new > value);
        memcpy(v, trial, sizeof(double) * k);
        memcpy(m->f, f2, sizeof(double) * n);
        memcpy(m->r, r2, sizeof(double) * n);
        memcpy(m->W, W2, sizeof(double) * n);
        value = new;
    }
    m->log_evidence = value;
    for (int j = 0; j < k; j++) {
        m->log_evidence -= log(L[(size_t)j * k + j]);
        m->mean[j] = spread[j] * v[j];
    }
    inverse_factor(L, k, m->root);
    for (int i = 0; i < k; i++)
        for (int j = i; j < k; j++) m->root[(size_t)i * k + j] *= spread[i];
    spread_out(m);
    done = isfinite(m->log_evidence);
end:
    free(work);
    return done;
}

/* The same columns at other precisions, from given weights */
static Model *moved_to(Task *task, const Model *m, const double *alpha, const double *start) {
    Model *new = room_beside(task, m->k, m->Phi);
    if (!new) return NULL;
    new->owners = m->owners;
    if (new->owners) ++*new->owners;
    memcpy(new->alpha, alpha, sizeof(double) * m->k);
    memcpy(new->mean, start, sizeof(double) * m->k);
    memcpy(new->column, m->column, sizeof(int) * m->k);
    memcpy(new->refused, m->refused, m->k);
    if (find_mode(task, new)) return new;
    release(new);
    return NULL;
}

/* LaplaceModel.without */
static Model *without(Task *task, const Model *m, const char *leave) {
    int k = m->k, n = task->n, gone = 0, kept = 0;
    for (int i = 0; i < k; i++) gone += leave[i] != 0;
    Model *new = room_for(task, k - gone);
    double *S = malloc(sizeof(double) * ((size_t)gone * gone + gone + 1)), *x = S ? S + (size_t)gone * gone : NULL;
    int *which = malloc(sizeof(int) * (gone + 1));
    if (!new || !S || !which) goto fail;
    for (int i = 0, a = 0; i < k; i++)
        if (leave[i]) which[a++] = i;
    for (int a = 0; a < gone; a++) { /* Sigma_ij = root_i . root_j over the columns from the later on */
        int i = which[a];
        x[a] = m->mean[i];
        for (int b = 0; b <= a; b++)
            S[(size_t)a * gone + b] = dot(m->root + (size_t)i * k + i, m->root + (size_t)which[b] * k + i, k - i);
    }
    int known = cholesky(S, gone);
    if (known) {
        solve_lower(S, gone, x);
        solve_lower_transposed(S, gone, x);
    }
    for (int i = 0; i < k; i++) {
        if (leave[i]) continue;
        double shift = 0.0;
        for (int a = 0; a < gone && known; a++) {
            int from = i > which[a] ? i : which[a];
            shift += x[a] * dot(m->root + (size_t)i * k + from, m->root + (size_t)which[a] * k + from, k - from);
        }
        memcpy(new->Phi + (size_t)kept * n, m->Phi + (size_t)i * n, sizeof(double) * n);
        new->alpha[kept] = m->alpha[i];
        new->mean[kept] = m->mean[i] - shift;
        new->column[kept] = m->column[i];
        new->refused[kept++] = m->refused[i];
    }
    if (!find_mode(task, new)) goto fail;
    free(S);
    free(which);
    return new;
fail:
    free(S);
    free(which);
    release(new);
    return NULL;
}

static int not_lower(double new, double old) {
    double size = fabs(old) > 1.0 ? fabs(old) : 1.0;
    return new >= old - SLACK * size;
}

static double trust(const Model *m) {
    double total = 0.0, square = 0.0;
    for (int i = 0; i < m->k; i++) {
        total += m->gamma[i];
        square += m->alpha[i] * m->mean[i] * m->mean[i];
    }
    return total > 0.0 ? square / total : 1.0;
}

/* _laplace.prune; takes the model over. NULL where Python has to do it. */
static Model *prune(Task *task, Model *m) {
    while (m->k) {
        int k = m->k, dead = 0, worst = -1;
        double most = -INFINITY;
        char *leave = calloc(k, 1);
        if (!leave) break;
        for (int i = 0; i < k; i++) {
            /* TF03 eq. (21): q^2 <= s with s = gamma / variance, q = mean / variance */
            double ratio = m->mean[i] * m->mean[i] / m->variance[i];
            if (m->refused[i] || ratio / m->variance[i] > m->gamma[i] / m->variance[i]) continue;
            double gain = 0.5 * (-log(m->alpha[i] * m->variance[i]) - ratio);
            leave[i] = 1;
            dead++;
            if (gain > most || worst < 0) {
                most = gain;
                worst = i;
            }
        }
        if (!dead) {
            free(leave);
            return m;
        }
        Model *fewer = without(task, m, leave);
        int failed = !fewer;
        if (fewer && !not_lower(fewer->log_evidence + task->shift, m->log_evidence + task->shift)) {
            release(fewer);
            fewer = NULL;
            if (dead > 1) {
                char *one = calloc(k, 1);
                if (one) {
                    one[worst] = 1;
                    fewer = without(task, m, one);
                    failed = !fewer;
                    if (fewer && !not_lower(fewer->log_evidence + task->shift, m->log_evidence + task->shift)) {
                        release(fewer);
                        fewer = NULL;
                    }
                    free(one);
                } else
                    failed = 1;
            }
        }
        if (!fewer && !failed)
            for (int i = 0; i < k; i++) m->refused[i] |= leave[i];
        free(leave);
        if (failed) {
            release(m);
            return NULL;
        }
        if (fewer) {
            release(m);
            m = fewer;
        }
    }
    return m;
}

typedef struct {
    const Task *task;
    const Model *m;
    double *sums; /* for every share back (k) and two columns of ROWS numbers */
} Pull;

/* Phi's (k) with s = -1/2 dB/df times the variance of f */
static void pull_part(void *with, int first, int end, int share) {
    Pull *pull = with;
    const Model *m = pull->m;
    size_t n = pull->task->n, k = m->k;
    double *back = pull->sums + share * (k + 2 * ROWS), *s = back + k, *part = s + ROWS;
    memset(back, 0, sizeof(double) * k);
    for (int a = first; a < end; a += ROWS) {
        int rows = rows_from(a, end);
        memset(s, 0, sizeof(double) * rows);
        for (size_t j = 0; j < k; j++) { /* column j of Phi root */
            memset(part, 0, sizeof(double) * rows);
            for (size_t i = 0; i <= j; i++) add_scaled(part, m->root[i * k + j], m->Phi + i * n + a, rows);
            for (int b = 0; b < rows; b++) s[b] += part[b] * part[b];
        }
        for (int b = 0; b < rows; b++) { /* 1 - 2p = -tanh(f/2) */
            double slope = pull->task->kind == POISSON ? m->W[a + b] : -m->W[a + b] * tanh(0.5 * m->f[a + b]);
            s[b] *= -0.5 * slope;
        }
        dots(m->Phi + a, (int)k, n, s, rows, back, 1);
    }
}

/* _laplace._slopes: gradient g (k), minus the linearised Hessian H (k x k), the diagonal em (k) it is damped towards */
static int slopes(const Task *task, const Model *m, double *g, double *H, double *em) {
    int k = m->k, shares = shares_of(task);
    size_t room = (size_t)k + 2 * ROWS;
    double *back = malloc(sizeof(double) * (shares * room + (size_t)k + (size_t)k * k));
    if (!back) return 0;
    double *v = back + shares * room, *Sigma = v + k;
    Pull pull = {task, m, back};
    share_out(task, pull_part, &pull);
    for (int share = 1; share < shares; share++) add_scaled(back, 1.0, back + share * room, k);
    for (int i = 0; i < k; i++) {
        v[i] = sqrt(m->alpha[i]) * m->mean[i];
        for (int j = 0; j <= i; j++)
            Sigma[(size_t)i * k + j] = Sigma[(size_t)j * k + i] =
                dot(m->root + (size_t)i * k + i, m->root + (size_t)j * k + i, k - i);
    }
    for (int i = 0; i < k; i++) {
        double root = sqrt(m->alpha[i]);
        g[i] = 0.5 * (m->gamma[i] - m->alpha[i] * m->mean[i] * m->mean[i]) -
               m->alpha[i] * m->mean[i] * dot(Sigma + (size_t)i * k, back, k);
        em[i] = 0.5 * m->alpha[i] * (m->mean[i] * m->mean[i] + m->variance[i]);
        for (int j = 0; j < k; j++) {
            double B = root * sqrt(m->alpha[j]) * Sigma[(size_t)i * k + j];
            H[(size_t)i * k + j] = -(v[i] * v[j] * B + 0.5 * B * B);
        }
        H[(size_t)i * k + i] += em[i];
    }
    free(back);
    return 1;
}

/* The curvature corrected by what the gradient did on the way (BFGS): _laplace._with_secants */
static void add_secants(double *H, int k, const double *path, int points, double *work) {
    double *s = work, *y = s + k, *Hs = y + k;
    for (int p = 0; p + 1 < points; p++) {
        const double *old = path + (size_t)p * 2 * k, *new = old + 2 * k;
        for (int i = 0; i < k; i++) {
            s[i] = new[i] - old[i];
            y[i] = old[k + i] - new[k + i];
        }
        for (int i = 0; i < k; i++) Hs[i] = dot(H + (size_t)i * k, s, k);
        double sHs = dot(s, Hs, k), sy = dot(s, y, k);
        if (!(sHs > 0.0 && sy > 1e-2 * sHs)) continue;
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) H[(size_t)i * k + j] += y[i] * y[j] / sy - Hs[i] * Hs[j] / sHs;
    }
}

/* Solution of (H + damping diag(em)) x = g; 0 where that is not positive definite */
static int damped(const double *H, const double *em, double damping, const double *g, int k, double *L, double *x) {
    memcpy(L, H, sizeof(double) * k * k);
    for (int i = 0; i < k; i++) L[(size_t)i * k + i] += damping * em[i];
    if (!cholesky(L, k)) return 0;
    memcpy(x, g, sizeof(double) * k);
    solve_lower(L, k, x);
    solve_lower_transposed(L, k, x);
    for (int i = 0; i < k; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

/* _laplace.relax; takes the model over. NULL where Python has to do it. */
static Model *relax(Task *task, Model *m, int steps, double accuracy, double *expected) {
    double damping = 0.0;
    int k0 = m->k, points = 0, size = -1;
    size_t square = (size_t)k0 * k0;
    double *work = malloc(sizeof(double) * (2 * square + 8 * (size_t)(k0 + 1) + 2 * (size_t)k0 * (MEMORY + 1)));
    *expected = 0.0;
    if (!work) {
        release(m);
        return NULL;
    }
    double *H = work, *L = H + square, *g = L + square, *em = g + k0, *x = em + k0, *alpha = x + k0;
    double *start = alpha + k0, *temporary = start + k0, *path = temporary + 3 * (k0 + 1);
    for (int turn = 0; turn < steps; turn++) {
        m = prune(task, m);
        if (!m) goto fail;
        int k = m->k;
        if (k != size) points = 0;
        size = k;
        if (!k) {
            *expected = 0.0;
            free(work);
            return m;
        }
        if (!slopes(task, m, g, H, em)) goto fail;
        if (points == MEMORY + 1) memmove(path, path + 2 * k, sizeof(double) * 2 * k * MEMORY), points--;
        for (int i = 0; i < k; i++) {
            path[(size_t)points * 2 * k + i] = log(m->alpha[i]);
            path[(size_t)points * 2 * k + k + i] = g[i];
        }
        points++;
        add_secants(H, k, path, points, temporary);
        double old = m->log_evidence + task->shift, longest = 0.0;
        Model *moved = NULL;
        for (int tries = 0; tries < 30 && !moved; tries++) {
            if (damped(H, em, damping, g, k, L, x)) {
                longest = 0.0;
                for (int i = 0; i < k; i++) longest = fabs(x[i]) > longest ? fabs(x[i]) : longest;
                if (longest > LONGEST)
                    for (int i = 0; i < k; i++) x[i] *= LONGEST / longest;
                /* dw/dlog alpha_j = -Sigma_j alpha_j w_j tells where the mode goes */
                for (int j = 0; j < k; j++) {
                    temporary[j] = 0.0;
                    for (int i = 0; i <= j; i++)
                        temporary[j] += m->root[(size_t)i * k + j] * m->alpha[i] * m->mean[i] * x[i];
                }
                for (int i = 0; i < k; i++) {
                    alpha[i] = m->alpha[i] * exp(x[i]);
                    start[i] = m->mean[i];
                    if (longest < 1.0) start[i] -= dot(m->root + (size_t)i * k + i, temporary + i, k - i);
                }
                Model *trial = moved_to(task, m, alpha, start);
                if (!trial) {
                    release(m);
                    goto fail;
                }
                if (not_lower(trial->log_evidence + task->shift, old)) {
                    double least = trust(m);
                    if (trust(trial) < (least < task->trusted ? least : task->trusted)) {
                        release(trial);
                        *expected = 0.0;
                        free(work);
                        return m;
                    }
                    moved = trial;
                    break;
                }
                release(trial);
            }
            damping = 4.0 * damping > 0.1 ? 4.0 * damping : 0.1;
        }
        if (!moved) break;
        *expected = 0.5 * dot(g, x, k);
        damping = damping > 0.1 ? 0.25 * damping : 0.0;
        release(m);
        m = moved;
        double least = 1e-14 * fabs(old);
        if (*expected < (accuracy > least ? accuracy : least)) break;
    }
    free(work);
    return prune(task, m);
fail:
    free(work);
    return NULL;
}

/* ---------------------------------------------------------------- the search: moves on a dictionary held in memory */

typedef struct {
    Task *task;
    double *Phi;          /* M columns of n, or NULL for a factored dictionary: */
    float *G, *D;         /* rank columns of n, M rows of rank: Phi ~= G D' */
    float *E, *R;         /* the same for the squares of the entries */
    int rank, squares;
    const int64_t *order; /* M: rank of each atom by content */
    int M, most, failed;
    const char *closed;   /* M: atoms that are not offered */
    double error, tol, scan_size;
} Search;

static void fetch(const Search *s, int atom, double *into) {
    int n = s->task->n;
    if (!s->rank) {
        memcpy(into, s->Phi + (size_t)atom * n, sizeof(double) * n);
        return;
    }
    memset(into, 0, sizeof(double) * n);
    for (int c = 0; c < s->rank; c++)
        add_single(into, s->D[(size_t)atom * s->rank + c], s->G + (size_t)c * n, n);
}

typedef struct {
    double *S, *Q, *gains, *alpha; /* M */
    double *T;                     /* k x M */
} Scan;

typedef struct {
    double key;
    int64_t rank;
    int place;
} Ranked;

static int by_key(const void *a, const void *b) { /* larger keys first, among equals the lower rank */
    const Ranked *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static double objective(const Search *s, const Model *m) { return m->log_evidence + s->task->shift; }

static double gain_add(double S, double Q) {
    double ratio = S > 0.0 ? Q * Q / S : 0.0;
    return ratio > 1.0 ? 0.5 * (ratio - 1.0 - log(ratio)) : 0.0;
}

static void drop(Scan *found) {
    if (found) free(found->S);
    free(found);
}

/* Mask of the atoms that may enter */
static void outside(const Search *s, const Model *m, char *free_atoms) {
    for (int j = 0; j < s->M; j++) free_atoms[j] = !s->closed[j];
    for (int i = 0; i < m->k; i++) free_atoms[m->column[i]] = 0;
}

/* _laplace_scan.scan */
static Scan *scan(Search *s, const Model *m) {
    int n = s->task->n, k = m->k, M = s->M;
    Scan *found = calloc(1, sizeof(Scan));
    double *Y = malloc(sizeof(double) * ((size_t)n * (k + 1)));
    char *free_atoms = malloc(M);
    if (found) found->S = malloc(sizeof(double) * M * (size_t)(4 + k));
    if (!found || !found->S || !Y || !free_atoms) {
        s->failed = 1;
        drop(found);
        free(Y);
        free(free_atoms);
        return NULL;
    }
    s->task->spent += s->scan_size * (0.3 + 0.1 * (1 + k));
    found->Q = found->S + M;
    found->gains = found->Q + M;
    found->alpha = found->gains + M;
    found->T = found->alpha + M;
    for (int j = 0; j < k; j++) {
        double *y = Y + (size_t)j * n;
        memset(y, 0, sizeof(double) * n);
        for (int i = 0; i <= j; i++) add_scaled(y, m->root[(size_t)i * k + j], m->Phi + (size_t)i * n, n);
        for (int a = 0; a < n; a++) y[a] *= m->W[a];
    }
    memcpy(Y + (size_t)k * n, m->r, sizeof(double) * n);
    outside(s, m, free_atoms);
    int rank = s->rank, squares = s->squares, rows = k + 1;
    double *work = malloc(sizeof(double) * ((size_t)M * (k + 2) + n)), *diagonals = work + (size_t)M * (k + 1);
    float *single = rank ? malloc(sizeof(float) * ((size_t)rows * ((size_t)n + rank + M) + n + squares + M)) : NULL;
    if (!work || (rank && !single)) s->failed = 1;
    if (rank && !s->failed) {
        /* the rows in coordinates of the factors first: n k c + c k M products instead of n k M */
        float *Y1 = single, *inner = Y1 + (size_t)rows * n, *outer = inner + (size_t)rows * rank;
        float *W = outer + (size_t)rows * M, *square = W + n, *diagonal = square + squares;
        for (size_t a = 0; a < (size_t)rows * n; a++) Y1[a] = (float)Y[a];
        for (int a = 0; a < n; a++) W[a] = (float)m->W[a];
        for (int c = 0; c < rank; c++) single_dots(Y1, rows, s->G + (size_t)c * n, n, inner + c, rank);
        for (int c = 0; c < squares; c++) square[c] = single_dot(W, s->E + (size_t)c * n, n);
        for (int j = 0; j < M; j++) {
            single_dots(inner, rows, s->D + (size_t)j * rank, rank, outer + j, M);
            diagonal[j] = single_dot(square, s->R + (size_t)j * squares, squares);
        }
        for (size_t a = 0; a < (size_t)rows * M; a++) work[a] = outer[a];
        for (int j = 0; j < M; j++) diagonals[j] = diagonal[j];
    } else if (!s->failed) {
        double *column = diagonals + M;
        for (int j = 0; j < M; j++) {
            for (int i = 0; i < rows; i++) work[(size_t)i * M + j] = 0.0;
            dots(Y, rows, n, s->Phi + (size_t)j * n, n, work + j, M);
            weigh(m->W, s->Phi + (size_t)j * n, column, n);
            diagonals[j] = dot(column, s->Phi + (size_t)j * n, n);
        }
    }
    if (!s->failed) memcpy(found->T, work, sizeof(double) * k * (size_t)M);
    for (int j = 0; j < M && !s->failed; j++) {
        double diagonal = diagonals[j], S = diagonal, Q = work[(size_t)k * M + j];
        for (int i = 0; i < k; i++) S -= work[(size_t)i * M + j] * work[(size_t)i * M + j];
        if (S < s->error * diagonal) S = 0.0;
        double theta = Q * Q - S;
        found->S[j] = S;
        found->Q[j] = Q;
        found->alpha[j] = theta > 0.0 ? S * S / theta : INFINITY;
        found->gains[j] = free_atoms[j] ? gain_add(S, Q) : 0.0;
    }
    free(Y);
    free(single);
    free(work);
    free(free_atoms);
    if (!s->failed) return found;
    drop(found);
    return NULL;
}

/* Products of a column x (n) with every atom, into (M) */
static void project(Search *s, const double *x, double *into) {
    int n = s->task->n;
    if (!s->rank) {
        for (int j = 0; j < s->M; j++) into[j] = dot(x, s->Phi + (size_t)j * n, n);
        return;
    }
    float *single = malloc(sizeof(float) * ((size_t)n + s->rank)), *inner = single + n;
    if (!single) {
        s->failed = 1;
        return;
    }
    for (int a = 0; a < n; a++) single[a] = (float)x[a];
    for (int c = 0; c < s->rank; c++) inner[c] = single_dot(single, s->G + (size_t)c * n, n);
    for (int j = 0; j < s->M; j++) into[j] = single_dot(inner, s->D + (size_t)j * s->rank, s->rank);
    free(single);
}

/* _laplace_scan.overlaps of two candidates whose columns have phi_a' W phi_b = inner */
static double overlap(const Search *s, const Model *m, const Scan *found, int a, int b, double inner) {
    for (int i = 0; i < m->k; i++) inner -= found->T[(size_t)i * s->M + a] * found->T[(size_t)i * s->M + b];
    double Sa = found->S[a] > 1e-300 ? found->S[a] : 1e-300, Sb = found->S[b] > 1e-300 ? found->S[b] : 1e-300;
    return fabs(inner) / sqrt(Sa) / sqrt(Sb);
}

static int first_of(const Search *s, const double *gains) {
    double largest = 0.0;
    int first = -1;
    for (int j = 0; j < s->M; j++) largest = gains[j] > largest ? gains[j] : largest;
    double least = largest - TIE * (largest > 1.0 ? largest : 1.0);
    for (int j = 0; j < s->M; j++)
        if (gains[j] >= least && (first < 0 || s->order[j] < s->order[first])) first = j;
    return first;
}

/* _laplace_search._batch: how many atoms were chosen */
static int choose(Search *s, const Model *m, const Scan *found, const double *gains, int first, int batch, int *chosen) {
    int count = 0, taken = 1, n = s->task->n;
    chosen[0] = first;
    Ranked *near = batch > 1 ? malloc(sizeof(Ranked) * s->M) : NULL;
    double *columns = batch > 1 ? malloc(sizeof(double) * n * (size_t)(batch + 1)) : NULL, *column = columns;
    if (!near || !columns) {
        free(near);
        free(columns);
        return 1;
    }
    fetch(s, first, column);
    columns += n;
    weigh(m->W, column, columns, n);
    for (int j = 0; j < s->M; j++)
        if (gains[j] >= WORTH * gains[first])
            near[count++] = (Ranked){nearbyint(gains[j] / gains[first] * 1e9), s->order[j], j};
    qsort(near, count, sizeof(Ranked), by_key);
    for (int a = 0; a < count && a < 8 * batch && taken < batch; a++) {
        int apart = near[a].place != first;
        if (apart) fetch(s, near[a].place, column);
        for (int b = 0; b < taken && apart; b++)
            apart = overlap(s, m, found, chosen[b], near[a].place, dot(columns + (size_t)b * n, column, n)) <= APART;
        if (!apart) continue;
        weigh(m->W, column, columns + (size_t)taken * n, n);
        chosen[taken++] = near[a].place;
    }
    free(near);
    free(column);
    return taken;
}

/* The model with further atoms at the precisions and weights of the scan */
static Model *joined(Search *s, const Model *m, const Scan *found, const int *atoms, int count) {
    int n = s->task->n, k = m->k;
    if (k + count > s->most) {
        s->failed = 1;
        return NULL;
    }
    Model *new = room_for(s->task, k + count);
    if (!new) {
        s->failed = 1;
        return NULL;
    }
    memcpy(new->Phi, m->Phi, sizeof(double) * k * n);
    memcpy(new->alpha, m->alpha, sizeof(double) * k);
    memcpy(new->mean, m->mean, sizeof(double) * k);
    memcpy(new->column, m->column, sizeof(int) * k);
    memcpy(new->refused, m->refused, k);
    for (int i = 0; i < count; i++) {
        int a = atoms[i];
        fetch(s, a, new->Phi + (size_t)(k + i) * n);
        new->alpha[k + i] = found->alpha[a];
        new->mean[k + i] = found->Q[a] / (found->alpha[a] + found->S[a]);
        new->column[k + i] = a;
    }
    new->atom = atoms[0];
    if (find_mode(s->task, new)) return new;
    s->failed = 1;
    release(new);
    return NULL;
}

static Model *relaxed(Search *s, Model *m, int steps) {
    double expected;
    int atom = m->atom;
    m = relax(s->task, m, steps, 1e-3 * s->tol, &expected);
    if (m)
        m->atom = atom;
    else
        s->failed = 1;
    return m;
}

static int trusted(const Search *s, const Model *new, const Model *old) {
    double least = trust(old);
    return trust(new) >= (least < s->task->trusted ? least : s->task->trusted);
}

/* _laplace_search.tempered; takes the model over */
static Model *tempered(Search *s, Model *new, const Model *old) {
    for (int turn = 0; turn < 4 && new && !trusted(s, new, old); turn++) {
        double *alpha = malloc(sizeof(double) * (new->k + 1));
        if (alpha) {
            for (int i = 0; i < new->k; i++) {
                double a = new->gamma[i] / (new->mean[i] * new->mean[i]);
                a = a > new->alpha[i] ? a : new->alpha[i];
                alpha[i] = a < 1e3 * new->alpha[i] ? a : 1e3 * new->alpha[i];
            }
            Model *next = moved_to(s->task, new, alpha, new->mean);
            if (next) next->atom = new->atom;
            release(new);
            new = next;
        }
        free(alpha);
    }
    if (!new) s->failed = 1;
    return new;
}

/* _laplace_search.grow: the larger model, or NULL and in most the largest refitted gain */
static Model *grow(Search *s, const Model *m, const Scan *found, int batch, double tol, double *most) {
    double *gains = malloc(sizeof(double) * s->M);
    int *chosen = malloc(sizeof(int) * batch);
    Ranked *near = malloc(sizeof(Ranked) * s->M);
    double *columns = malloc(sizeof(double) * (2 * (size_t)s->task->n + s->M)), *inner = columns + 2 * (size_t)s->task->n;
    Model *answer = NULL;
    *most = 0.0;
    if (!gains || !chosen || !near || !columns) {
        s->failed = 1;
        goto end;
    }
    memcpy(gains, found->gains, sizeof(double) * s->M);
    for (int turn = 0; turn < REFUTED; turn++) {
        int first = first_of(s, gains), count = 0;
        if (first < 0 || gains[first] <= tol) {
            if (first >= 0 && gains[first] > *most) *most = gains[first];
            goto end;
        }
        for (int size = choose(s, m, found, gains, first, batch, chosen); size; size /= 2) {
            Model *grown = joined(s, m, found, chosen, size);
            if (!grown) goto end;
            if (objective(s, grown) > objective(s, m) - 0.5 * gains[first]) {
                grown = relaxed(s, grown, 2);
                if (grown) grown = tempered(s, grown, m);
                if (!grown) goto end;
                double gain = trusted(s, grown, m) ? objective(s, grown) - objective(s, m) : 0.0;
                if (gain > 0.1 * tol) {
                    *most = gain;
                    answer = grown;
                    goto end;
                }
                *most = gain > *most ? gain : *most;
            }
            release(grown);
        }
        /* the refitted evidence refutes what the scan promised, for this atom and its near-copies */
        gains[first] = 0.0;
        for (int j = 0; j < s->M; j++)
            if (gains[j] > tol) near[count++] = (Ranked){gains[j], s->order[j], j};
        qsort(near, count, sizeof(Ranked), by_key);
        fetch(s, first, columns);
        weigh(m->W, columns, columns + s->task->n, s->task->n);
        project(s, columns + s->task->n, inner);
        for (int a = 0; a < count && a < 256; a++)
            if (overlap(s, m, found, first, near[a].place, inner[near[a].place]) > 0.99) gains[near[a].place] = 0.0;
    }
end:
    free(columns);
    free(gains);
    free(chosen);
    free(near);
    return answer;
}

static double gain_delete(const Model *m, int i) {
    return 0.5 * (-log(m->alpha[i] * m->variance[i]) - m->mean[i] * m->mean[i] / m->variance[i]);
}

/* _laplace.within_reach */
static int within_reach(const Search *s, const Model *m, double goal) {
    static const double damping[] = {0.0, 0.1, 1.0}, generous[] = {2.0, 10.0, 10.0};
    double missing = goal - objective(s, m);
    int k = m->k, answer = 1;
    if (missing <= 0.0 || !k) return missing <= 0.0;
    double *work = malloc(sizeof(double) * (2 * (size_t)k * k + 3 * (size_t)k));
    if (!work) return 1;
    double *H = work, *L = H + (size_t)k * k, *g = L + (size_t)k * k, *em = g + k, *x = em + k;
    if (slopes(s->task, m, g, H, em))
        for (int turn = 0; turn < 3; turn++)
            if (damped(H, em, damping[turn], g, k, L, x)) {
                answer = generous[turn] * 0.5 * dot(g, x, k) > missing;
                break;
            }
    free(work);
    return answer;
}

/* _laplace_search.shrink */
static Model *shrink(Search *s, const Model *m, double tol, double *most) {
    int k = m->k;
    *most = 0.0;
    if (!k) return NULL;
    Ranked *worst = malloc(sizeof(Ranked) * k);
    char *leave = calloc(k, 1);
    Model *answer = NULL;
    if (!worst || !leave) s->failed = 1;
    for (int i = 0; i < k && !s->failed; i++) worst[i] = (Ranked){gain_delete(m, i), i, i};
    if (!s->failed) qsort(worst, k, sizeof(Ranked), by_key);
    for (int a = 0; a < k && a < 4 && !s->failed && worst[a].key >= -1.0; a++) {
        leave[worst[a].place] = 1;
        Model *fewer = without(s->task, m, leave);
        leave[worst[a].place] = 0;
        if (!fewer) {
            s->failed = 1;
            break;
        }
        fewer->atom = m->atom;
        if (!within_reach(s, fewer, objective(s, m))) {
            release(fewer);
            continue;
        }
        fewer = relaxed(s, fewer, 3);
        if (!fewer) break;
        double gain = trusted(s, fewer, m) ? objective(s, fewer) - objective(s, m) : 0.0;
        *most = gain > *most ? gain : *most;
        if (gain > tol) {
            answer = fewer;
            break;
        }
        release(fewer);
    }
    free(worst);
    free(leave);
    return answer;
}

typedef struct {
    int entering;
    double alpha, weight;
} Swap;

/* _laplace_search._swap */
static Model *swapped(Search *s, const Model *m, int place, Swap swap) {
    int n = s->task->n, k = m->k;
    Model *new = room_for(s->task, k);
    if (!new) return NULL;
    memcpy(new->Phi, m->Phi, sizeof(double) * k * n);
    fetch(s, swap.entering, new->Phi + (size_t)place * n);
    memcpy(new->alpha, m->alpha, sizeof(double) * k);
    memcpy(new->mean, m->mean, sizeof(double) * k);
    memcpy(new->column, m->column, sizeof(int) * k);
    new->alpha[place] = swap.alpha;
    new->mean[place] = swap.weight;
    new->column[place] = new->atom = swap.entering;
    if (find_mode(s->task, new)) return new;
    release(new);
    return NULL;
}

/* _laplace_search.exchange */
static Model *exchange(Search *s, const Model *m, const Scan *found, double tol, double *most) {
    int k = m->k, M = s->M;
    *most = 0.0;
    if (!k) return NULL;
    Ranked *ranked = malloc(sizeof(Ranked) * k);
    Swap *swaps = malloc(sizeof(Swap) * k);
    double *cross = malloc(sizeof(double) * 2 * M), *ratio = cross ? cross + M : NULL;
    char *free_atoms = malloc(M);
    Model *answer = NULL;
    if (!ranked || !swaps || !cross || !free_atoms) {
        s->failed = 1;
        goto end;
    }
    outside(s, m, free_atoms);
    for (int i = 0; i < k; i++) {
        double top = 0.0, v = m->variance[i], mu = m->mean[i];
        int best = -1;
        memset(cross, 0, sizeof(double) * M); /* row i of Sigma Phi_a' B Phi */
        for (int j = i; j < k; j++) {
            double c = m->root[(size_t)i * k + j];
            const double *T = found->T + (size_t)j * M;
            for (int a = 0; a < M; a++) cross[a] += c * T[a];
        }
        for (int a = 0; a < M; a++) {
            double S = found->S[a] + cross[a] * cross[a] / v, Q = found->Q[a] + cross[a] * mu / v;
            ratio[a] = free_atoms[a] && found->S[a] > 0.0 && S > 0.0 ? Q * Q / S : 0.0;
            top = ratio[a] > top ? ratio[a] : top;
        }
        for (int a = 0; a < M; a++)
            if (ratio[a] >= top * (1.0 - TIE) && (best < 0 || s->order[a] < s->order[best])) best = a;
        double S = found->S[best] + cross[best] * cross[best] / v, Q = found->Q[best] + cross[best] * mu / v;
        double theta = Q * Q - S > 1e-3 * S ? Q * Q - S : 1e-3 * S;
        double gain = ratio[best] > 0.0 ? gain_delete(m, i) + gain_add(S, Q) : -INFINITY;
        swaps[i] = (Swap){best, S * S / theta, 0.0};
        swaps[i].weight = Q / (swaps[i].alpha + S);
        ranked[i] = (Ranked){isfinite(gain) ? nearbyint(gain * 1e9) / 1e9 : gain, s->order[m->column[i]], i};
    }
    qsort(ranked, k, sizeof(Ranked), by_key);
    for (int a = 0; a < k && a < TRIES && ranked[a].key >= HOPELESS; a++) {
        Model *new = swapped(s, m, ranked[a].place, swaps[ranked[a].place]);
        if (!new) {
            s->failed = 1;
            goto end;
        }
        if (!within_reach(s, new, objective(s, m))) {
            release(new);
            continue;
        }
        new = relaxed(s, new, 2);
        if (!new) goto end;
        double gain = objective(s, new) - objective(s, m);
        if (gain > -0.3 && gain <= tol) {
            new = relaxed(s, new, 6);
            if (!new) goto end;
            gain = objective(s, new) - objective(s, m);
        }
        if (trusted(s, new, m)) {
            *most = gain > *most ? gain : *most;
            if (gain > tol) {
                answer = relaxed(s, new, 20);
                goto end;
            }
        }
        release(new);
    }
end:
    free(ranked);
    free(swaps);
    free(cross);
    free(free_atoms);
    return answer;
}

/* _laplace_search.settle; takes the model over */
static Model *settle(Search *s, Model *m, int batch, int exchanging, double work) {
    double most;
    while (!s->failed && s->task->spent < work) {
        Scan *found = scan(s, m);
        Model *better = found ? grow(s, m, found, batch, s->tol, &most) : NULL;
        drop(found);
        if (!better && !s->failed) {
            double before = objective(s, m);
            memset(m->refused, 0, m->k);
            m = relaxed(s, m, 60);
            if (!m) return NULL;
            if (objective(s, m) > before + 0.1 * s->tol) continue;
            better = shrink(s, m, s->tol, &most);
        }
        if (!better && !s->failed && exchanging) {
            found = scan(s, m);
            better = found ? exchange(s, m, found, s->tol, &most) : NULL;
            drop(found);
        }
        if (!better) break;
        release(m);
        m = better;
    }
    if (!s->failed) return m;
    release(m);
    return NULL;
}

/* The additions of _laplace_search._heated; takes the model over */
static Model *climb(Search *s, Model *m, int batch, double tol, int most_atoms, double work) {
    double most;
    while (!s->failed && m->k < most_atoms && s->task->spent < work) {
        Scan *found = scan(s, m);
        Model *grown = found ? grow(s, m, found, batch, tol, &most) : NULL;
        drop(found);
        if (!grown) break;
        release(m);
        m = grown;
    }
    if (!s->failed) return relaxed(s, m, 8);
    release(m);
    return NULL;
}

/* ---------------------------------------------------------------- Python */

typedef struct {
    Py_buffer view[12];
    int count;
} Views;

static int matches(Views *v, const size_t *numbers) {
    for (int i = 0; i < v->count; i++)
        if ((size_t)v->view[i].len != numbers[i] * sizeof(double)) {
            PyErr_Format(PyExc_ValueError, "array %d has %zd bytes, expected %zu", i, v->view[i].len,
                         numbers[i] * sizeof(double));
            return 0;
        }
    return 1;
}

static void let_go(Views *v) {
    for (int i = 0; i < v->count; i++) PyBuffer_Release(&v->view[i]);
}

static PyObject *numbers(const void *from, size_t count) {
    return PyBytes_FromStringAndSize(from, (Py_ssize_t)(count * sizeof(double)));
}

static PyObject *as_tuple(const Task *task, const Model *m, double expected) {
    size_t k = m->k;
    PyObject *columns = PyList_New(m->k), *refused = PyList_New(m->k);
    if (!columns || !refused) return NULL;
    for (int i = 0; i < m->k; i++) {
        PyList_SetItem(columns, i, PyLong_FromLong(m->column[i]));
        PyList_SetItem(refused, i, PyBool_FromLong(m->refused[i]));
    }
    return Py_BuildValue("NNNNNNddd", columns, refused, numbers(m->alpha, k), numbers(m->mean, k),
                         numbers(m->root, k * k), numbers(m->f, 3 * (size_t)task->n), m->log_evidence, expected,
                         task->spent);
}

static int all_one(const double *w, int n) {
    for (int i = 0; i < n; i++)
        if (w[i] != 1.0) return 0;
    return 1;
}

/* mode(kind, Phi, t, weights, alpha, start, constant, threads) */
static PyObject *py_mode(PyObject *self, PyObject *args) {
    (void)self;
    Views v = {.count = 5};
    Task task = {0};
    if (!PyArg_ParseTuple(args, "iy*y*y*y*y*di", &task.kind, &v.view[0], &v.view[1], &v.view[2], &v.view[3],
                          &v.view[4], &task.constant, &task.threads))
        return NULL;
    PyObject *answer = NULL;
    task.n = (int)(v.view[1].len / sizeof(double));
    size_t n = task.n, k = v.view[3].len / sizeof(double);
    if (matches(&v, (size_t[]){n * k, n, n, k, k})) {
        task.t = v.view[1].buf;
        task.weights = v.view[2].buf;
        Model *m = room_beside(&task, (int)k, v.view[0].buf); /* only read */
        int found = 0;
        Py_BEGIN_ALLOW_THREADS
        if (m) {
            task.units = all_one(task.weights, task.n);
            memcpy(m->alpha, v.view[3].buf, sizeof(double) * k);
            memcpy(m->mean, v.view[4].buf, sizeof(double) * k);
            found = find_mode(&task, m);
        }
        Py_END_ALLOW_THREADS
        answer = found ? as_tuple(&task, m, 0.0) : Py_NewRef(Py_None);
        release(m);
    }
    let_go(&v);
    return answer;
}

/* relax(kind, Phi, t, weights, alpha, mean, root, f, r, W, log_evidence, refused, steps, accuracy, trusted, shift,
 *       constant, threads) */
static PyObject *py_relax(PyObject *self, PyObject *args) {
    (void)self;
    Views v = {.count = 9};
    Py_buffer refused;
    Task task = {0};
    int steps;
    double log_evidence, accuracy, expected = 0.0;
    if (!PyArg_ParseTuple(args, "iy*y*y*y*y*y*y*y*y*dy*iddddi", &task.kind, &v.view[0], &v.view[1], &v.view[2],
                          &v.view[3], &v.view[4], &v.view[5], &v.view[6], &v.view[7], &v.view[8], &log_evidence, &refused, &steps,
                          &accuracy, &task.trusted, &task.shift, &task.constant, &task.threads))
        return NULL;
    PyObject *answer = NULL;
    task.n = (int)(v.view[1].len / sizeof(double));
    size_t n = task.n, k = v.view[3].len / sizeof(double);
    if (matches(&v, (size_t[]){n * k, n, n, k, k, k * k, n, n, n}) && (size_t)refused.len == k) {
        task.t = v.view[1].buf;
        task.weights = v.view[2].buf;
        Model *m = room_beside(&task, (int)k, v.view[0].buf); /* only read, by every model of this support */
        Py_BEGIN_ALLOW_THREADS
        if (m) {
            task.units = all_one(task.weights, task.n);
            memcpy(m->alpha, v.view[3].buf, sizeof(double) * k);
            memcpy(m->mean, v.view[4].buf, sizeof(double) * k);
            memcpy(m->root, v.view[5].buf, sizeof(double) * k * k);
            memcpy(m->f, v.view[6].buf, sizeof(double) * n);
            memcpy(m->r, v.view[7].buf, sizeof(double) * n);
            memcpy(m->W, v.view[8].buf, sizeof(double) * n);
            memcpy(m->refused, refused.buf, k);
            m->log_evidence = log_evidence;
            for (int i = 0; i < m->k; i++) m->column[i] = i;
            spread_out(m);
            m = relax(&task, m, steps, accuracy, &expected);
        }
        Py_END_ALLOW_THREADS
        answer = m ? as_tuple(&task, m, expected) : Py_NewRef(Py_None);
        release(m);
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "refused has another length than alpha");
    PyBuffer_Release(&refused);
    let_go(&v);
    return answer;
}

enum { GROW, SHRINK, EXCHANGE, SETTLE, CLIMB };

/* search(move, kind, dictionary, D, E, R, t, weights, order, closed, active, alpha, mean, refused, batch, flag, tol,
 *        work, scan_size, error, trusted, shift, constant, search_tol, most): the model after the move and the atom
 *        moved; the largest refitted gain and the work where no move helps; False where Python has to do it. flag is
 *        whether to exchange (SETTLE) or how many atoms are enough (CLIMB). D, E and R are empty where the dictionary
 *        is dense. */
static PyObject *py_search(PyObject *self, PyObject *args) {
    (void)self;
    enum { WHOLE, D, E, R, TARGET, WEIGHTS, ORDER, CLOSED, ACTIVE, ALPHA, MEAN, REFUSED, COUNT };
    Views v = {.count = COUNT};
    Py_buffer *in = v.view;
    Task task = {0};
    int move, batch, flag;
    double tol, work, gain = 0.0;
    Search s = {.task = &task};
    if (!PyArg_ParseTuple(args, "iiy*y*y*y*y*y*y*y*y*y*y*y*iiddddddddi", &move, &task.kind, &in[0], &in[1], &in[2],
                          &in[3], &in[4], &in[5], &in[6], &in[7], &in[8], &in[9], &in[10], &in[11], &batch, &flag, &tol,
                          &work, &s.scan_size, &s.error, &task.trusted, &task.shift, &task.constant, &s.tol, &s.most))
        return NULL;
    PyObject *answer = NULL;
    task.n = (int)(in[TARGET].len / sizeof(double));
    s.M = (int)(in[ORDER].len / sizeof(int64_t));
    size_t n = task.n, M = s.M, k = in[ALPHA].len / sizeof(double);
    s.rank = (int)(in[D].len / sizeof(float) / (M ? M : 1));
    s.squares = (int)(in[R].len / sizeof(float) / (M ? M : 1));
    int fits = (size_t)in[WHOLE].len == (s.rank ? n * s.rank * sizeof(float) : n * M * sizeof(double)) &&
               (size_t)in[D].len == M * s.rank * sizeof(float) &&
               (size_t)in[E].len == n * s.squares * sizeof(float) &&
               (size_t)in[R].len == M * s.squares * sizeof(float) && !s.rank == !s.squares &&
               in[WEIGHTS].len == in[TARGET].len && (size_t)in[CLOSED].len == M &&
               (size_t)in[ACTIVE].len == k * sizeof(int64_t) && in[MEAN].len == in[ALPHA].len &&
               (size_t)in[REFUSED].len == k && batch > 0 && (int)k <= s.most;
    const int64_t *active = in[ACTIVE].buf;
    for (size_t i = 0; i < k && fits; i++) fits = active[i] >= 0 && active[i] < (int64_t)M;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the arrays of a search do not fit each other");
        let_go(&v);
        return NULL;
    }
    Model *result = NULL;
    Py_BEGIN_ALLOW_THREADS
    s.Phi = in[WHOLE].buf;
    s.G = in[WHOLE].buf;
    s.D = in[D].buf;
    s.E = in[E].buf;
    s.R = in[R].buf;
    task.t = in[TARGET].buf;
    task.weights = in[WEIGHTS].buf;
    task.units = all_one(task.weights, task.n);
    s.order = in[ORDER].buf;
    s.closed = in[CLOSED].buf;
    Model *m = room_for(&task, (int)k);
    s.failed = !m;
    if (m) {
        for (size_t i = 0; i < k; i++) {
            fetch(&s, (int)active[i], m->Phi + i * n);
            m->column[i] = (int)active[i];
        }
        memcpy(m->alpha, in[ALPHA].buf, sizeof(double) * k);
        memcpy(m->mean, in[MEAN].buf, sizeof(double) * k);
        memcpy(m->refused, in[REFUSED].buf, k);
        m->atom = -1;
        s.failed = !find_mode(&task, m);
        task.spent = 0.0;
    }
    if (!s.failed && move == SETTLE) {
        result = settle(&s, m, batch, flag, work);
        m = NULL;
    } else if (!s.failed && move == CLIMB) {
        result = climb(&s, m, batch, tol, flag, work);
        m = NULL;
    } else if (!s.failed && move == SHRINK)
        result = shrink(&s, m, tol, &gain);
    else if (!s.failed) {
        Scan *found = scan(&s, m);
        if (found) result = move == GROW ? grow(&s, m, found, batch, tol, &gain) : exchange(&s, m, found, tol, &gain);
        drop(found);
    }
    release(m);
    Py_END_ALLOW_THREADS
    if (s.failed)
        answer = Py_NewRef(Py_False);
    else if (result) {
        PyObject *model = as_tuple(&task, result, gain);
        answer = model ? Py_BuildValue("Ni", model, result->atom) : NULL;
    } else
        answer = Py_BuildValue("dd", gain, task.spent);
    release(result);
    let_go(&v);
    return answer;
}

static PyMethodDef methods[] = {
    {"mode", py_mode, METH_VARARGS, "mode(kind, Phi, t, weights, alpha, start, constant, threads), or None"},
    {"relax", py_relax, METH_VARARGS,
     "relax(kind, Phi, t, weights, alpha, mean, root, f, r, W, log_evidence, refused, steps, accuracy, trusted, "
     "shift, constant, threads), or None"},
    {"search", py_search, METH_VARARGS,
     "search(move, kind, dictionary, D, E, R, t, weights, order, closed, active, alpha, mean, refused, batch, flag, "
     "tol, work, scan_size, error, trusted, shift, constant, search_tol, most)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_laplace_engine", "Laplace's inner problem.", 0, methods,
                                        slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__laplace_engine(void) { return PyModuleDef_Init(&definition); }
