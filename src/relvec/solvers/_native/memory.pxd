cpdef double[::1] room(Py_ssize_t count)
cpdef int[::1] room_of_integers(Py_ssize_t count)
cpdef object empty(object shape)
