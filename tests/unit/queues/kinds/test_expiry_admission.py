"""Topics whose records expire accept TTLs that are numbers."""

import pytest

from ottla.model.errors import CorruptBatchError, InvalidRecordError
from ottla.model.ids import QUEUE_PRODUCER_BIT
from ottla.queues.kinds.expiry_admission import admit_with_ttl
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.layout import Codec
from ottla.records.record import Headers, Record
from tests.unit.records.record_strategies import with_payload

NOW = 1_700_000_000_000
TTL = "ottla.ttl-ms"
INVALID = [b"", b"-1", b"+1", b" 1", b"1.5", b"0x10", b"soon", b"9223372036854775808", b"1" * 20, b"\xff", b"\xd9\xa3"]


def bytes_of(*headers: Headers, **options: object) -> bytes:
    records = [Record(at, NOW, b"k", b"v", some) for at, some in enumerate(headers)]
    return build_batch(records, **options)  # type: ignore[arg-type]


def batch_of(*headers: Headers, **options: object) -> Batch:
    return Batch(bytearray(bytes_of(*headers, **options)))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("ttl", [b"0", b"1", b"007", b"9223372036854775807"])
def test_numbers_are_accepted_as_they_are(codec: Codec, ttl: bytes) -> None:
    batch = batch_of(((TTL, ttl),), (), (("other", b"-1"),), codec=codec)
    assert batch is admit_with_ttl(batch)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("ttl", [*INVALID, None])
def test_anything_else_is_refused_by_name(codec: Codec, ttl: bytes | None) -> None:
    batch = batch_of((), ((TTL, b"5"),), ((TTL, ttl),), codec=codec)
    with pytest.raises(InvalidRecordError, match="1 of 3 records are invalid; record 2: header") as raised:
        admit_with_ttl(batch)
    assert [2] == [index for index, _ in raised.value.record_errors]


def test_the_last_of_a_repeated_header_counts() -> None:
    admit_with_ttl(batch_of(((TTL, b"x"), (TTL, b"5"))))
    with pytest.raises(InvalidRecordError, match="'x' is not a decimal number"):
        admit_with_ttl(batch_of(((TTL, b"5"), (TTL, b"x"))))


def test_deliveries_of_the_broker_are_not_checked() -> None:
    options = {"producer_epoch": 0, "base_sequence": 0}
    delivered = batch_of(((TTL, b"x"),), producer_id=QUEUE_PRODUCER_BIT | 7, **options)
    assert delivered is admit_with_ttl(delivered)
    with pytest.raises(InvalidRecordError):
        admit_with_ttl(batch_of(((TTL, b"x"),), producer_id=7, **options))


def test_a_damaged_batch() -> None:
    damaged = bytearray(bytes_of(()))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        admit_with_ttl(Batch(damaged))
    with pytest.raises(InvalidRecordError):
        admit_with_ttl(Batch(with_payload(bytes_of(()), b"\xff" * 12)))
