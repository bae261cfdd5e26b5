"""The only place where native code gets memory, which Python counts and frees.

Zeros lie in arrays of the module `array`: their memory is lent in a fifth of the time that an array of NumPy takes.
"""

from cpython.array cimport array, clone

import numpy as np

cdef array numbers = array("d"), integers = array("i")
cdef object new_array = np.empty
cdef Py_ssize_t left = -1  # allocations before one fails; negative: none does


def fail_after(Py_ssize_t count):
    """Let the allocation after so many raise MemoryError, once; for tests. A negative number: none."""
    global left
    left = count


cdef int count_down() except -1:
    global left
    if left < 0:
        return 0
    left -= 1
    if left < 0:
        raise MemoryError("an allocation that a test lets fail")
    return 0


cpdef double[::1] room(Py_ssize_t count):
    """``count`` zeros, and room for one at least."""
    count_down()
    return clone(numbers, max(count, 1), True)


cpdef int[::1] room_of_integers(Py_ssize_t count):
    """``count`` integers of zero, and room for one at least."""
    count_down()
    return clone(integers, max(count, 1), True)


cpdef object empty(object shape):
    """An array of NumPy, its numbers not yet written."""
    count_down()
    return new_array(shape)
