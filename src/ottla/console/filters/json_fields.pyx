# cython: boundscheck=False, wraparound=False, cdivision=True
"""Fields of JSON documents as columns: of a whole Arrow column of bytes, without an object for any document."""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from ottla.model.errors import MisuseError

cdef extern from "<string.h>" nogil:
    const void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* digits, char** end, object overflow) except? -1.0

cdef extern from "ottla/console/filters/json_fields.h" nogil:
    enum:
        OTTLA_JSON_NULL
        OTTLA_JSON_FALSE
        OTTLA_JSON_TRUE
        OTTLA_JSON_INTEGER
        OTTLA_JSON_REAL
        OTTLA_JSON_TEXT
        OTTLA_JSON_NESTED
        OTTLA_JSON_ODD
        OTTLA_JSON_PATHS_MAX
        OTTLA_JSON_NUMBER_MAX
    ctypedef struct ottla_json_step:
        const uint8_t* name
        int32_t size
        int64_t index
        int is_index
    ctypedef struct ottla_json_path:
        const ottla_json_step* steps
        int32_t count
    ctypedef struct ottla_json_field:
        uint8_t kind
        uint8_t is_escaped
        uint8_t is_slow
        int32_t size
        const uint8_t* start
        int64_t integer
        double real
    void ottla_json_document(
        const uint8_t* data, int32_t size, const ottla_json_path* paths, int32_t count, ottla_json_field* fields
    )
    int32_t ottla_json_unescape(const uint8_t* at, int32_t size, uint8_t* into)

NULL_KIND = OTTLA_JSON_NULL
FALSE = OTTLA_JSON_FALSE
TRUE = OTTLA_JSON_TRUE
INTEGER = OTTLA_JSON_INTEGER
REAL = OTTLA_JSON_REAL
TEXT = OTTLA_JSON_TEXT
NESTED = OTTLA_JSON_NESTED
ODD = OTTLA_JSON_ODD
PATHS_MAX = OTTLA_JSON_PATHS_MAX

cdef class _Paths:
    """Steps as the scanner reads them; the names stay alive with this object."""

    cdef ottla_json_path[OTTLA_JSON_PATHS_MAX] paths
    cdef ottla_json_step* steps
    cdef list names

    def __cinit__(self, paths):
        cdef Py_ssize_t at = 0
        cdef bytes name
        self.names = []
        self.steps = <ottla_json_step*>calloc(sum(map(len, paths)) + 1, sizeof(ottla_json_step))
        if self.steps == NULL:
            raise MemoryError
        for number, path in enumerate(paths):
            self.paths[number].steps = self.steps + at
            self.paths[number].count = len(path)
            for step in path:
                # An index is also the name of an object's field.
                name = str(step).encode("utf-8", "surrogatepass")
                self.names.append(name)
                self.steps[at].name = <const uint8_t*>PyBytes_AS_STRING(name)
                self.steps[at].size = len(name)
                self.steps[at].is_index = isinstance(step, int)
                if self.steps[at].is_index:
                    self.steps[at].index = min(max(step, -1), 2**62)
                at += 1

    def __dealloc__(self):
        free(self.steps)


cdef double _read_real(const ottla_json_field* field) except? -1.0:
    cdef char[OTTLA_JSON_NUMBER_MAX + 1] digits
    memcpy(digits, field.start, field.size)
    digits[field.size] = 0
    return PyOS_string_to_double(digits, NULL, None)


