/* Loops over a few rows for laplace.pyx: plain arithmetic on arrays of the caller, nothing allocated, nothing decided.
 *
 * They are compiled twice where that can be, for processors with 256-bit registers and for all others. Numbers are
 * added in lanes of four, always the same, so that sums do not depend on the processor's threads. */
#ifndef RELVEC_LAPLACE_ROWS_H
#define RELVEC_LAPLACE_ROWS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

#if defined(__GNUC__)
typedef double Four __attribute__((vector_size(32), aligned(8), may_alias));
#define LANES 4
#define LOAD(x) (*(const Four *)(x))
#define TOTAL(s) (((s)[0] + (s)[1]) + ((s)[2] + (s)[3]))
#else
typedef double Four;
#define LANES 1
#define LOAD(x) (*(x))
#define TOTAL(s) (s)
#endif

WIDE static double dot(const double *a, const double *b, int n) {
    Four s = {0.0}, t = {0.0};
    int i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        s += LOAD(a + i) * LOAD(b + i);
        t += LOAD(a + i + LANES) * LOAD(b + i + LANES);
    }
    s += t;
    double total = TOTAL(s);
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

/* into[j] += columns_j . x for k columns of ``apart`` numbers each, four at a time so that x is read once for them */
WIDE static void add_products(const double *columns, int k, size_t apart, const double *x, int n, double *into) {
    int j = 0;
    for (; j + 4 <= k; j += 4) {
        const double *a = columns + j * apart, *b = a + apart, *c = b + apart, *d = c + apart;
        Four s = {0.0}, t = {0.0}, u = {0.0}, v = {0.0};
        int i = 0;
        for (; i + LANES <= n; i += LANES) {
            Four y = LOAD(x + i);
            s += LOAD(a + i) * y;
            t += LOAD(b + i) * y;
            u += LOAD(c + i) * y;
            v += LOAD(d + i) * y;
        }
        double sum[4] = {TOTAL(s), TOTAL(t), TOTAL(u), TOTAL(v)};
        for (; i < n; i++)
            for (int l = 0; l < 4; l++) sum[l] += a[l * apart + i] * x[i];
        for (int l = 0; l < 4; l++) into[j + l] += sum[l];
    }
    for (; j < k; j++) into[j] += dot(columns + j * apart, x, n);
}

/* f += sum_j w_j columns_j, four columns at a time */
WIDE static void add_columns(const double *restrict columns, int k, size_t apart, const double *w, int n,
                             double *restrict f) {
    int j = 0;
    for (; j + 4 <= k; j += 4) {
        const double *a = columns + j * apart, *b = a + apart, *c = b + apart, *d = c + apart;
        double p = w[j], q = w[j + 1], r = w[j + 2], s = w[j + 3];
        for (int i = 0; i < n; i++) f[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i]);
    }
    for (; j < k; j++)
        for (int i = 0; i < n; i++) f[i] += w[j] * columns[j * apart + i];
}

/* G[i * k + j] += columns_i . (W columns_j) for j <= i; ``column`` has room for n numbers */
WIDE static void add_gram(const double *columns, int k, size_t apart, const double *W, int n, double *column,
                          double *G) {
    for (int i = 0; i < k; i++) {
        const double *a = columns + i * apart;
        for (int l = 0; l < n; l++) column[l] = W[l] * a[l];
        add_products(columns, i + 1, apart, column, n, G + (size_t)i * k);
    }
}

