"""What became of each partition of a Produce or Fetch request; `answer.pyx` writes it into the response."""

cimport cython


@cython.final
@cython.freelist(64)
cdef class ProduceResult:
    """One partition of a Produce request."""

    def __cinit__(
        self,
        int16_t error_code,
        int64_t base_offset=-1,
        int64_t append_time=-1,
        int64_t log_start_offset=-1,
        object record_errors=None,
        object message=None,
        object leader=None,
    ):
        self.error_code = error_code
        self.base_offset = base_offset
        self.append_time = append_time
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.message = message
        self.leader = leader

    def __repr__(self):
        return f"<ProduceResult error {self.error_code}, base offset {self.base_offset}>"


@cython.final
@cython.freelist(64)
cdef class FetchResult:
    """One partition of a Fetch request."""

    def __cinit__(
        self,
        object topic,
        int32_t partition,
        int16_t error_code=0,
        int64_t high_watermark=-1,
        int64_t last_stable_offset=-1,
        int64_t log_start_offset=-1,
        object aborted=None,
        int32_t preferred_read_replica=-1,
        object records=None,
        int32_t size=0,
        object diverging=None,
        object leader=None,
    ):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted
        self.preferred_read_replica = preferred_read_replica
        self.records = records
        self.size = size
        self.diverging = diverging
        self.leader = leader

    def __repr__(self):
        return f"<FetchResult {self.topic!r}-{self.partition}: error {self.error_code}, {self.size} bytes>"
