"""Makes the golden files of server-side groups anew: `python -m tests.golden.coordination.make_consumer_groups`.

`ConsumerGroupRecords.java` lets the classes of Kafka 4.3.0 serialize records of `__consumer_offsets`: on each line a
name, the key and the value. Needs Java and Maven (see `tests/compat/prepare`).
"""

import tempfile
from pathlib import Path
from typing import Final

from tests.compat.kafka_jars import compile_java, kafka_tool

HERE: Final = Path(__file__).parent
PROGRAMS: Final = {"ConsumerGroupRecords": "consumer_group_records.txt"}


def main() -> None:
    """Compiles each program, runs it, and keeps what it printed."""
    for program, kept in PROGRAMS.items():
        with tempfile.TemporaryDirectory(prefix="ottla-golden-") as folder:
            compile_java(HERE / f"{program}.java", Path(folder))
            done = kafka_tool(program, extra_path=folder)
        (HERE / kept).write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
