"""Addresses as people write them."""

import pytest

from ottla.transport.addresses import Address, BadAddressError, parse_address, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", Address("localhost", 9092)),
        (" kafka.example:19092 ", Address("kafka.example", 19092)),
        ("localhost", Address("localhost", 9092)),
        ("[::1]:9093", Address("::1", 9093)),
        ("[::1]", Address("::1", 9092)),
    ],
)
def test_addresses_are_read(text: str, expected: Address) -> None:
    assert expected == parse_address(text)


@pytest.mark.parametrize("text", ["", ":9092", "host:", "host:x", "host:0", "host:65536", "host:-1", "[::1", "h:²"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadAddressError, match=r"write host:port, as in localhost:9092"):
        parse_address(text)


def test_a_list_keeps_its_order_and_drops_repeats() -> None:
    assert [Address("b", 1), Address("a", 2)] == parse_bootstrap("b:1, a:2,b:1,")


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(BadAddressError, match="names no broker"):
        parse_bootstrap(" , ")


def test_an_address_spells_itself_as_it_is_read() -> None:
    for text in ("localhost:9092", "[::1]:9093"):
        assert text == str(parse_address(text))
