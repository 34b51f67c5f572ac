"""The options that name a Prometheus server, as people write them."""

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit, urlunsplit

from ottla.console.history.queries import parse_labels
from ottla.console.settings import PrometheusSettings
from ottla.model.errors import MisuseError


def parse_prometheus(url: str | None, labels: Sequence[str] = ()) -> PrometheusSettings | None:
    """The server of `--prometheus`, which may hold a login, and `--prometheus-label`; None without one. Raises
    `MisuseError`, whose message does not repeat the URL: it may hold a password."""
    if url is None:
        if labels:
            raise MisuseError("--prometheus-label is for Prometheus; add --prometheus")
        return None
    wrong = MisuseError(
        "--prometheus: write it as http://HOST:9090 or https://HOST, with a path if it has one, without a query"
    )
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise wrong
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/"))
    return PrometheusSettings(
        url=urlunsplit(bare),
        username=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        labels=parse_labels(labels),
    )
