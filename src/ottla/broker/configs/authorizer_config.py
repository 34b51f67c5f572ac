"""The authorizer that the configs of a broker ask for."""

from ottla.broker.configs.configuration import BrokerConfig
from ottla.security.acl_authorizer import AclAuthorizer, parse_super_users
from ottla.security.authorizer import AllowAll, Authorizer


def authorizer_of(config: BrokerConfig) -> Authorizer:
    """Without authorizer.class.name everything is allowed; otherwise the cluster's ACLs decide, once it has them."""
    if not config.authorizer_class_name:
        return AllowAll()
    return AclAuthorizer(
        super_users=parse_super_users(config.super_users), allows_uncovered=config.allow_everyone_if_no_acl_found
    )
