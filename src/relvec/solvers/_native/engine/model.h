/* A support with its posterior, and Newton steps on its precisions: posterior.gaussian and _newton.py. */
#ifndef RELVEC_MODEL_H
#define RELVEC_MODEL_H

#include "frame.h"

#define NORMAL_EQUATIONS_LIMIT 1e8
#define LONGEST 3.0
#define LEAST_DAMPING 3e-3
#define SLACK 1e-13
#define LOG_2PI 1.8378770664093454836

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
    free(m->packed);
    free(m->tau);
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

/* U (upper, k x k) with U'U = I + X'X, _linalg.factor_ridge_and_basis; U holds X'X (upper) when called */
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
    double *packed = m->packed = room(&s->health, (size_t)rows * k, sizeof(double));
    m->tau = room(&s->health, k, sizeof(double));
    double *work = room(&s->health, width, sizeof(double));
    if (!s->health.failed) {
        for (int i = 0; i < k; i++) {
            memcpy(packed + (size_t)i * rows, m->X + (size_t)i * f, sizeof(double) * f);
            packed[(size_t)i * rows + f + i] = 1.0;
        }
        dgeqrf(&rows, &k, packed, &rows, m->tau, work, &width, &info);
        for (int i = 0; i < k; i++) {
            double sign = packed[(size_t)i * rows + i] < 0.0 ? -1.0 : 1.0;
            for (int j = i; j < k; j++) U[(size_t)j * k + i] = sign * packed[(size_t)j * rows + i];
        }
    }
    free(work);
}

/* Reflections.top */
static void top(Search *s, Core *m) {
    int k = m->k, f = m->f, rows = f + k, width = 64 * k, info;
    double *Q = room(&s->health, (size_t)rows * k, sizeof(double)), *work = room(&s->health, width, sizeof(double));
    if (!s->health.failed) {
        memcpy(Q, m->packed, sizeof(double) * rows * k);
        dorgqr(&rows, &k, &k, Q, &rows, m->tau, work, &width, &info);
        for (int i = 0; i < k; i++) {
            double sign = m->packed[(size_t)i * rows + i] < 0.0 ? -1.0 : 1.0;
            for (int r = 0; r < f; r++) m->leverage[(size_t)i * f + r] = sign * Q[(size_t)i * rows + r];
        }
    }
    free(Q);
    free(work);
}

/* Reflections.split of z: Q'[z; 0] into m->v, what is left of z into m->remainder */
static void split(Search *s, Core *m) {
    int k = m->k, f = m->f, rows = f + k, width = 64, info;
    double *z = room(&s->health, rows, sizeof(double)), *work = room(&s->health, width, sizeof(double));
    if (!s->health.failed) {
        memcpy(z, s->z, sizeof(double) * f);
        dormqr("L", "T", &rows, &step1, &k, m->packed, &rows, m->tau, z, &rows, work, &width, &info);
        for (int i = 0; i < k; i++) {
            m->v[i] = m->packed[(size_t)i * rows + i] < 0.0 ? -z[i] : z[i];
            z[i] = 0.0;
        }
        dormqr("L", "N", &rows, &step1, &k, m->packed, &rows, m->tau, z, &rows, work, &width, &info);
        memcpy(m->remainder, z, sizeof(double) * f);
    }
    free(z);
    free(work);
}

static double *leverage(Search *s, Core *m) {
    if (!m->leverage && (m->leverage = room(&s->health, (size_t)m->f * m->k, sizeof(double)))) {
        if (m->packed) {
            top(s, m);
            return s->health.failed ? NULL : m->leverage;
        }
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
        if (m->packed) {
            split(s, m);
            if (s->health.failed) return;
            for (int i = 0; i < k; i++) m->v[i] *= precision;
            dtrmv("U", "N", "N", &k, m->V, &k, m->v, &step1);
        } else if (f) {
            double *X = widest > 1e3 ? leverage(s, m) : m->X; /* X'z loses digits, or overflows, where X is large */
            if (s->health.failed) return;
            dgemv("T", &f, &k, &precision, X, &f, s->z, &step1, &zero, m->v, &step1);
            if (widest <= 1e3) dtrmv("U", "T", "N", &k, m->V, &k, m->v, &step1);
            dtrmv("U", "N", "N", &k, m->V, &k, m->v, &step1);
        }
    }
    if (!m->packed) memcpy(m->remainder, s->z, sizeof(double) * f);
    if (k && f && !m->packed) {
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

#endif
