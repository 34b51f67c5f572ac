"""Certificates that are replaced while a listener is open, and what may not replace them."""

import logging
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from ottla.model.errors import InvalidConfigError
from ottla.transport.listener_tls import ListenerTls, ListenerTlsSettings, _check_handshake
from ottla.transport.tls_context import TlsSettings

AUTHORITY = trustme.CA()


class Store:
    """A keystore and a truststore in files."""

    def __init__(self, folder: Path, authority: trustme.CA = AUTHORITY) -> None:
        self.key, self.trust = folder / "key.pem", folder / "trust.pem"
        self._writes = 0
        self.issue(authority=authority)
        self.trust_in(authority)

    def issue(
        self, *names: str, common_name: str = "broker", authority: trustme.CA = AUTHORITY, days: float = 10
    ) -> None:
        names, now = names or ("localhost", "127.0.0.1"), datetime.now(UTC)
        issued = authority.issue_cert(
            *names,
            common_name=common_name,
            organization_unit_name="tests",
            not_before=now - timedelta(days=2),
            not_after=now + timedelta(days=days),
        )
        self._write(self.key, issued.private_key_and_cert_chain_pem.bytes())

    def trust_in(self, *authorities: trustme.CA) -> None:
        self._write(self.trust, b"".join(each.cert_pem.bytes() for each in authorities))

    def _write(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        # Times of files are not fine enough for a test that writes twice at once.
        self._writes += 1
        os.utime(path, ns=(0, 1_700_000_000_000_000_000 + self._writes * 1_000_000_000))

    def settings(self, **more: str) -> TlsSettings:
        files = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }
        return TlsSettings.parse({**files, **{name.replace("_", "."): value for name, value in more.items()}})

    def listener(self, *, is_inter_broker: bool = False, **allowed: bool) -> ListenerTls:
        settings = ListenerTlsSettings(tls=self.settings(), **allowed)  # type: ignore[arg-type]
        return ListenerTls("SSL", settings, is_inter_broker=is_inter_broker)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def reloaded(tls: ListenerTls) -> bool:
    """A file is read when two looks in a row found the same."""
    return [tls.reload_if_changed(), tls.reload_if_changed()] == [False, True]


