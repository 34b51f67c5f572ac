"""Makes the golden file of classic groups and offsets anew: `python -m tests.golden.coordination.make_classic_groups`.

`ClassicGroupRecords.java` lets the classes of Kafka 4.3.0 serialize records of `__consumer_offsets`: on each line a
name, the key and the value. Needs Java and Maven (see `tests/compat/prepare`).
"""

import tempfile
from pathlib import Path
from typing import Final

from tests.compat.kafka_jars import compile_java, kafka_tool

HERE: Final = Path(__file__).parent


def main() -> None:
    """Compiles the program, runs it, and keeps what it printed."""
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as folder:
        compile_java(HERE / "ClassicGroupRecords.java", Path(folder))
        done = kafka_tool("ClassicGroupRecords", extra_path=folder)
    (HERE / "classic_group_records.txt").write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
