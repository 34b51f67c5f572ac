# cython: boundscheck=False, wraparound=False, cdivision=True
"""Requests out of the bytes that arrived: frames, headers, and the bodies of Produce and Fetch, in one compiled pass.

Covers everything up to the fields. It does not read the bodies of other APIs (`messages.py` does), nor the records
inside a Produce request: it says where in the buffer they lie. Requests hold positions and strings, never the buffer,
so its owner may reuse it. Fields are read in `reader.h`, headers in `request_header.h`; `answer.pyx` writes the
responses.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from ottla.protocol.answer cimport fetch_answer, produce_answer

from ottla.model.errors import MisuseError

from ottla.protocol.reader cimport (
    ottla_cursor, ottla_fail, ottla_read16, ottla_read32, ottla_read64, ottla_read8, ottla_read_count,
    ottla_read_records, ottla_read_string, ottla_read_tag, ottla_read_varint, ottla_skip_tags, ottla_span, ottla_take,
)

cdef extern from "ottla/protocol/request_header.h" nogil:
    enum:
        OTTLA_LENGTH_BYTES, OTTLA_HEADER_BYTES_MIN
    ctypedef struct ottla_request_header:
        int16_t api_key
        int16_t version
        int32_t correlation_id
        ottla_span client_id
        bint flexible
        bint foreign
    void ottla_read_header(ottla_cursor* source, ottla_request_header* header)
    int ottla_is_flexible(int16_t api_key, int16_t version)

# The stub says what is in them; they exist here so that they can be imported.
Wanted = Endpoint = tuple


cdef enum:
    PRODUCE = 0
    PRODUCE_LOWEST = 3
    PRODUCE_HIGHEST = 13
    PRODUCE_BY_ID_FROM = 13
    FETCH = 1
    FETCH_LOWEST = 4
    FETCH_HIGHEST = 18
    FETCH_BY_ID_FROM = 13


@cython.freelist(64)
cdef class Request:
    """One request of any API; its body is `[body_start, end)` of the buffer it was scanned from."""

    cdef readonly int16_t api_key
    cdef readonly int16_t version
    cdef readonly int32_t correlation_id
    cdef readonly str client_id
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t body_start
    cdef readonly Py_ssize_t end

    def __repr__(self):
        return (
            f"<{type(self).__name__} api {self.api_key} v{self.version}, correlation id {self.correlation_id}, client"
            f" {self.client_id!r}, bytes {self.start} to {self.end}>"
        )


# Neither of these is for the garbage collector: they hold lists of tuples of strings and numbers, which lead back to
# no object, and the collector would look at every one of them.
@cython.no_gc
@cython.final
cdef class ProduceRequest(Request):
    """Produce v3 to v13."""

    cdef readonly str transactional_id
    cdef readonly int16_t acks
    cdef readonly int32_t timeout_ms
    cdef readonly list parts

    def answer(self, list results not None, list endpoints not None, int32_t throttle_time_ms):
        if self.parts is None or len(results) != len(self.parts):
            raise MisuseError(f"{self!r}: an answer has one result for each part, in their order; got {len(results)}")
        return produce_answer(self.version, self.correlation_id, self.parts, results, endpoints, throttle_time_ms)


@cython.no_gc
@cython.final
cdef class FetchRequest(Request):
    """Fetch v4 to v18."""

    cdef readonly int32_t replica_id
    cdef readonly int64_t replica_epoch
    cdef readonly int32_t max_wait_ms
    cdef readonly int32_t min_bytes
    cdef readonly int32_t max_bytes
    cdef readonly int8_t isolation_level
    cdef readonly int32_t session_id
    cdef readonly int32_t session_epoch
    cdef readonly str rack_id
    cdef readonly str cluster_id
    cdef readonly list wanted
    cdef readonly list forgotten

    def answer(
        self,
        int16_t error_code,
        int32_t session_id,
        list parts not None,
        list endpoints not None,
        int32_t throttle_time_ms,
    ):
        return fetch_answer(
            self.version, self.correlation_id, error_code, session_id, parts, endpoints, throttle_time_ms
        )


@cython.final
cdef class BrokenRequest(Request):
    """Bytes that are not a request: nothing after it can be read. `reason` is for people."""

    cdef readonly str reason

    def __repr__(self):
        return f"<BrokenRequest bytes {self.start} to {self.end}: {self.reason}>"


def scan_requests(buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t frame_bytes_max):
    """Every complete request in `[start, end)`; the stub has the promises."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise MisuseError(f"bytes {start} to {end} are not a part of a buffer of {view.len} bytes")
        return _scan(<const uint8_t*>view.buf, start, end, frame_bytes_max)
    finally:
        PyBuffer_Release(&view)