def json_fields(offsets, data, Py_ssize_t first, Py_ssize_t count, paths not None):
    cdef Py_buffer offsets_view, data_view
    cdef _Paths steps
    cdef Py_ssize_t number_of_paths = len(paths)
    if not 0 < number_of_paths <= OTTLA_JSON_PATHS_MAX:
        raise MisuseError(f"{number_of_paths} paths; at least 1 and at most {OTTLA_JSON_PATHS_MAX} are read at once")
    steps = _Paths(paths)
    PyObject_GetBuffer(offsets, &offsets_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(data, &data_view, PyBUF_SIMPLE)
        try:
            if first < 0 or count < 0 or offsets_view.len < (first + count + 1) * <Py_ssize_t>sizeof(int32_t):
                raise MisuseError("the offsets do not reach as far as the rows")
            return _columns(
                <const int32_t*>offsets_view.buf + first, <const uint8_t*>data_view.buf, data_view.len, count, steps,
                number_of_paths,
            )
        finally:
            PyBuffer_Release(&data_view)
    finally:
        PyBuffer_Release(&offsets_view)


cdef list _columns(
    const int32_t* offsets, const uint8_t* data, Py_ssize_t data_size, Py_ssize_t count, _Paths steps,
    Py_ssize_t number_of_paths,
):
    cdef ottla_json_field* fields = <ottla_json_field*>calloc(
        count * number_of_paths + 1, sizeof(ottla_json_field)
    )
    cdef Py_ssize_t row
    cdef bint is_good = True
    if fields == NULL:
        raise MemoryError
    try:
        with nogil:
            for row in range(count):
                if offsets[row] < 0 or offsets[row + 1] < offsets[row] or offsets[row + 1] > data_size:
                    is_good = False
                    break
                ottla_json_document(
                    data + offsets[row], offsets[row + 1] - offsets[row], steps.paths, <int32_t>number_of_paths,
                    fields + row * number_of_paths,
                )
        if not is_good:
            raise MisuseError("the offsets point outside of the data")
        return [_column(fields + path, number_of_paths, count) for path in range(number_of_paths)]
    finally:
        free(fields)


cdef tuple _column(ottla_json_field* fields, Py_ssize_t stride, Py_ssize_t count):
    """Kinds, integers, reals, offsets of texts, and texts of one path; None for what no row is."""
    cdef bytes kinds = PyBytes_FromStringAndSize(NULL, count)
    cdef bytes integers, reals, bounds, texts
    cdef uint8_t* kind = <uint8_t*>PyBytes_AS_STRING(kinds)
    cdef ottla_json_field* field
    cdef int32_t[OTTLA_JSON_ODD + 1] seen
    cdef int64_t size = 0
    cdef Py_ssize_t row
    cdef bint has_slow = False
    memset(seen, 0, sizeof(seen))
    with nogil:
        for row in range(count):
            field = fields + row * stride
            kind[row] = field.kind
            seen[field.kind] = 1
            if field.kind == OTTLA_JSON_TEXT:
                size += field.size
            elif field.kind == OTTLA_JSON_REAL:
                has_slow |= field.is_slow
    if has_slow:
        for row in range(count):
            field = fields + row * stride
            if field.kind == OTTLA_JSON_REAL and field.is_slow:
                field.real = _read_real(field)
    integers = reals = bounds = texts = None
    if seen[OTTLA_JSON_INTEGER]:
        integers = PyBytes_FromStringAndSize(NULL, count * 8)
        _copy_integers(fields, stride, count, <int64_t*>PyBytes_AS_STRING(integers))
    if seen[OTTLA_JSON_REAL]:
        reals = PyBytes_FromStringAndSize(NULL, count * 8)
        _copy_reals(fields, stride, count, <double*>PyBytes_AS_STRING(reals))
    if seen[OTTLA_JSON_TEXT]:
        bounds = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
        texts = PyBytes_FromStringAndSize(NULL, size)
        _copy_texts(
            fields, stride, count, <int32_t*>PyBytes_AS_STRING(bounds), <uint8_t*>PyBytes_AS_STRING(texts)
        )
    return kinds, integers, reals, bounds, texts


cdef void _copy_integers(
    const ottla_json_field* fields, Py_ssize_t stride, Py_ssize_t count, int64_t* into
) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(count):
        into[row] = fields[row * stride].integer if fields[row * stride].kind == OTTLA_JSON_INTEGER else 0


cdef void _copy_reals(const ottla_json_field* fields, Py_ssize_t stride, Py_ssize_t count, double* into) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(count):
        into[row] = fields[row * stride].real if fields[row * stride].kind == OTTLA_JSON_REAL else 0


cdef void _copy_texts(
    const ottla_json_field* fields, Py_ssize_t stride, Py_ssize_t count, int32_t* bounds, uint8_t* into
) noexcept nogil:
    cdef const ottla_json_field* field
    cdef int32_t size = 0
    cdef Py_ssize_t row
    for row in range(count):
        field = fields + row * stride
        bounds[row] = size
        if field.kind == OTTLA_JSON_TEXT:
            if field.is_escaped:
                size += ottla_json_unescape(field.start, field.size, into + size)
            else:
                memcpy(into + size, field.start, field.size)
                size += field.size
    bounds[count] = size


def contains_bytes(data, Py_ssize_t start, Py_ssize_t end, bytes wanted not None):
    cdef Py_buffer view
    cdef const void* found = NULL
    cdef const char* needle = PyBytes_AS_STRING(wanted)
    cdef size_t size = len(wanted)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or end < start or end > view.len:
            raise MisuseError("the range does not lie in the data")
        with nogil:
            found = memmem(<const uint8_t*>view.buf + start, end - start, needle, size)
        return found != NULL
    finally:
        PyBuffer_Release(&view)
