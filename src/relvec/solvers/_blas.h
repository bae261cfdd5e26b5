/* Products from SciPy's BLAS, found when a module is imported, so that a C compiler is all it takes to build it. */
#ifndef RELVEC_BLAS_H
#define RELVEC_BLAS_H

#include <Python.h>

#include <string.h>

typedef void (*dgemm_t)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *,
                        double *, int *);
typedef void (*sgemm_t)(char *, char *, int *, int *, int *, float *, float *, int *, float *, int *, float *, float *,
                        int *);

/* The function of a module of SciPy's, or NULL with an ImportError set */
static void *find_blas(const char *module, const char *name) {
    PyObject *found = PyImport_ImportModule(module);
    PyObject *table = found ? PyObject_GetAttrString(found, "__pyx_capi__") : NULL;
    PyObject *capsule = table ? PyMapping_GetItemString(table, name) : NULL;
    const char *signature = capsule ? PyCapsule_GetName(capsule) : NULL;
    void *pointer = NULL;
    /* arguments of the function must be pointers to int: a BLAS of long integers is another one */
    if (signature && strstr(signature, "void (") == signature && strstr(signature, ", int *") &&
        !strstr(signature, "blas_int"))
        pointer = PyCapsule_GetPointer(capsule, signature);
    else if (!PyErr_Occurred())
        PyErr_Format(PyExc_ImportError, "SciPy's %s has an unknown signature", name);
    Py_XDECREF(capsule);
    Py_XDECREF(table);
    Py_XDECREF(found);
    return pointer;
}

#endif
