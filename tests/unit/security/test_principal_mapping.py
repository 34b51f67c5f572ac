"""`ssl.principal.mapping.rules`; most cases are those of Kafka's own tests of them."""

import time

import pytest

from ottla.model.errors import InvalidConfigError
from ottla.security.principal_mapping import WHOLE_NAME, PrincipalMapping
from ottla.security.principals import Principal
from ottla.security.sasl.authentication_error import AuthenticationError

_RULES = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("CN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_first_matching_rule_decides(name: str, mapped: str) -> None:
    assert PrincipalMapping.parse(_RULES).principal_of(name) == Principal("User", mapped)


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        (r"RULE:^CN=([^,ADEFLTU,]+)(.*$|$)/$1/", "CN=Mark,OU=x", "Mark"),
        (r"RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/L", "CN=HOSS,O=x", "hoss"),
        (r"RULE:^cn=(.*?)\/(.*)$/$2-$1/", "cn=a/b", "b-a"),
        (r"RULE:CN=(.*)/$1\/$9\$1/", "CN=a", "a/$9$1"),
        ("RULE:.*/everyone/", "CN=a", "everyone"),
        ("RULE:CN=(x)?(.*)/<$1>$2/", "CN=a", "<>a"),
    ],
)
def test_replacements(rules: str, name: str, mapped: str) -> None:
    assert mapped == PrincipalMapping.parse(rules).principal_of(name).name


def test_no_rule_matches() -> None:
    mapping = PrincipalMapping.parse("RULE:^CN=(.*),O=a$/$1/")
    with pytest.raises(AuthenticationError, match="no rule of"):
        mapping.principal_of("CN=b,O=c")
    # A part of the name is not enough: the whole must match.
    with pytest.raises(AuthenticationError):
        PrincipalMapping.parse("RULE:CN=b/admin/").principal_of("CN=b,O=c")


def test_empty_principal_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="empty"):
        PrincipalMapping.parse("RULE:CN=(.*)/$1/").principal_of("CN=")


@pytest.mark.parametrize("rules", ["", "  ", "DEFAULT"])
def test_default_is_the_whole_name(rules: str) -> None:
    assert PrincipalMapping.parse(rules).principal_of("CN=a,O=b") == WHOLE_NAME.principal_of("CN=a,O=b")
    assert str(WHOLE_NAME.principal_of("CN=a,O=b")) == "User:CN=a,O=b"


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "RULE:(?=a)/b/", "DEFAULT RULE:a/b/", "a"],
)
def test_invalid_rules_are_refused(rules: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping.parse(rules)


def test_matching_takes_linear_time() -> None:
    mapping = PrincipalMapping.parse("RULE:^CN=(a+)+$/$1/,DEFAULT")
    began = time.thread_time()
    mapping.principal_of("CN=" + "a" * 5000 + "!")
    assert time.thread_time() - began < 1
