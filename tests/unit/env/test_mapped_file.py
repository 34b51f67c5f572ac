"""The compiled mapping: descriptors, maps and address space, which the contract of all disks does not cover."""

import errno
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.env.mapped_file import MappedFile
from tests.unit.env.open_files import open_below

ADDRESS_SPACE_BYTES = 1 << 40
"""Far more than the tests use, far less than a sparse file can claim to be."""


@pytest.fixture
def address_space_limit() -> Iterator[int]:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, limits[1]))
    yield ADDRESS_SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, limits)


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def is_mapped(path: str) -> bool:
    return path in Path("/proc/self/maps").read_text()


class TestResources:
    def test_a_mapping_holds_no_descriptor(self, tmp_path: Path) -> None:
        mappings = [MappedFile(write(tmp_path / str(number), b"%04d" % number)) for number in range(500)]
        assert [b"%04d" % number for number in range(500)] == [bytes(mapping.view) for mapping in mappings]
        assert [] == open_below(tmp_path)
        assert sys.getsizeof(mappings[0]) <= 96

    def test_a_dropped_mapping_is_unmapped_once_its_views_are_gone(self, tmp_path: Path) -> None:
        path = write(tmp_path / "dropped", b"abcd" * 2048)
        view = MappedFile(path).view
        assert is_mapped(path)
        assert b"abcd" == bytes(view[:4])
        del view
        assert not is_mapped(path)

    def test_close_unmaps(self, tmp_path: Path) -> None:
        path = write(tmp_path / "closed", bytes(8192))
        mapping = MappedFile(path)
        assert is_mapped(path)
        mapping.close()
        assert not is_mapped(path)


class TestErrors:
    def test_errors_name_the_path(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError, match=str(tmp_path)):
            MappedFile(str(tmp_path))
        with pytest.raises(FileNotFoundError, match=str(tmp_path / "missing")):
            MappedFile(str(tmp_path / "missing"))
        with pytest.raises(ValueError, match="zero byte"):
            MappedFile("a\0b")
        with pytest.raises(TypeError):
            MappedFile(None)  # type: ignore[arg-type]

    def test_a_file_larger_than_the_address_space(self, tmp_path: Path, address_space_limit: int) -> None:
        path = write(tmp_path / "huge", b"")
        os.truncate(path, 2 * address_space_limit)
        with pytest.raises(OSError, match=path) as caught:
            MappedFile(path)
        assert errno.ENOMEM == caught.value.errno
        assert [] == open_below(tmp_path)

    def test_gives_no_writable_buffer(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a", b"abc")
        mapping = MappedFile(path)
        with pytest.raises(TypeError, match="read-write"), open(path, "rb") as file:
            file.readinto(mapping)
        mapping.close()
