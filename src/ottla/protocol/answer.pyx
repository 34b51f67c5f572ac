# cython: wraparound=False, cdivision=True
"""The responses to Produce and Fetch, as frames in the bytes of the request's version.

Covers lengths, headers, grouping by topic, and which version has which field. It does not decide anything, and does
not touch records: a Fetch response comes in pieces, with the records' own objects between them. The requests of
`scan.pyx` call it; fields are written in `writer.h`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t

from ottla.model.errors import MisuseError

from ottla.protocol.results cimport FetchResult, ProduceResult
from ottla.protocol.reader cimport OTTLA_STRING_BYTES_MAX
from ottla.protocol.writer cimport (
    OTTLA_VARINT_BYTES_MAX, PyUnicode_AsUTF8AndSize, ottla_close_writer, ottla_open_writer, ottla_reserve,
    ottla_store32, ottla_write16, ottla_write32, ottla_write64, ottla_write8, ottla_write_bytes, ottla_write_count,
    ottla_write_varint, ottla_writer,
)

cdef enum:
    PRODUCE_FLEXIBLE_FROM = 9
    PRODUCE_LEADERS_FROM = 10
    PRODUCE_BY_ID_FROM = 13
    FETCH_FLEXIBLE_FROM = 12
    FETCH_BY_ID_FROM = 13
    FETCH_ENDPOINTS_FROM = 16
    ID_BYTES = 16
    # The fixed fields of a partition, and room for two varints and its tagged leader and diverging epoch.
    PART_BYTES_MAX = 96


cdef bytes produce_answer(
    int16_t version, int32_t correlation_id, list parts, list results, list endpoints, int32_t throttle_time_ms
):
    """The whole response frame; there is one result for each part."""
    cdef bint flexible = version >= PRODUCE_FLEXIBLE_FROM
    cdef Py_ssize_t start = 0, stop, index
    cdef ottla_writer to
    ottla_open_writer(&to)
    try:
        _open_frame(&to, correlation_id, flexible)
        ottla_write_count(&to, flexible, _count_runs(parts))
        while start < len(parts):
            stop = _run_end(parts, start)
            _open_topic(&to, _topic_at(parts, start), version >= PRODUCE_BY_ID_FROM, flexible, stop - start)
            for index in range(start, stop):
                _write_produce_part(&to, version, flexible, parts[index][1], <ProduceResult?>results[index])
            _no_tags(&to, flexible)
            start = stop
        _need(&to, 5)
        ottla_write32(&to, throttle_time_ms)
        if flexible:
            _write_endpoints(&to, endpoints if version >= PRODUCE_LEADERS_FROM else [])
        ottla_store32(to.data, _frame_length(to.size))
        return PyBytes_FromStringAndSize(<const char*>to.data, to.size)
    finally:
        ottla_close_writer(&to)


cdef list fetch_answer(
    int16_t version,
    int32_t correlation_id,
    int16_t error_code,
    int32_t session_id,
    list parts,
    list endpoints,
    int32_t throttle_time_ms,
):
    """The response frame as pieces in order: bytes, and between them the records that are not empty."""
    cdef bint flexible = version >= FETCH_FLEXIBLE_FROM
    cdef Py_ssize_t start = 0, stop, index
    cdef list pieces = []
    cdef int64_t total = 0
    cdef ottla_writer to
    ottla_open_writer(&to)
    try:
        _open_frame(&to, correlation_id, flexible)
        ottla_write32(&to, throttle_time_ms)
        if version >= 7:
            ottla_write16(&to, error_code)
            ottla_write32(&to, session_id)
        ottla_write_count(&to, flexible, _count_runs(parts))
        while start < len(parts):
            stop = _run_end(parts, start)
            _open_topic(&to, _topic_at(parts, start), version >= FETCH_BY_ID_FROM, flexible, stop - start)
            for index in range(start, stop):
                total += _write_fetch_part(&to, version, flexible, <FetchResult?>parts[index], pieces)
            _no_tags(&to, flexible)
            start = stop
        if flexible:
            _need(&to, 1)
            _write_endpoints(&to, endpoints if version >= FETCH_ENDPOINTS_FROM else [])
        total += _cut_piece(&to, pieces)
        # The first piece is ours alone until the caller gets the list, so its first four bytes may still change.
        ottla_store32(<uint8_t*>PyBytes_AS_STRING(pieces[0]), _frame_length(total))
        return pieces
    finally:
        ottla_close_writer(&to)


cdef inline int _need(ottla_writer* to, size_t more) except -1:
    if ottla_reserve(to, more) < 0:
        raise MemoryError
    return 0


cdef int32_t _frame_length(int64_t total) except -1:
    """The length field of a frame with `total` bytes, that field included."""
    if total - 4 > INT32_MAX:
        raise MisuseError(f"a response of {total} bytes does not fit a frame; answer with fewer records")
    return <int32_t>(total - 4)


cdef int _open_frame(ottla_writer* to, int32_t correlation_id, bint flexible) except -1:
    """Room for the length, the response header, and room for the fixed fields and the count behind it."""
    _need(to, 32)
    ottla_write32(to, 0)
    ottla_write32(to, correlation_id)
    if flexible:
        ottla_write8(to, 0)
    return 0


cdef inline object _topic_at(list parts, Py_ssize_t at):
    """The topic of a part of a Produce request, or of a result of a Fetch request."""
    cdef object part = parts[at]
    return (<FetchResult>part).topic if type(part) is FetchResult else part[0]


cdef Py_ssize_t _run_end(list parts, Py_ssize_t start) except -1:
    """Behind the last of the neighbours that are of one topic with the part at `start`."""
    cdef object topic = _topic_at(parts, start), other
    cdef Py_ssize_t at = start + 1
    while at < len(parts):
        other = _topic_at(parts, at)
        # A scan gives the parts of one topic the same object.
        if other is not topic and other != topic:
            break
        at += 1
    return at


cdef int32_t _count_runs(list parts) except -1:
    cdef Py_ssize_t at = 0
    cdef int32_t count = 0
    while at < len(parts):
        at = _run_end(parts, at)
        count += 1
    return count


cdef int _open_topic(ottla_writer* to, object topic, bint by_id, bint flexible, Py_ssize_t partitions) except -1:
    if by_id:
        if type(topic) is not bytes or PyBytes_GET_SIZE(topic) != ID_BYTES:
            raise MisuseError(f"{topic!r} is not a topic id: this version needs one of 16 bytes")
        _need(to, ID_BYTES)
        ottla_write_bytes(to, PyBytes_AS_STRING(topic), ID_BYTES)
    else:
        _write_string(to, topic, flexible, nullable=False)
    _need(to, OTTLA_VARINT_BYTES_MAX)
    ottla_write_count(to, flexible, <int32_t>partitions)
    return 0


cdef inline int _no_tags(ottla_writer* to, bint flexible) except -1:
    """The end of a structure without tagged fields."""
    if flexible:
        _need(to, 1)
        ottla_write8(to, 0)
    return 0


cdef int _write_string(ottla_writer* to, object text, bint flexible, bint nullable) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* raw
    if text is None and nullable:
        _need(to, 2)
        if flexible:
            ottla_write_varint(to, 0)
        else:
            ottla_write16(to, -1)
        return 0
    if not isinstance(text, str):
        raise MisuseError(f"{text!r} stands where this version writes a string")
    raw = PyUnicode_AsUTF8AndSize(text, &size)
    if size > OTTLA_STRING_BYTES_MAX:
        raise MisuseError(f"a string of {size} bytes is longer than the protocol allows: {text[:40]}...")
    _need(to, size + OTTLA_VARINT_BYTES_MAX)
    if flexible:
        ottla_write_varint(to, <uint32_t>size + 1)
    else:
        ottla_write16(to, <int16_t>size)
    ottla_write_bytes(to, raw, size)
    return 0


cdef int _write_produce_part(
    ottla_writer* to, int16_t version, bint flexible, int32_t partition, ProduceResult result
) except -1:
    _need(to, PART_BYTES_MAX)
    ottla_write32(to, partition)
    ottla_write16(to, result.error_code)
    ottla_write64(to, result.base_offset)
    ottla_write64(to, result.append_time)
    if version >= 5:
        ottla_write64(to, result.log_start_offset)
    if version >= 8:
        if result.record_errors is None:
            ottla_write_count(to, flexible, 0)
        else:
            _write_record_errors(to, flexible, list(result.record_errors))
        _write_string(to, result.message, flexible, nullable=True)
    if flexible:
        _write_part_tags(to, None, result.leader if version >= PRODUCE_LEADERS_FROM else None, 0)
    return 0


cdef int _write_record_errors(ottla_writer* to, bint flexible, list record_errors) except -1:
    cdef int32_t record
    ottla_write_count(to, flexible, <int32_t>len(record_errors))
    for record, message in record_errors:
        _need(to, 4)
        ottla_write32(to, record)
        _write_string(to, message, flexible, nullable=True)
        _no_tags(to, flexible)
    return 0


cdef int64_t _write_fetch_part(
    ottla_writer* to, int16_t version, bint flexible, FetchResult result, list pieces
) except -1:
    """Returns the size of the pieces that were finished by it, records included."""
    cdef int32_t size = result.size
    cdef int64_t finished = 0
    if size < 0 or result.records is None and size > 0:
        raise MisuseError(f"partition {result.partition} cannot be answered with {size} bytes of {result.records!r}")
    _need(to, PART_BYTES_MAX)
    ottla_write32(to, result.partition)
    ottla_write16(to, result.error_code)
    ottla_write64(to, result.high_watermark)
    ottla_write64(to, result.last_stable_offset)
    if version >= 5:
        ottla_write64(to, result.log_start_offset)
    if result.aborted is None:
        ottla_write_count(to, flexible, -1)
    else:
        _write_aborted(to, flexible, list(result.aborted))
    if version >= 11:
        ottla_write32(to, result.preferred_read_replica)
    # Never null, even when there are none: clients fail on it.
    if flexible:
        ottla_write_varint(to, <uint32_t>size + 1)
    else:
        ottla_write32(to, size)
    if size > 0:
        finished = _cut_piece(to, pieces) + size
        pieces.append(result.records)
    if flexible:
        _write_part_tags(to, result.diverging, result.leader, 1)
    return finished


cdef int64_t _cut_piece(ottla_writer* to, list pieces) except -1:
    """What was written so far becomes a piece; returns its size."""
    cdef int64_t size = to.size
    if size > 0:
        pieces.append(PyBytes_FromStringAndSize(<const char*>to.data, size))
        to.size = 0
    return size


cdef int _write_aborted(ottla_writer* to, bint flexible, list aborted) except -1:
    cdef int64_t producer_id, first_offset
    ottla_write_count(to, flexible, <int32_t>len(aborted))
    for producer_id, first_offset in aborted:
        _need(to, 17)
        ottla_write64(to, producer_id)
        ottla_write64(to, first_offset)
        if flexible:
            ottla_write8(to, 0)
    _need(to, PART_BYTES_MAX)
    return 0


cdef int _write_part_tags(ottla_writer* to, object diverging, object leader, uint8_t leader_tag) except -1:
    """A partition's tagged fields; those that only say "unknown" are left out."""
    cdef int32_t epoch = -1, leader_id = -1, leader_epoch = -1
    cdef int64_t end_offset = -1
    _need(to, PART_BYTES_MAX)
    if diverging is None and leader is None:
        ottla_write8(to, 0)
        return 0
    if diverging is not None:
        epoch, end_offset = diverging
    if leader is not None:
        leader_id, leader_epoch = leader
    cdef bint diverges = epoch != -1 or end_offset != -1
    cdef bint led = leader_id != -1 or leader_epoch != -1
    ottla_write8(to, <uint8_t>(diverges + led))
    if diverges:
        ottla_write8(to, 0)
        ottla_write8(to, 4 + 8 + 1)
        ottla_write32(to, epoch)
        ottla_write64(to, end_offset)
        ottla_write8(to, 0)
    if led:
        ottla_write8(to, leader_tag)
        ottla_write8(to, 4 + 4 + 1)
        ottla_write32(to, leader_id)
        ottla_write32(to, leader_epoch)
        ottla_write8(to, 0)
    return 0


cdef int _write_endpoints(ottla_writer* to, list endpoints) except -1:
    """The tagged fields of the whole response: where the leaders listen that its partitions name, if any."""
    cdef int32_t broker_id, port
    cdef ottla_writer content
    if not endpoints:
        ottla_write8(to, 0)
        return 0
    ottla_open_writer(&content)
    try:
        ottla_write_count(&content, True, <int32_t>len(endpoints))
        for broker_id, host, port, rack in endpoints:
            _need(&content, 4)
            ottla_write32(&content, broker_id)
            _write_string(&content, host, flexible=True, nullable=False)
            _need(&content, 4)
            ottla_write32(&content, port)
            _write_string(&content, rack, flexible=True, nullable=True)
            _need(&content, 1)
            ottla_write8(&content, 0)
        _need(to, 2 + OTTLA_VARINT_BYTES_MAX + content.size)
        ottla_write8(to, 1)
        ottla_write8(to, 0)
        ottla_write_varint(to, <uint32_t>content.size)
        ottla_write_bytes(to, content.data, content.size)
    finally:
        ottla_close_writer(&content)
    return 0
