"""A broker whose kernel encrypts, and librdkafka as its client: `python -m tests.kernel_tls.check_broker`.

To be run on a machine with kernel TLS; `tests/kernel_tls/run` makes one.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer

from ottla.testing.certificates import LOOPBACK, CertificateAuthority

RECORDS = 20_000
TIMEOUT_S = 300
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""The request, in version 0 and with correlation id 1."""
API_VERSIONS_ANSWER = bytes.fromhex("00000001 0000")
"""Its correlation id, and no error."""


def encrypted_by_kernel() -> int:
    """How many connections the kernel has encrypted since it started."""
    rows = dict(line.split() for line in Path("/proc/net/tls_stat").read_text().splitlines())
    return int(rows["TlsTxSw"])


def produce_and_consume(client: dict[str, str], topic: str) -> None:
    """Records with contents of their own, some hard to compress; each must come back once, unchanged."""
    sent = [at.to_bytes(4) + os.urandom(500) for at in range(RECORDS)]
    producer = Producer({**client, "linger.ms": 50, "queue.buffering.max.messages": RECORDS})
    for value in sent:
        producer.produce(topic, value)
    assert 0 == producer.flush(TIMEOUT_S)
    consumer = Consumer({**client, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received: list[bytes] = []
    end = time.monotonic() + TIMEOUT_S
    while len(received) < RECORDS and time.monotonic() < end:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            received.append(message.value())
    consumer.close()
    assert sorted(sent) == sorted(received)


def update_keys(address: str, authority: Path) -> None:
    """A client of TLS 1.3 that changes its keys, and asks the broker to change its own: it must be served, or
    disconnected if the kernel cannot change them. It may not wait."""
    command = ["openssl", "s_client", "-connect", address, "-tls1_3", "-CAfile", str(authority)]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert client.stdin is not None
    assert client.stdout is not None
    while b"---" not in client.stdout.readline():
        pass
    client.stdin.write(b"K\n")
    client.stdin.flush()
    while b"KEYUPDATE" not in client.stdout.readline():
        pass
    client.stdin.write(API_VERSIONS)
    client.stdin.flush()
    try:
        client.wait(60)
        print("a client that updates its keys is disconnected")
    except subprocess.TimeoutExpired:
        client.kill()
        assert API_VERSIONS_ANSWER in client.stdout.read()
        print("a client that updates its keys is served")
    finally:
        client.kill()
        client.communicate()


def main() -> None:
    """Raises if something is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority(Path(folder) / "certificates")
        configs = {
            "listeners": "SSL://127.0.0.1:0",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.issue("broker", LOOPBACK),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.file,
        }
        options = [each for name, value in configs.items() for each in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "ottla", "serve", "--data", str(Path(folder) / "data"), *options]
        before = encrypted_by_kernel()
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert broker.stdout is not None
            word, address = broker.stdout.readline().split()
            assert "ready" == word
            client = {"bootstrap.servers": address, "security.protocol": "SSL", "ssl.ca.location": str(authority.file)}
            produce_and_consume(client, "events")
            update_keys(address, authority.file)
            produce_and_consume(client, "more")
        finally:
            broker.terminate()
            _, log = broker.communicate(timeout=TIMEOUT_S)
        assert 0 == broker.returncode, log
        assert "listener SSL: kernel TLS enabled for sent data" in log, log
        assert encrypted_by_kernel() > before
        print(f"{RECORDS} records went through a broker whose kernel encrypts")


if __name__ == "__main__":
    main()
