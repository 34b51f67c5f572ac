"""Makes the golden files anew: `python -m tests.golden.make`. README.md beside it says what they are.

Needs Java, Maven (see `tests/compat/prepare`) and the clients, kafka-python with its codec extras. Takes a minute.
"""

import importlib.metadata
import shutil
import tempfile
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.kafka_broker import KafkaBroker
from tests.compat.kafka_jars import KAFKA_VERSION
from tests.golden import data_dirs
from tests.golden.clients import CLIENTS
from tests.golden.manifest import BATCHES, FOLDERS, pack, save
from tests.golden.readers import dump_folders, read_partition, with_files
from tests.golden.record_set import sections

CLIENT_VERSIONS = {
    "aiokafka": f"aiokafka {importlib.metadata.version('aiokafka')}",
    "java": f"kafka-clients {KAFKA_VERSION}",
    "kafka-python": f"kafka-python {importlib.metadata.version('kafka-python')}",
    "librdkafka": f"librdkafka {confluent_kafka.libversion()[0]}",
}


def make_batches(folder: Path) -> None:
    """Each client writes the record set to a real broker, which keeps the batches as they were sent."""
    BATCHES.mkdir(exist_ok=True)
    # One segment per topic: the markers' timestamps are years after the records'.
    config = {"segment.ms": "1000000000000", "retention.ms": "-1"}
    broker = KafkaBroker(folder, overrides=data_dirs.BROKER_SETTINGS)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topics = [NewTopic(client, num_partitions=1, config=config) for client in CLIENTS]
        for created in admin.create_topics(topics).values():
            created.result(60)
        partitions = {}
        for client, write in CLIENTS.items():
            print(f"batches of {client}", flush=True)
            write(broker.bootstrap, client, sections())
            partitions[client] = read_partition(broker.bootstrap, client)
    folders = {client: broker.log_dir / f"{client}-0" for client in CLIENTS}
    found = dump_folders(folders.values())
    for client, source in folders.items():
        (log,) = source.glob("*.log")
        shutil.copyfile(log, BATCHES / f"{client}.log")
        partition = with_files(partitions[client], found, source)
        made_with = {"kafka": KAFKA_VERSION, "client": CLIENT_VERSIONS[client]}
        save(BATCHES / f"{client}.json", made_with, {client: partition})


def make_folders(folder: Path) -> None:
    """Whole data dirs, after a clean shutdown and after a kill."""
    FOLDERS.mkdir(exist_ok=True)
    made_with = {"kafka": KAFKA_VERSION, "client": CLIENT_VERSIONS["librdkafka"]}
    for name, data, partitions in data_dirs.live(folder):
        print(f"data dir {name}", flush=True)
        pack(data, FOLDERS / f"{name}.tar.xz")
        save(FOLDERS / f"{name}.json", made_with, partitions)


def main() -> None:
    """Makes everything, in a temporary folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as folder:
        make_batches(Path(folder) / "batches")
        make_folders(Path(folder) / "folders")


if __name__ == "__main__":
    main()
