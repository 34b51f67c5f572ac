# cython: boundscheck=False, wraparound=False, cdivision=True
"""Avro values to and from Python objects, one at a time, for the common cases.

A `ValueCodec` is one type of a schema; `avro_codec.py` makes them. Encoding takes values of exactly the expected classes
and raises `UnusualValueError` for all others: the caller then leaves the value to fastavro, which knows every case.
Decoding knows all types. Depth, counts and lengths are checked before anything is made of them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum Kind:
    NULL_VALUE, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, ARRAY, MAP, RECORD, UNION

cdef enum:
    DEPTH_MAX = 500
    # Items that take no bytes, in all arrays of a value.
    FREE_ITEMS_MAX = 100000
    FIRST_BYTES = 256

_KINDS = {
    "null": NULL_VALUE, "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE,
    "bytes": BYTES, "string": STRING, "fixed": FIXED, "enum": ENUM, "array": ARRAY, "map": MAP, "record": RECORD,
    "union": UNION,
}


class UnusualValueError(Exception):
    """The value may be valid, but is not of the class that is expected for its type."""


cdef struct Out:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity

cdef struct In:
    const uint8_t* at
    const uint8_t* end
    int64_t items_left


@cython.final
cdef class ValueCodec:
    cdef int _kind
    cdef tuple _names, _parts
    cdef dict _symbols
    cdef Py_ssize_t _size
    cdef Py_ssize_t _null_branch
    cdef object _prepare, _restore, _schema

    def __init__(self, kind):
        self._kind = _KINDS[kind]
        self._names = self._parts = ()
        self._null_branch = -1

    def fill(self, *, parts=(), names=(), size=0, null_branch=-1, prepare=None, restore=None, schema=None):
        self._parts = tuple(parts)
        self._names = tuple(names)
        self._symbols = {name: index for index, name in enumerate(names)}
        self._size = size
        self._null_branch = null_branch
        self._prepare = prepare
        self._restore = restore
        self._schema = schema

    def encode(self, value, bytes prefix):
        cdef Out out
        out.data = NULL
        out.size = out.capacity = 0
        try:
            _put(&out, <const uint8_t*>PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
            _encode(self, value, &out, 1)
            return PyBytes_FromStringAndSize(<char*>out.data, out.size)
        finally:
            free(out.data)

    def decode(self, bytes data, Py_ssize_t start):
        cdef In source
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if not 0 <= start <= size:
            raise ValueError("the value ends too early")
        source.at = <const uint8_t*>PyBytes_AS_STRING(data) + start
        source.end = <const uint8_t*>PyBytes_AS_STRING(data) + size
        source.items_left = size + FREE_ITEMS_MAX
        return _decode(self, &source, 1)


cdef int _reserve(Out* out, Py_ssize_t more) except -1:
    cdef Py_ssize_t wanted = out.size + more, capacity
    cdef uint8_t* data
    if wanted > out.capacity:
        capacity = max(wanted, 2 * out.capacity, <Py_ssize_t>FIRST_BYTES)
        data = <uint8_t*>realloc(out.data, capacity)
        if data == NULL:
            raise MemoryError
        out.data = data
        out.capacity = capacity
    return 0


cdef int _put(Out* out, const uint8_t* data, Py_ssize_t size) except -1:
    _reserve(out, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef int _put_long(Out* out, int64_t value) except -1:
    cdef uint64_t left = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    _reserve(out, 10)
    while left > 127:
        out.data[out.size] = <uint8_t>(left & 127 | 128)
        out.size += 1
        left >>= 7
    out.data[out.size] = <uint8_t>left
    out.size += 1
    return 0


cdef int _put_text(Out* out, str text) except -1:
    cdef Py_ssize_t size
    cdef const char* data = PyUnicode_AsUTF8AndSize(text, &size)
    _put_long(out, size)
    return _put(out, <const uint8_t*>data, size)


cdef int _put_bits(Out* out, uint64_t bits, int size) except -1:
    cdef int index
    _reserve(out, size)
    for index in range(size):
        out.data[out.size + index] = <uint8_t>(bits >> (8 * index))
    out.size += size
    return 0


cdef int _encode(ValueCodec codec, object value, Out* out, int depth) except -1:
    cdef int kind = codec._kind
    cdef int overflow = 0
    cdef long long number
    cdef double real
    cdef float single
    cdef uint64_t bits
    cdef uint32_t single_bits
    cdef Py_ssize_t index
    cdef PyObject* found
    cdef ValueCodec part
    if depth > DEPTH_MAX:
        raise ValueError(f"the value is nested more than {<int>DEPTH_MAX} levels deep")
    if codec._prepare is not None:
        value = codec._prepare(value, codec._schema)
    if kind == RECORD:
        if type(value) is not dict:
            raise UnusualValueError
        for index in range(len(codec._parts)):
            found = PyDict_GetItem(value, codec._names[index])
            if found == NULL:
                raise UnusualValueError
            _encode(<ValueCodec>codec._parts[index], <object>found, out, depth + 1)
    elif kind == STRING:
        if type(value) is not str:
            raise UnusualValueError
        _put_text(out, <str>value)
    elif kind == INT or kind == LONG:
        if type(value) is not int:
            raise UnusualValueError
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow != 0 or (kind == INT and not -2147483648 <= number <= 2147483647):
            raise ValueError(f"{value} is too large for {'an int' if kind == INT else 'a long'}")
        _put_long(out, number)
    elif kind == UNION:
        if codec._null_branch < 0:
            raise UnusualValueError
        index = codec._null_branch if value is None else 1 - codec._null_branch
        _put_long(out, index)
        if value is not None:
            _encode(<ValueCodec>codec._parts[index], value, out, depth + 1)
    elif kind == DOUBLE or kind == FLOAT:
        if type(value) is not float and type(value) is not int:
            raise UnusualValueError
        real = value
        if kind == DOUBLE:
            memcpy(&bits, &real, 8)
            _put_bits(out, bits, 8)
        else:
            single = <float>real
            memcpy(&single_bits, &single, 4)
            _put_bits(out, single_bits, 4)
    elif kind == BOOLEAN:
        if value is not True and value is not False:
            raise UnusualValueError
        _put_bits(out, 1 if value is True else 0, 1)
    elif kind == NULL_VALUE:
        if value is not None:
            raise UnusualValueError
    elif kind == BYTES or kind == FIXED:
        if type(value) is not bytes or (kind == FIXED and PyBytes_GET_SIZE(value) != codec._size):
            raise UnusualValueError
        if kind == BYTES:
            _put_long(out, PyBytes_GET_SIZE(value))
        _put(out, <const uint8_t*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    elif kind == ENUM:
        if type(value) is not str:
            raise UnusualValueError
        found = PyDict_GetItem(codec._symbols, value)
        if found == NULL:
            raise UnusualValueError
        _put_long(out, <object>found)
    elif kind == ARRAY:
        if type(value) is not list and type(value) is not tuple:
            raise UnusualValueError
        part = codec._parts[0]
        if value:
            _put_long(out, len(value))
            for each in value:
                _encode(part, each, out, depth + 1)
        _put_long(out, 0)
    elif kind == MAP:
        if type(value) is not dict:
            raise UnusualValueError
        part = codec._parts[0]
        if value:
            _put_long(out, len(value))
            for key, each in (<dict>value).items():
                if type(key) is not str:
                    raise UnusualValueError
                _put_text(out, <str>key)
                _encode(part, each, out, depth + 1)
        _put_long(out, 0)
    return 0


cdef int _take_long(In* source, int64_t* value) except -1:
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef uint8_t byte
    while source.at < source.end and shift < 70:
        byte = source.at[0]
        source.at += 1
        if shift == 63 and byte > 1:
            break
        found |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            value[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
            return 0
        shift += 7
    raise ValueError("the value ends too early, or a number in it is too long")


cdef const uint8_t* _take(In* source, int64_t size) except NULL:
    cdef const uint8_t* at = source.at
    if not 0 <= size <= source.end - source.at:
        raise ValueError("the value ends too early")
    source.at += size
    return at


cdef uint64_t _take_bits(In* source, int size) except? 1:
    cdef const uint8_t* at = _take(source, size)
    cdef uint64_t bits = 0
    cdef int index
    for index in range(size):
        bits |= <uint64_t>at[index] << (8 * index)
    return bits


cdef object _take_text(In* source):
    cdef int64_t size
    _take_long(source, &size)
    return PyUnicode_DecodeUTF8(<const char*>_take(source, size), size, NULL)


cdef int64_t _take_block(In* source) except -1:
    """How many items the next block of an array or map has."""
    cdef int64_t count, size
    _take_long(source, &count)
    if count < 0:
        _take_long(source, &size)
        if count == -9223372036854775807 - 1:
            raise ValueError("a count is too large")
        count = -count
    if count > source.items_left:
        raise ValueError("a count is larger than the value, or too many items take no bytes")
    source.items_left -= count
    return count


cdef object _decode(ValueCodec codec, In* source, int depth):
    cdef int kind = codec._kind
    cdef int64_t number, count
    cdef uint64_t bits
    cdef uint32_t single_bits
    cdef double real
    cdef float single
    cdef Py_ssize_t index
    cdef ValueCodec part
    cdef object result = None
    if depth > DEPTH_MAX:
        raise ValueError(f"the value is nested more than {<int>DEPTH_MAX} levels deep")
    if kind == RECORD:
        result = {}
        for index in range(len(codec._parts)):
            result[codec._names[index]] = _decode(<ValueCodec>codec._parts[index], source, depth + 1)
    elif kind == STRING:
        result = _take_text(source)
    elif kind == INT or kind == LONG:
        _take_long(source, &number)
        result = number
    elif kind == UNION:
        _take_long(source, &number)
        if not 0 <= number < len(codec._parts):
            raise ValueError(f"a union has no branch {number}")
        result = _decode(<ValueCodec>codec._parts[number], source, depth + 1)
    elif kind == DOUBLE:
        bits = _take_bits(source, 8)
        memcpy(&real, &bits, 8)
        result = real
    elif kind == FLOAT:
        single_bits = <uint32_t>_take_bits(source, 4)
        memcpy(&single, &single_bits, 4)
        result = single
    elif kind == BOOLEAN:
        result = _take_bits(source, 1) != 0
    elif kind == BYTES:
        _take_long(source, &number)
        result = PyBytes_FromStringAndSize(<const char*>_take(source, number), number)
    elif kind == FIXED:
        result = PyBytes_FromStringAndSize(<const char*>_take(source, codec._size), codec._size)
    elif kind == ENUM:
        _take_long(source, &number)
        if not 0 <= number < len(codec._names):
            raise ValueError(f"an enum has no symbol {number}")
        result = codec._names[number]
    elif kind == ARRAY:
        result = []
        part = codec._parts[0]
        count = _take_block(source)
        while count > 0:
            for number in range(count):
                (<list>result).append(_decode(part, source, depth + 1))
            count = _take_block(source)
    elif kind == MAP:
        result = {}
        part = codec._parts[0]
        count = _take_block(source)
        while count > 0:
            for number in range(count):
                key = _take_text(source)
                result[key] = _decode(part, source, depth + 1)
            count = _take_block(source)
    if codec._restore is not None:
        result = codec._restore(result, codec._schema, None)
    return result