def is_flexible(int16_t api_key, int16_t version):
    """Whether requests of this API and version are flexible; None for an API that does not exist."""
    cdef int flexible = ottla_is_flexible(api_key, version)
    return None if flexible < 0 else flexible == 1


cdef tuple _scan(const uint8_t* origin, Py_ssize_t at, Py_ssize_t end, Py_ssize_t frame_bytes_max):
    cdef list requests = []
    cdef ottla_cursor prefix
    cdef int32_t length
    cdef Request request
    while end - at >= OTTLA_LENGTH_BYTES:
        prefix.at, prefix.end, prefix.broken = origin + at, origin + end, NULL
        length = ottla_read32(&prefix)
        # The length alone decides: waiting for the rest of a lie would be waiting for memory to run out.
        if length < OTTLA_HEADER_BYTES_MIN or length > frame_bytes_max:
            requests.append(_impossible(at, length, frame_bytes_max))
            return requests, at, 0
        if end - at - OTTLA_LENGTH_BYTES < length:
            return requests, at, <Py_ssize_t>OTTLA_LENGTH_BYTES + length
        request = _read_request(origin, at, at + OTTLA_LENGTH_BYTES + length)
        requests.append(request)
        if type(request) is BrokenRequest:
            return requests, at, 0
        at += OTTLA_LENGTH_BYTES + length
    return requests, at, 0


cdef BrokenRequest _impossible(Py_ssize_t at, int32_t length, Py_ssize_t frame_bytes_max):
    """A frame without a waiting caller."""
    cdef BrokenRequest request = BrokenRequest.__new__(BrokenRequest)
    request.api_key = request.version = -1
    request.correlation_id = -1
    request.start = at
    request.body_start = request.end = at + OTTLA_LENGTH_BYTES
    request.reason = (
        f"a frame says that it has {length} bytes; a request has at least {OTTLA_HEADER_BYTES_MIN}, and at most"
        f" {frame_bytes_max} are accepted"
    )
    return request


cdef Request _read_request(const uint8_t* origin, Py_ssize_t start, Py_ssize_t end):
    """The request of one whole frame, broken or not."""
    cdef ottla_cursor at
    cdef ottla_request_header header
    cdef Request request = None
    cdef str client_id = None
    cdef Py_ssize_t body_start
    at.at, at.end, at.broken = origin + start + OTTLA_LENGTH_BYTES, origin + end, NULL
    ottla_read_header(&at, &header)
    body_start = at.at - origin
    if at.broken == NULL:
        try:
            client_id = _text(header.client_id, "replace") if header.foreign else _text(header.client_id, NULL)
            if header.api_key == PRODUCE and PRODUCE_LOWEST <= header.version <= PRODUCE_HIGHEST:
                request = _read_produce(&at, origin, header.version, header.flexible)
            elif header.api_key == FETCH and FETCH_LOWEST <= header.version <= FETCH_HIGHEST:
                request = _read_fetch(&at, header.version, header.flexible)
            else:
                request = Request.__new__(Request)
        except UnicodeDecodeError:
            ottla_fail(&at, "a string is not UTF-8")
    if at.broken != NULL:
        request = BrokenRequest.__new__(BrokenRequest)
        (<BrokenRequest>request).reason = (
            f"request of API {header.api_key} v{header.version}, {end - start} bytes: {at.broken.decode()}"
        )
    request.api_key = header.api_key
    request.version = header.version
    request.correlation_id = header.correlation_id
    request.client_id = client_id
    request.start = start
    request.body_start = body_start
    request.end = end
    return request


cdef inline str _text(ottla_span span, const char* errors):
    if span.at == NULL:
        return None
    return PyUnicode_DecodeUTF8(<const char*>span.at, span.size, errors)


cdef inline object _read_topic(ottla_cursor* at, bint by_id, bint flexible):
    """Its name, or its id as 16 bytes. What it returns for a broken cursor must not be used."""
    cdef ottla_span span
    if by_id:
        span = ottla_take(at, 16, False)
        return PyBytes_FromStringAndSize(<const char*>span.at, span.size)
    return _text(ottla_read_string(at, flexible, False), NULL)


