"""The text of a certificate's distinguished name, as Java prints it (RFC 2253). Pure.

Kafka takes the principal of a TLS client from this text, and ACLs and `super.users` name it, so it must be the same to
the character. Java's rules that go beyond the RFC: only the nine attribute types of the RFC have names, all others are
numbers with their value in hexadecimal; `=` and `#` are escaped wherever they are.
"""

from collections.abc import Iterator
from typing import Final

_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_STRING_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString: Java reads the bytes of
all of them as UTF-8."""
_VERSION_TAG: Final = 0xA0
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"


class MalformedNameError(ValueError):
    """The bytes are not a distinguished name in DER."""


def distinguished_name(der: bytes) -> str:
    """The text of a name in DER, such as `CN=alice,OU=payments,O=Example,C=DE`. Raises `MalformedNameError`."""
    try:
        (name,) = _values(der)
        return ",".join(reversed(["+".join(map(_attribute, _parts(rdn))) for rdn in _parts(name)]))
    except (ValueError, IndexError) as error:
        raise MalformedNameError(f"not a distinguished name in DER: {error}") from None


def subject_of(certificate: bytes) -> str:
    """The text of the subject of an X.509 certificate in DER. Raises `MalformedNameError`."""
    try:
        (whole,) = _values(certificate)
        fields = _parts(_parts(whole)[0])
        # A version, which is optional, then serial number, signature, issuer, validity, subject.
        return distinguished_name(fields[5 if fields[0][0] == _VERSION_TAG else 4])
    except (ValueError, IndexError) as error:
        raise MalformedNameError(f"not a certificate in DER: {error}") from None


def _attribute(pair: bytes) -> str:
    kind, value = _parts(pair)
    number = _object_id(_content(kind))
    name = _NAMES.get(number)
    if name is None or value[0] not in _STRING_TAGS:
        return f"{name or number}=#{value.hex()}"
    return f"{name}={_escaped(_content(value).decode(errors='replace'))}"


def _escaped(text: str) -> str:
    inner = text.strip(_BLANKS)
    lead = len(text) - len(text.lstrip(_BLANKS))
    before, after = (text[:lead], text[lead + len(inner) :]) if inner else (text, "")
    middle = "".join("\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in inner)
    return "".join(f"\\{each}" for each in before) + middle + "".join(f"\\{each}" for each in after)


def _parts(value: bytes) -> list[bytes]:
    return list(_values(_content(value)))


def _values(content: bytes) -> Iterator[bytes]:
    """The values that follow each other, each with its tag and length."""
    at = 0
    while at < len(content):
        start, size = _extent(content, at)
        if start + size > len(content):
            raise ValueError("a value ends after its container")
        yield content[at : start + size]
        at = start + size


def _content(value: bytes) -> bytes:
    return value[_extent(value, 0)[0] :]


def _extent(content: bytes, at: int) -> tuple[int, int]:
    """Where the content of the value at this position starts, and its size."""
    size = content[at + 1]
    if size < 0x80:
        return at + 2, size
    count = size & 0x7F
    if not 1 <= count <= 4:
        raise ValueError("a length has more than four bytes")
    return at + 2 + count, int.from_bytes(content[at + 2 : at + 2 + count], "big")


def _object_id(content: bytes) -> str:
    numbers, number = [], 0
    for each in content:
        number = number << 7 | each & 0x7F
        if each < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
