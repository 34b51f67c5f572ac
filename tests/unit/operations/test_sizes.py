"""Sizes as people write them."""

import pytest

from ottla.operations.sizes import BadSizeError, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512b", 512),
        ("16k", 16 << 10),
        ("16 KB", 16 << 10),
        ("3kib", 3 << 10),
        ("10 MB", 10 << 20),
        ("2m", 2 << 20),
        ("1MiB", 1 << 20),
        ("1g", 1 << 30),
        ("1 GB", 1 << 30),
        ("7GiB", 7 << 30),
    ],
)
def test_units_are_powers_of_1024(text: str, size: int) -> None:
    assert size == parse_size(text)


@pytest.mark.parametrize("text", ["", "k", "0", "0m", "-1", "1.5k", "1t", "1 k k", "k1", "²", "١k", "1,000"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(BadSizeError) as refused:
        parse_size(text)
    assert f"{text!r} is not a valid size; write bytes, or a number with k, m or g" == str(refused.value)
