"""Declares `record.h`, which reads, surveys and writes single records, for all kernels that use it."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "ottla/records/record.h" nogil:
    enum:
        OTTLA_RECORD_BYTES_MIN
    ctypedef enum ottla_record_finding:
        OTTLA_RECORD_GOOD, OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_BAD_LENGTH, OTTLA_RECORD_BAD_FIELD
        OTTLA_RECORD_BAD_HEADERS, OTTLA_RECORD_TRAILING, OTTLA_RECORD_BAD_OFFSET
    ctypedef struct ottla_record:
        int64_t timestamp_delta
        int32_t offset_delta, key_size, value_size, header_count
        const uint8_t* key
        const uint8_t* value
        const uint8_t* headers
        const uint8_t* end
    ctypedef struct ottla_header:
        int32_t key_size, value_size
        const uint8_t* key
        const uint8_t* value
    ctypedef struct ottla_survey:
        int64_t max_timestamp
        int32_t keyless, untimely, walked
    ctypedef struct ottla_batch_fields:
        int64_t base_offset, base_timestamp, max_timestamp, producer_id
        int32_t leader_epoch, last_offset_delta, base_sequence, count
        int16_t attributes, producer_epoch
    ottla_record_finding ottla_read_record(const uint8_t* at, const uint8_t* end, ottla_record* record)
    const uint8_t* ottla_read_field(const uint8_t* at, const uint8_t* end, int32_t* size, const uint8_t** bytes)
    const uint8_t* ottla_read_header(const uint8_t* at, const uint8_t* end, ottla_header* header)
    ottla_record_finding ottla_survey_records(
        const uint8_t* at, const uint8_t* end, int32_t count, int64_t base_timestamp, int64_t oldest, int64_t newest,
        ottla_survey* survey,
    )
    int ottla_utf8_step(const uint8_t* at, const uint8_t* end)
    size_t ottla_utf8_size(const uint8_t* at, size_t size)
    uint8_t* ottla_utf8_write(uint8_t* to, const uint8_t* at, size_t size)
    size_t ottla_field_size(int64_t size)
    size_t ottla_record_body_size(int64_t timestamp_delta, int32_t offset_delta, int64_t key_size, int64_t value_size,
                                  int32_t header_count, size_t headers_size)
    uint8_t* ottla_write_field(uint8_t* at, const uint8_t* data, int64_t size)
    uint8_t* ottla_write_record(uint8_t* at, size_t body_size, int64_t timestamp_delta, int32_t offset_delta,
                                const uint8_t* key, int64_t key_size, const uint8_t* value, int64_t value_size,
                                int32_t header_count)
    void ottla_seal(uint8_t* batch, size_t size, const ottla_batch_fields* fields)
    void ottla_seal_around(uint8_t* batch, size_t size, const ottla_batch_fields* fields, uint32_t payload_crc)

cdef enum:
    # Records of fewer bytes are surveyed without releasing the GIL: that takes microseconds, and a busy thread that
    # gets the GIL keeps it for milliseconds.
    RELEASE_BYTES_MIN = 131072
