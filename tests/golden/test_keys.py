"""Keys go to the partitions that Kafka's Java client sends them to.

`keys/java.json` has what `keys/KeyHashes.java` prints; `keys/make_keys.py` makes it anew.
"""

import json
from pathlib import Path

from ottla.records.murmur2 import murmur2, partition_for_key

CASES = json.loads((Path(__file__).parent / "keys" / "java.json").read_text())


def test_hashes_and_partitions_are_javas() -> None:
    keys = [bytes.fromhex(case[0]) for case in CASES]
    assert 600 == len(keys)
    ours = [
        [key.hex(), murmur2(key) - (murmur2(key) >> 31 << 32), partition_for_key(key, 7), partition_for_key(key, 1000)]
        for key in keys
    ]
    assert CASES == ours


def test_any_buffer_is_a_key() -> None:
    for case in CASES[:100]:
        key = bytes.fromhex(case[0])
        for kind in (bytearray(key), memoryview(key), memoryview(b"x" + key)[1:]):
            assert murmur2(key) == murmur2(kind)
            assert case[2] == partition_for_key(kind, 7)
