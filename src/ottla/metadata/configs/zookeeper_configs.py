"""The broker configs of the connection to ZooKeeper, with the names of Kafka 3.9, the last one that had them.

Stores are PEM files. Kafka takes user and password from a JAAS file; here they are configs.
"""

from typing import Final

from ottla.metadata.configs.definition import ConfigType
from ottla.metadata.configs.definition import define as _define

_STRING, _BOOLEAN, _PASSWORD = ConfigType.STRING, ConfigType.BOOLEAN, ConfigType.PASSWORD

DIGEST_MD5: Final = "DIGEST-MD5"
DIGEST: Final = "digest"

ZOOKEEPER_CONFIGS: Final = (
    _define("zookeeper.ssl.client.enable", _BOOLEAN, "false",
            "Whether the broker connects to ZooKeeper with TLS.", is_hidden=True),
    _define("zookeeper.ssl.truststore.location", _STRING, None,
            "A PEM file with the certificate authorities that may sign ZooKeeper's certificate; "
            "if not set, the system's.", is_hidden=True),
    _define("zookeeper.ssl.keystore.location", _STRING, None,
            "A PEM file with the broker's private key and certificates, for ZooKeeper servers that ask for one.",
            is_hidden=True),
    _define("zookeeper.ssl.keystore.password", _PASSWORD, None,
            "The password of the private key in zookeeper.ssl.keystore.location.", is_hidden=True),
    _define("zookeeper.ssl.endpoint.identification.algorithm", _STRING, "HTTPS",
            "HTTPS: ZooKeeper's certificate must be for the host name that the broker connects to. Empty: it need not.",
            allowed=("HTTPS", ""), is_hidden=True),
    _define("zookeeper.sasl.mechanism", _STRING, DIGEST_MD5,
            "How the broker authenticates with zookeeper.sasl.username: DIGEST-MD5 is SASL, with a user of the "
            "server's JAAS file; digest is ZooKeeper's own scheme, with any user.", allowed=(DIGEST_MD5, DIGEST),
            is_hidden=True),
    _define("zookeeper.sasl.username", _STRING, None,
            "The user name with which the broker authenticates to ZooKeeper; if not set, it does not authenticate.",
            is_hidden=True),
    _define("zookeeper.sasl.password", _PASSWORD, None,
            "The password of zookeeper.sasl.username.", is_hidden=True),
    _define("zookeeper.set.acl", _BOOLEAN, "false",
            "Whether ZooKeeper lets only the broker's user read and change what the broker writes. "
            "All brokers must use the same user.", is_hidden=True),
)  # fmt: skip
