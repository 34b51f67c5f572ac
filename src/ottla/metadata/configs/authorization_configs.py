"""The broker configs of access control and delegation tokens, with the names, types and defaults of Kafka 4.3."""

from typing import Final

from ottla.metadata.configs.definition import ConfigType, ConfigValue, Rule
from ottla.metadata.configs.definition import define as _define

_STRING, _BOOLEAN, _LONG, _PASSWORD = ConfigType.STRING, ConfigType.BOOLEAN, ConfigType.LONG, ConfigType.PASSWORD

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _are_principals(value: ConfigValue) -> bool:
    return isinstance(value, str) and all(":" in each for each in value.split(";") if each.strip())


_PRINCIPALS_RULE: Final = Rule(_are_principals, "principals as User:name, separated by semicolons")

AUTHORIZATION_CONFIGS: Final = (
    _define("authorizer.class.name", _STRING, "",
            "The authorizer: empty to allow all requests, or Kafka's StandardAuthorizer to decide by ACLs.",
            allowed=("", STANDARD_AUTHORIZER)),
    _define("super.users", _STRING, "",
            "The principals that may do everything, such as User:admin, separated by semicolons. The user with which "
            "brokers connect to each other must be one of them, or have an ACL for CLUSTER_ACTION on the cluster.",
            rule=_PRINCIPALS_RULE, is_hidden=True),
    _define("allow.everyone.if.no.acl.found", _BOOLEAN, "false",
            "Whether all clients may use a resource that no ACL covers.", is_hidden=True),
    _define("delegation.token.secret.key", _PASSWORD, None,
            "The secret key of delegation tokens, the same on all brokers; if it is not set, "
            "there are no delegation tokens."),
    _define("delegation.token.max.lifetime.ms", _LONG, "604800000",
            "How long a delegation token can be renewed.", 1),
    _define("delegation.token.expiry.time.ms", _LONG, "86400000",
            "How long a delegation token is valid if it is not renewed.", 1),
    _define("delegation.token.expiry.check.interval.ms", _LONG, "3600000",
            "How often delegation tokens that have expired are removed.", 1),
)  # fmt: skip