/* Comparisons below need not raise floating-point exceptions: without that promise GCC keeps branches in the loops. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("no-trapping-math")
#endif

/* exp(x) for -708 <= x <= 708: 2^m times the series of a rest below log(2) / 2, exact to a rounding or two */
static inline double exponential(double x) {
    const double magic = 6755399441055744.0; /* added, it rounds to a whole number in the lowest bits */
    double y = x * 1.4426950408889634 + magic, m = y - magic;
    double r = (x - m * 6.93147180369123816490e-01) - m * 1.90821492927058770002e-10, s;
    s = (1.0 / 6227020800.0 * r + 1.0 / 479001600.0) * r + 1.0 / 39916800.0;
    s = ((s * r + 1.0 / 3628800.0) * r + 1.0 / 362880.0) * r + 1.0 / 40320.0;
    s = ((s * r + 1.0 / 5040.0) * r + 1.0 / 720.0) * r + 1.0 / 120.0;
    s = ((s * r + 1.0 / 24.0) * r + 1.0 / 6.0) * r + 0.5;
    s = (s * r + 1.0) * r + 1.0;
    int64_t bits, power;
    memcpy(&power, &y, sizeof power);
    memcpy(&bits, &s, sizeof bits);
    bits += power << 52; /* times 2^m */
    memcpy(&s, &bits, sizeof s);
    return s;
}

#define LOWEST -708.0 /* logarithm: e^-708 is as good as zero */

/* Two classes, T01 eq. (23): residual r, curvature W and e = exp(-|f|) of n rows; returns sum w (t - [f >= 0]) f.
 * ``rest`` has room for n numbers */
WIDE static double bernoulli_rows(const double *restrict t, const double *restrict w, const double *restrict f, int n,
                                  double *restrict r, double *restrict W, double *restrict e, double *restrict rest) {
    for (int i = 0; i < n; i++) {
        double x = -fabs(f[i]), z = exponential(x > LOWEST ? x : LOWEST);
        double large = 1.0 / (1.0 + z), small = z * large, sign = copysign(1.0, f[i]);
        e[i] = z;
        rest[i] = w[i] * (t[i] - (0.5 + 0.5 * sign));
        r[i] = rest[i] + w[i] * (sign * small);
        W[i] = w[i] * (small * large);
    }
    return dot(rest, f, n);
}

/* sum w log(1 + e) of n rows; where all weights are one, the logarithm of products of up to 512 factors */
static double log_sums(const double *w, const double *e, int n, int equal) {
    double value = 0.0, factor[4] = {1.0, 1.0, 1.0, 1.0};
    if (!equal) {
        for (int i = 0; i < n; i++) value += w[i] * log1p(e[i]);
        return value;
    }
    for (int i = 0; i < n; i++) {
        factor[i % 4] *= 1.0 + e[i];
        if (i % 512 == 511) {
            value += log((factor[0] * factor[1]) * (factor[2] * factor[3]));
            factor[0] = factor[1] = factor[2] = factor[3] = 1.0;
        }
    }
    return value + log((factor[0] * factor[1]) * (factor[2] * factor[3]));
}

/* Counts with rate exp(f), f no more than ``largest``; returns sum w (t f - rate). ``rest`` has room for n numbers */
WIDE static double poisson_rows(const double *restrict t, const double *restrict w, const double *restrict f, int n,
                                double largest, double *restrict r, double *restrict W, double *restrict rest) {
    double rates = 0.0;
    for (int i = 0; i < n; i++) {
        double x = f[i] < largest ? f[i] : largest, rate = exponential(x > LOWEST ? x : LOWEST);
        r[i] = w[i] * (t[i] - rate);
        W[i] = w[i] * rate;
        rest[i] = w[i] * t[i];
    }
    for (int i = 0; i < n; i++) rates += W[i];
    return dot(rest, f, n) - rates;
}

/* s = -1/2 dW/df h of n rows: for classes dW/df = W (1 - 2p), for counts W */
WIDE static void curvature_rows(const double *restrict f, const double *restrict W, const double *restrict h, int n,
                                int counts, double *restrict s) {
    if (counts) {
        for (int i = 0; i < n; i++) s[i] = -0.5 * W[i] * h[i];
        return;
    }
    for (int i = 0; i < n; i++) {
        double x = -fabs(f[i]), e = exponential(x > LOWEST ? x : LOWEST);
        s[i] = copysign(0.5, f[i]) * ((1.0 - e) / (1.0 + e)) * W[i] * h[i];
    }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

#endif
