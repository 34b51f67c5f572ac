"""How long a record waits that a member has released."""

from ottla.coordination.share_partitions.settings import SharePartitionSettings


def test_the_wait_doubles_with_each_delivery_up_to_its_limit() -> None:
    settings = SharePartitionSettings(release_backoff_ms=100, release_backoff_max_ms=500)
    assert [100, 100, 200, 400, 500, 500] == [settings.release_delay_ms(count) for count in (0, 1, 2, 3, 4, 1_000)]
    assert 0 == SharePartitionSettings().release_delay_ms(3)
