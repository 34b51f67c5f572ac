"""The C face of the response writers, for the requests of `scan.pyx`."""

from libc.stdint cimport int16_t, int32_t


cdef bytes produce_answer(
    int16_t version, int32_t correlation_id, list parts, list results, list endpoints, int32_t throttle_time_ms
)
cdef list fetch_answer(
    int16_t version,
    int32_t correlation_id,
    int16_t error_code,
    int32_t session_id,
    list parts,
    list endpoints,
    int32_t throttle_time_ms,
)
