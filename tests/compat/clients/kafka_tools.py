"""Runs Kafka's own command line tools as people call them from its `bin` folder, against the broker under test."""

import subprocess
from typing import Final

from tests.compat.kafka_jars import SHORT_LIVED_JVM, TOOL_TIMEOUT_S, java_command

TOOLS: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
}
"""The class behind each script."""
OLDER_TOOLS: Final = {
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-acls": "kafka.admin.AclCommand",
}
"""Where they were before version 4."""
_ADDRESS_FIRST: Final = {"kafka-transactions", "kafka-features", "kafka-metadata-quorum"}


class Tools:
    """The tools of one version, against the broker under test."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self._version = version
        self._bootstrap = bootstrap

    def run(self, tool: str, *args: str, given: str = "") -> str:
        """What the tool printed; a failure is one of the test."""
        done = self._run(tool, args, given)
        assert 0 == done.returncode, f"{tool} {' '.join(args)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def fail(self, tool: str, *args: str) -> str:
        """What the tool printed when it failed."""
        done = self._run(tool, args, "")
        assert 0 != done.returncode
        return done.stdout + done.stderr

    def run_anyhow(self, tool: str, *args: str) -> tuple[str, str]:
        """What the tool printed to stdout and stderr; some say what went wrong, and end as if nothing had."""
        done = self._run(tool, args, "")
        return done.stdout, done.stderr

    def _run(self, tool: str, args: tuple[str, ...], given: str) -> subprocess.CompletedProcess[str]:
        older = OLDER_TOOLS if self._version.startswith("3.") else {}
        # One tool takes its address as any other setting of a producer.
        address = ["--bootstrap-server", self._bootstrap]
        if tool == "kafka-producer-perf-test":
            address = ["--producer-props", f"bootstrap.servers={self._bootstrap}"]
        # And some must have it before the command.
        args = (*address, *args) if tool in _ADDRESS_FIRST else (*args, *address)
        command = java_command(older.get(tool, TOOLS[tool]), *args, version=self._version, jvm_options=SHORT_LIVED_JVM)
        return subprocess.run(command, input=given, capture_output=True, encoding="utf-8", timeout=TOOL_TIMEOUT_S)
