"""The C face of the results, for `answer.pyx`."""

from libc.stdint cimport int16_t, int32_t, int64_t


cdef class ProduceResult:
    cdef readonly int16_t error_code
    cdef readonly int64_t base_offset
    cdef readonly int64_t append_time
    cdef readonly int64_t log_start_offset
    cdef readonly object record_errors
    cdef readonly object message
    cdef readonly object leader


cdef class FetchResult:
    cdef readonly object topic
    cdef readonly int32_t partition
    cdef readonly int16_t error_code
    cdef readonly int64_t high_watermark
    cdef readonly int64_t last_stable_offset
    cdef readonly int64_t log_start_offset
    cdef readonly object aborted
    cdef readonly int32_t preferred_read_replica
    cdef readonly object records
    cdef readonly int32_t size
    cdef readonly object diverging
    cdef readonly object leader
