"""The text of distinguished names; the expected texts were printed by `X500Principal.getName()` of Java 17."""

import pytest

from ottla.security.distinguished_name import MalformedNameError, distinguished_name

_OF_JAVA = [
    (
        "304c310b3009060355040613024445311c301a060355040a0c1345782c20224122203d202331203c623e3b5c2b310c300a060355040b0c03"
        "7061793111300f06035504030c0820616c6963652020",
        r"CN=\ alice\ \ ,OU=pay,O=Ex\, \"A\" \= \#1 \<b\>\;\\\+,C=DE",
    ),
    (
        "302c3114301206092a864886f70d01090116056140622e633114301206035504030c0b5a6fc3ab20e99baa202378",
        r"CN=Zoë 雪 \#x,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    (
        "306b311c300806035504030c01613010060a0992268993f22c6401010c02753131133011060a0992268993f22c6401191603636f6d310b"
        "300906035504080c024259310f300d06035504090c064d61696e2f31310a300806035504070c014d310c300a06035504051303313233",
        "2.5.4.5=#1303313233,L=M,STREET=Main/1,ST=BY,DC=com,CN=a+UID=u1",
    ),
    (
        "3029310f300d06035504031e060062006d0070310a3008060355040a160178310a3008060355042a0c0167",
        r"2.5.4.42=#0c0167,O=x,CN=\00b\00m\00p",
    ),
    ("3020310e300c06035504030c05236c656164310e300c060355040a0c05610d620963", "O=a\rb\tc,CN=\\#lead"),
    ("300f310d300b06035504030c040d20710d", "CN=\\\r\\ q\\\r"),
    ("300d310b300906035504030c022020", r"CN=\ \ "),
    ("3000", ""),
]


@pytest.mark.parametrize(("der", "text"), _OF_JAVA)
def test_text_is_that_of_java(der: str, text: str) -> None:
    assert text == distinguished_name(bytes.fromhex(der))


@pytest.mark.parametrize(("der", "_"), _OF_JAVA[:-1])
def test_truncated_names_are_refused(der: str, _: str) -> None:
    whole = bytes.fromhex(der)
    for size in range(len(whole)):
        with pytest.raises(MalformedNameError):
            distinguished_name(whole[:size])


def test_endless_length_is_refused() -> None:
    with pytest.raises(MalformedNameError):
        distinguished_name(b"\x30\x88" + b"\xff" * 8)
