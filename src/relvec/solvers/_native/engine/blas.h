/* BLAS and LAPACK of SciPy, found when the module is imported: a C compiler is all it takes to build it. */
#ifndef RELVEC_BLAS_H
#define RELVEC_BLAS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
typedef void (*orgqr_t)(int *, int *, int *, double *, int *, double *, double *, int *, int *);
typedef void (*ormqr_t)(char *, char *, int *, int *, int *, double *, int *, double *, double *, int *, double *,
                        int *, int *);

static gemm_t dgemm;
static gemv_t dgemv;
static syrk_t dsyrk;
static trmm_t dtrmm;
static trmv_t dtrmv;
static potrf_t dpotrf, dlauum;
static trtri_t dtrtri;
static posv_t dposv;
static geqrf_t dgeqrf;
static orgqr_t dorgqr;
static ormqr_t dormqr;

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
                (dposv = (posv_t)find(l, "dposv")) && (dgeqrf = (geqrf_t)find(l, "dgeqrf")) &&
                (dorgqr = (orgqr_t)find(l, "dorgqr")) && (dormqr = (ormqr_t)find(l, "dormqr"));
    Py_XDECREF(blas);
    Py_XDECREF(lapack);
    Py_XDECREF(b);
    Py_XDECREF(l);
    return found;
}

#endif
