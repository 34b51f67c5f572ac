"""Makes the golden file of share groups again: `python -m tests.golden.coordination.make_share_groups`.

`ShareGroupRecords.java` lets the classes of Kafka 4.3.0 serialize records of `__consumer_offsets` and
`__share_group_state`: on each line a name, the key and the value. Needs Java and Maven (see `tests/compat/prepare`).
"""

import tempfile
from pathlib import Path
from typing import Final

from tests.compat.kafka_jars import compile_java, kafka_tool

HERE: Final = Path(__file__).parent
PROGRAM: Final = "ShareGroupRecords"


def main() -> None:
    """Compiles the program, runs it, and keeps what it printed."""
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as folder:
        compile_java(HERE / f"{PROGRAM}.java", Path(folder))
        done = kafka_tool(PROGRAM, extra_path=folder)
    (HERE / "share_group_records.txt").write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
