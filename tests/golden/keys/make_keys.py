"""Makes `java.json` anew: `python -m tests.golden.keys.make_keys` from the project root, with Kafka at hand."""

import tempfile
from pathlib import Path

from tests.compat.kafka_jars import compile_java, kafka_tool

HERE = Path(__file__).parent


def main() -> None:
    """Compiles the program, runs it, keeps what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        compile_java(HERE / "KeyHashes.java", Path(folder))
        (HERE / "java.json").write_text(kafka_tool("KeyHashes", extra_path=folder).stdout)


if __name__ == "__main__":
    main()