cdef ProduceRequest _read_produce(ottla_cursor* at, const uint8_t* origin, int16_t version, bint flexible):
    cdef ProduceRequest request = ProduceRequest.__new__(ProduceRequest)
    cdef list parts = []
    cdef object topic
    cdef ottla_span records
    cdef int32_t topics, partitions, partition
    cdef Py_ssize_t position
    request.parts = parts
    request.transactional_id = _text(ottla_read_string(at, flexible, True), NULL)
    request.acks = ottla_read16(at)
    request.timeout_ms = ottla_read32(at)
    topics = ottla_read_count(at, flexible, 0)
    while topics > 0 and at.broken == NULL:
        topics -= 1
        topic = _read_topic(at, version >= PRODUCE_BY_ID_FROM, flexible)
        partitions = ottla_read_count(at, flexible, len(parts))
        while partitions > 0 and at.broken == NULL:
            partitions -= 1
            partition = ottla_read32(at)
            records = ottla_read_records(at, flexible)
            position = at.at - origin if records.at == NULL else records.at - origin
            if flexible:
                ottla_skip_tags(at)
            if at.broken == NULL:
                parts.append((topic, partition, position, -1 if records.at == NULL else records.size))
        if flexible:
            ottla_skip_tags(at)
    if flexible:
        ottla_skip_tags(at)
    return request


cdef FetchRequest _read_fetch(ottla_cursor* at, int16_t version, bint flexible):
    cdef FetchRequest request = FetchRequest.__new__(FetchRequest)
    request.replica_id = -1 if version >= 15 else ottla_read32(at)
    request.replica_epoch = -1
    request.max_wait_ms = ottla_read32(at)
    request.min_bytes = ottla_read32(at)
    request.max_bytes = ottla_read32(at)
    request.isolation_level = ottla_read8(at)
    request.session_id = ottla_read32(at) if version >= 7 else 0
    request.session_epoch = ottla_read32(at) if version >= 7 else -1
    request.wanted = _read_wanted(at, version, flexible)
    request.forgotten = _read_forgotten(at, version, flexible) if version >= 7 else []
    request.rack_id = _text(ottla_read_string(at, flexible, False), NULL) if version >= 11 else ""
    if flexible:
        _read_fetch_tags(at, version, request)
    return request


cdef list _read_wanted(ottla_cursor* at, int16_t version, bint flexible):
    cdef list wanted = []
    cdef object topic
    cdef int32_t partition, leader_epoch, last_fetched_epoch, max_bytes
    cdef int64_t fetch_offset, log_start_offset
    cdef int32_t partitions, topics = ottla_read_count(at, flexible, 0)
    while topics > 0 and at.broken == NULL:
        topics -= 1
        topic = _read_topic(at, version >= FETCH_BY_ID_FROM, flexible)
        partitions = ottla_read_count(at, flexible, len(wanted))
        while partitions > 0 and at.broken == NULL:
            partitions -= 1
            partition = ottla_read32(at)
            leader_epoch = ottla_read32(at) if version >= 9 else -1
            fetch_offset = ottla_read64(at)
            last_fetched_epoch = ottla_read32(at) if version >= 12 else -1
            log_start_offset = ottla_read64(at) if version >= 5 else -1
            max_bytes = ottla_read32(at)
            # Among the tags are a follower's directory and high watermark, which nothing here asks for.
            if flexible:
                ottla_skip_tags(at)
            if at.broken == NULL:
                wanted.append(
                    (topic, partition, leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, max_bytes)
                )
        if flexible:
            ottla_skip_tags(at)
    return wanted


cdef list _read_forgotten(ottla_cursor* at, int16_t version, bint flexible):
    cdef list forgotten = []
    cdef object topic
    cdef int32_t partition, partitions, topics = ottla_read_count(at, flexible, 0)
    while topics > 0 and at.broken == NULL:
        topics -= 1
        topic = _read_topic(at, version >= FETCH_BY_ID_FROM, flexible)
        partitions = ottla_read_count(at, flexible, len(forgotten))
        while partitions > 0 and at.broken == NULL:
            partitions -= 1
            partition = ottla_read32(at)
            if at.broken == NULL:
                forgotten.append((topic, partition))
        if flexible:
            ottla_skip_tags(at)
    return forgotten


cdef int _read_fetch_tags(ottla_cursor* at, int16_t version, FetchRequest request) except -1:
    """The tagged fields of the whole request: cluster id, and from v15 the replica's id and epoch."""
    cdef ottla_cursor content
    cdef uint32_t tag, tags = ottla_read_varint(at)
    while tags > 0 and at.broken == NULL:
        tags -= 1
        tag = ottla_read_tag(at, &content)
        if at.broken != NULL or tag > 1 or tag == 1 and version < 15:
            continue
        if tag == 0:
            request.cluster_id = _text(ottla_read_string(&content, True, True), NULL)
        else:
            request.replica_id = ottla_read32(&content)
            request.replica_epoch = ottla_read64(&content)
            ottla_skip_tags(&content)
        if content.broken != NULL:
            ottla_fail(at, content.broken)
        elif content.at != content.end:
            ottla_fail(at, "a tagged field is shorter than its size")
    return 0
