"""Whether addresses can be listened on: each is bound and released at once."""

import errno
import socket

from ottla.cli.doctor.facts import Address


def probe_address(option: str, host: str, port: int) -> Address:
    """Binds every address of the host as a broker does; port 0 is always free."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        return Address(option=option, host=host, port=port, failure=error.strerror or str(error), is_in_use=False)
    failures: list[OSError] = []
    for family, kind, protocol, _, place in found:
        try:
            _bind(family, kind, protocol, place)
        except OSError as error:
            failures.append(error)
    # One working address of a name is enough, as for a broker, but one that is in use is not.
    in_use = [each for each in failures if each.errno == errno.EADDRINUSE]
    fatal = in_use or (failures if len(failures) == len(found) else [])
    return Address(
        option=option,
        host=host,
        port=port,
        failure=(fatal[0].strerror or str(fatal[0])) if fatal else None,
        is_in_use=bool(in_use),
    )


def _bind(family: int, kind: int, protocol: int, place: tuple[object, ...]) -> None:
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(place)
        listening.listen(1)