class TestFiles:
    def test_nothing_changed(self, store: Store) -> None:
        tls = store.listener()
        before = tls.context
        assert not reloaded(tls)
        assert before is tls.context

    def test_changed_certificate(self, store: Store) -> None:
        tls = store.listener()
        before = tls.context, tls.client_context
        store.issue()
        assert reloaded(tls)
        assert before[0] is not tls.context
        assert before[1] is not tls.client_context
        assert not reloaded(tls)
        store.issue()
        assert reloaded(tls)

    def test_changed_truststore(self, store: Store) -> None:
        tls = store.listener()
        store.trust_in(AUTHORITY, trustme.CA())
        assert reloaded(tls)

    def test_file_that_is_being_written_is_not_read(self, store: Store) -> None:
        tls = store.listener()
        whole = store.key.read_bytes()
        store._write(store.key, whole[:100])
        assert not tls.reload_if_changed()
        store._write(store.key, whole)
        assert not tls.reload_if_changed()
        assert tls.reload_if_changed()

    @pytest.mark.parametrize("content", [b"", b"not a key"])
    def test_broken_file_leaves_the_old_certificates(
        self, store: Store, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        tls = store.listener()
        before = tls.context
        store._write(store.key, content)
        for _ in range(5):
            assert not tls.reload_if_changed()
        assert before is tls.context
        (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert "keeping the old ones" in line.getMessage()
        store.issue()
        assert reloaded(tls)

    def test_vanished_file_leaves_the_old_certificates(self, store: Store) -> None:
        tls = store.listener()
        before = tls.context
        store.key.unlink()
        assert not reloaded(tls)
        assert before is tls.context
        store.issue()
        assert reloaded(tls)


class TestChecks:
    def test_other_name(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        tls = store.listener()
        store.issue(common_name="other")
        assert not reloaded(tls)
        assert "ssl.allow.dn.changes=true" in caplog.text
        allowing = store.listener(allows_dn_changes=True)
        store.issue(common_name="another")
        assert reloaded(allowing)

    def test_missing_alternative_name(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        tls = store.listener()
        store.issue("localhost")
        assert not reloaded(tls)
        assert "lacks names of the present one: 127.0.0.1" in caplog.text
        store.issue("localhost", "127.0.0.1", "more.example")
        assert reloaded(tls)
        allowing = store.listener(allows_san_changes=True)
        store.issue("other.example")
        assert reloaded(allowing)

    def test_brokers_must_still_trust_each_other(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        tls, other = store.listener(is_inter_broker=True), trustme.CA()
        store.issue(authority=other)
        store.trust_in(other)
        assert not reloaded(tls)
        assert "do not trust each other" in caplog.text
        # In steps it works: trust both, use the new one, trust only that.
        store.issue()
        store.trust_in(AUTHORITY, other)
        assert reloaded(tls)
        store.issue(authority=other)
        assert reloaded(tls)
        store.trust_in(other)
        assert reloaded(tls)

    def test_inter_broker_listener_must_trust_itself(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.trust_in(trustme.CA())
        store.listener()
        with pytest.raises(InvalidConfigError, match="does not trust its own certificate"):
            store.listener(is_inter_broker=True)


class TestConfigs:
    def test_expired_certificate_is_replaced(self, store: Store) -> None:
        store.issue(days=-1)
        tls = store.listener()
        tls._is_inter_broker = True  # With it the listener would not have started: the certificate expired since.
        store.issue()
        assert reloaded(tls)
        _check_handshake(tls.context, tls.client_context, "the new certificate is not trusted")

    @pytest.mark.parametrize("is_inter_broker", [False, True])
    def test_expired_certificate_is_not_taken(
        self, store: Store, caplog: pytest.LogCaptureFixture, is_inter_broker: bool
    ) -> None:
        tls = store.listener(is_inter_broker=is_inter_broker)
        before = tls.context
        store.issue(days=-1)
        assert not reloaded(tls)
        assert before is tls.context
        assert "the new certificate expired at" in caplog.text

    def test_listener_with_an_expired_certificate_says_so(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        store.issue(days=-1)
        store.listener()
        assert "its certificate expired at" in caplog.text
        with pytest.raises(InvalidConfigError, match=r"this broker does not trust its own certificate.*expired"):
            store.listener(is_inter_broker=True)

    def test_other_settings_replace_the_present_ones(self, store: Store) -> None:
        tls = store.listener()
        before = tls.context
        same = ListenerTlsSettings(tls=store.settings())
        tls.check(same)
        tls.replace(same)
        assert before is tls.context
        newer = replace(same, tls=store.settings(ssl_enabled_protocols="TLSv1.3"))
        tls.check(newer)
        assert before is tls.context
        tls.replace(newer)
        assert before is not tls.context

    def test_keystore_cannot_be_removed(self, store: Store) -> None:
        tls = store.listener()
        before = tls.context
        with pytest.raises(InvalidConfigError, match="cannot be removed"):
            tls.replace(ListenerTlsSettings(tls=TlsSettings()))
        assert before is tls.context

    def test_truststore_cannot_appear(self, store: Store) -> None:
        key_only = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store.key)}
        tls = ListenerTls("SSL", ListenerTlsSettings(tls=TlsSettings.parse(key_only)))
        with pytest.raises(InvalidConfigError, match="cannot get one"):
            tls.check(ListenerTlsSettings(tls=store.settings()))

    def test_old_and_new_connections_both_work(self, store: Store) -> None:
        tls = store.listener()
        old = tls.context
        store.issue()
        assert reloaded(tls)
        for context in (old, tls.context):
            _check_handshake(context, tls.client_context, "old and new")
