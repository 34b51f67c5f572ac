"""The ways in which the clients can be members of groups: a library, a protocol, and who assigns by which rule.

With the classic protocol a member of the group assigns. With the consumer protocol the broker does, and partitions move
one by one as they do with cooperative-sticky; the other assignors are eager: everything is given up at each rebalance.
"""

from dataclasses import dataclass
from typing import Final

from tests.compat.clients.catalogue import JAVA
from tests.compat.clients.client_builds import JAVA_VERSIONS

CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """One way; `client` is a name of the catalogue."""

    client: str
    assignor: str
    protocol: str = CLASSIC

    @property
    def name(self) -> str:
        """What a test is called by."""
        return f"{self.client}-{self.protocol if self.protocol == CONSUMER else self.assignor}"

    @property
    def incremental(self) -> bool:
        """Whether a member keeps what it has in common with its next assignment, without a break."""
        return self.protocol == CONSUMER or self.assignor == "cooperative-sticky"


def _server_side(client: str) -> Flavour:
    return Flavour(client=client, protocol=CONSUMER, assignor="uniform")


def _cooperative(client: str) -> Flavour:
    return Flavour(client=client, assignor="cooperative-sticky")


def _range(client: str) -> Flavour:
    return Flavour(client=client, assignor="range")


FLAVOURS: Final = (
    *(kind("confluent-kafka") for kind in (_range, _cooperative, _server_side)),
    *(kind("kafka-python") for kind in (_range, _cooperative)),
    _range("aiokafka"),
    *(kind(f"java-{version}") for version in JAVA_VERSIONS for kind in (_range, _cooperative, _server_side)),
    *(kind("franz-go") for kind in (_range, _cooperative, _server_side)),
    *(kind("sarama") for kind in (_range, _cooperative)),
    Flavour(client="kafkajs", assignor="roundrobin"),
)
BY_NAME: Final = {each.name: each for each in FLAVOURS}
RANGE: Final = {each.client: each for each in FLAVOURS if each.assignor == "range"}
"""Those whose members can be in one group."""

INCREMENTAL: Final = tuple(each for each in FLAVOURS if each.incremental)
STATIC: Final = tuple(each for each in FLAVOURS if each.client != "kafkajs" and each.name != "franz-go-consumer")
"""Those that can be static members, and go away in a way that lets them come back."""
TOLD_OF_FENCING: Final = tuple(each for each in FLAVOURS if each.client not in ("kafkajs", "kafka-python", "aiokafka"))
"""Those whose users hear that another has the static member's name; the others fall silent, or join again."""
PATTERNS: Final = tuple(each for each in FLAVOURS if each.client not in ("sarama", "kafkajs"))
"""Those that look again which topics match their pattern."""
SEEKING: Final = tuple(each for each in FLAVOURS if each.client != "sarama")
"""Those that can be told where to read on."""

JAVA_CLASSIC: Final = BY_NAME[f"{JAVA}-range"]
JAVA_CONSUMER: Final = BY_NAME[f"{JAVA}-consumer"]


def names(flavours: tuple[Flavour, ...]) -> list[str]:
    """For `parametrize`."""
    return [each.name for each in flavours]
