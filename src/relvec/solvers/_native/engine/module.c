/* The moves of the sequential method in C: what _frame.py, _newton.py and _moves.py do, without the interpreter.
 *
 * A Search holds the problem and the frame, a Model a support with its posterior. Same formulas, same constants and
 * same order of decisions as the modules named, whose docstrings explain them. Matrices are stored by columns.
 */
#include "moves.h"

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
static PyType_Spec search_spec = {"relvec.solvers._native._engine.Search", sizeof(Search), 0, Py_TPFLAGS_DEFAULT, search_slots};
static PyType_Spec model_spec = {"relvec.solvers._native._engine.Model", sizeof(Model), 0,
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
