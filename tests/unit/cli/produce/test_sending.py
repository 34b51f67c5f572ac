"""Lines into batches by the columnar kernel."""

from ottla.cli.produce.sending import bare_batches
from ottla.records.batch import Batch
from ottla.records.decode import decode_records
from ottla.records.layout import Codec


def test_lines_become_batches_that_each_begin_at_0() -> None:
    lines = [b"%d" % number * 20 for number in range(100)] + [b""]
    batches = [Batch(data) for data in bare_batches(lines, 5, batch_bytes_max=500, codec=Codec.GZIP)]
    for batch in batches:
        batch.check()
    assert len(batches) > 3
    assert {(0, -1)} == {(batch.base_offset, batch.leader_epoch) for batch in batches}
    records = [record for batch in batches for record in decode_records(batch)]
    assert [(5, None, line) for line in lines] == [(record.timestamp, record.key, record.value) for record in records]
