"""Sends writes to the leader, and gives its answer back unchanged."""

import logging
import ssl
from typing import Final

import httpx

from ottla.registry.service.http_messages import Answer, Request
from ottla.registry.state.errors import FORWARDING_FAILED, UNKNOWN_LEADER, RegistryError, registry_error

_LOGGER: Final = logging.getLogger(__name__)

FORWARDED: Final = "x-forward"
"""Marks a forwarded request: it is not forwarded again."""
OFFSET: Final = "x-registry-offset"
"""In the leader's answer: a follower that has applied the topic up to here sees the effect of the request."""
_PASSED_ON: Final = ("content-type", "accept", "authorization", "x-request-id")
_CONNECT_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 60.0


class Forwarding:
    """The connections of one instance to the leader."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        """`context` says which certificates of other instances are trusted; None for those that the system trusts."""
        self._http = httpx.AsyncClient(
            verify=True if context is None else context,
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,
            follow_redirects=False,
        )

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def send(self, leader_url: str, request: Request) -> Answer | None:
        """The leader's answer; None if the request had no effect and may be sent to another leader.

        Raises `RegistryError` (50003) if it is unknown whether the request had an effect.
        """
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        try:
            response = await self._http.request(
                request.method,
                leader_url + request.raw_path,
                content=request.body,
                headers={**headers, FORWARDED: "true"},
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            _LOGGER.info("the leader %s cannot be reached: %s", leader_url, error)
            return None
        except httpx.HTTPError as error:
            raise forwarding_failed(leader_url, repr(error)) from error
        if response.status_code == 500 and _error_code(response) == UNKNOWN_LEADER:
            return None
        offset = response.headers.get(OFFSET)
        return Answer(
            status=response.status_code,
            body=response.content,
            content_type=response.headers.get("content-type"),
            headers=() if offset is None else ((OFFSET.encode(), offset.encode()),),
        )


def forwarding_failed(leader_url: str, reason: str) -> RegistryError:
    """The leader got the request, and may have written something."""
    return registry_error(
        FORWARDING_FAILED,
        f"forwarding the request to the leader {leader_url} failed, and it may have taken effect: {reason}",
    )


def _error_code(response: httpx.Response) -> int:
    try:
        return int(response.json()["error_code"])
    except (ValueError, TypeError, KeyError):
        return 0
