/* Additions, exchanges and the other moves on a model: _moves.py, and MacKay's updates of _fixed_point.py. */
#ifndef RELVEC_MOVES_H
#define RELVEC_MOVES_H

#include "model.h"

#define COLLINEAR 1e-14
#define CLOSE 0.01
#define TIE 1e-9
#define WORTH 0.3
#define APART 0.3
#define TRIES 4
#define HOPELESS -1.0
#define REFUTED 16
#define COPY (1.0 - 1e-12)

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

#endif
