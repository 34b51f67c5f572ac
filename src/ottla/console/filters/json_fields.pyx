# cython: boundscheck=False, wraparound=False, cdivision=True
"""Fields of JSON documents as columns: of a whole Arrow column of bytes, without an object for any document."""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from ottla.model.errors import MisuseError

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
    void ottla_json_documents(
        const uint8_t* data, int64_t data_size, const int32_t* offsets, int64_t count, const uint8_t* marks,
        const ottla_json_path* paths, int32_t path_count, ottla_json_field* fields
    )
    int32_t ottla_json_unescape(const uint8_t* at, int32_t size, uint8_t* into)

cdef extern from "ottla/console/filters/json_rows.h" nogil:
    int ottla_json_are_bounds(const int32_t* offsets, int64_t count, int64_t data_size)
    void ottla_json_mark_texts(
        const uint8_t* data, const int32_t* offsets, int64_t count, const uint8_t* wanted, int32_t size,
        int may_escape, uint8_t* marks
    )
    void ottla_json_mark_numbers(
        const uint8_t* data, const int32_t* offsets, int64_t count, const uint8_t* name, int32_t size, double low,
        double high, uint8_t* marks
    )

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


cdef class _Rows:
    """The buffers of a column of binary, while this object lives; `offsets` is that of the first row."""

    cdef Py_buffer offsets_view
    cdef Py_buffer data_view
    cdef const int32_t* offsets
    cdef const uint8_t* data

    def __cinit__(self, offsets, data, Py_ssize_t first, Py_ssize_t count):
        PyObject_GetBuffer(offsets, &self.offsets_view, PyBUF_SIMPLE)
        PyObject_GetBuffer(data, &self.data_view, PyBUF_SIMPLE)
        if first < 0 or count < 0 or self.offsets_view.len < (first + count + 1) * <Py_ssize_t>sizeof(int32_t):
            raise MisuseError("the offsets do not reach as far as the rows")
        self.offsets = <const int32_t*>self.offsets_view.buf + first
        self.data = <const uint8_t*>self.data_view.buf
        if not ottla_json_are_bounds(self.offsets, count, self.data_view.len):
            raise MisuseError("the offsets point outside of the data")

    def __dealloc__(self):
        # Neither is set if it could not be had.
        PyBuffer_Release(&self.data_view)
        PyBuffer_Release(&self.offsets_view)


def json_fields(offsets, data, Py_ssize_t first, Py_ssize_t count, paths not None, bytes marks=None):
    cdef _Rows documents = _Rows(offsets, data, first, count)
    cdef Py_ssize_t path_count = len(paths)
    cdef const uint8_t* mark = NULL
    cdef ottla_json_field* fields
    cdef _Paths steps
    if not 0 < path_count <= OTTLA_JSON_PATHS_MAX:
        raise MisuseError(f"{path_count} paths; at least 1 and at most {OTTLA_JSON_PATHS_MAX} are read at once")
    if marks is not None:
        if len(marks) != count:
            raise MisuseError(f"{len(marks)} marks for {count} rows")
        mark = <const uint8_t*>PyBytes_AS_STRING(marks)
    steps = _Paths(paths)
    fields = <ottla_json_field*>malloc((count * path_count + 1) * sizeof(ottla_json_field))
    if fields == NULL:
        raise MemoryError
    try:
        with nogil:
            ottla_json_documents(
                documents.data, documents.data_view.len, documents.offsets, count, mark, steps.paths,
                <int32_t>path_count, fields,
            )
        return [_column(fields + path, path_count, count) for path in range(path_count)]
    finally:
        free(fields)


def rows_with(
    offsets, data, Py_ssize_t first, Py_ssize_t count, bytes wanted not None, *, bint may_escape=False
):
    cdef _Rows documents = _Rows(offsets, data, first, count)
    cdef bytes marks = PyBytes_FromStringAndSize(NULL, count)
    cdef uint8_t* mark = <uint8_t*>PyBytes_AS_STRING(marks)
    cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(wanted)
    cdef int32_t size = len(wanted)
    if not wanted:
        raise MisuseError("no bytes to look for")
    with nogil:
        ottla_json_mark_texts(documents.data, documents.offsets, count, text, size, may_escape, mark)
    return marks


def rows_with_number(
    offsets, data, Py_ssize_t first, Py_ssize_t count, str name not None, double low, double high
):
    cdef _Rows documents = _Rows(offsets, data, first, count)
    cdef bytes quoted = b'"' + name.encode("utf-8", "surrogatepass") + b'"'
    cdef bytes marks = PyBytes_FromStringAndSize(NULL, count)
    cdef uint8_t* mark = <uint8_t*>PyBytes_AS_STRING(marks)
    cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(quoted)
    cdef int32_t size = len(quoted)
    with nogil:
        ottla_json_mark_numbers(documents.data, documents.offsets, count, text, size, low, high, mark)
    return marks


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
