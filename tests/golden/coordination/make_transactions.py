"""Makes `transactions.json` anew: `python -m tests.golden.coordination.make_transactions`.

`TransactionRecords.java` lets the classes of Kafka 4.3.0 write records of `__transaction_state`, the value in the
version that each `transaction.version` of a cluster calls for, and has Kafka's own converter say what the bytes mean.
Needs Java and Maven (see `tests/compat/prepare`).
"""

import tempfile
from pathlib import Path
from typing import Final

from tests.compat.kafka_jars import compile_java, kafka_tool

HERE: Final = Path(__file__).parent


def main() -> None:
    """Compiles the program, runs it, and keeps what it printed."""
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as folder:
        compile_java(HERE / "TransactionRecords.java", Path(folder))
        done = kafka_tool("TransactionRecords", extra_path=folder)
    (HERE / "transactions.json").write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
