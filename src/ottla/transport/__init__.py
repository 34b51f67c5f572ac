"""Connections: bytes in, requests out; responses in, bytes out, in order, and files without copying.

`listeners.py` accepts and limits; `connection.py` is one client's connection as the broker sees it; `outbox.py` what
waits to be sent; `receive_buffers.py` the memory that requests arrive in; `turn.py` what is done once per turn of the
event loop; `tls.py` the same socket, encrypted; `identity_provider.py` asks for keys and tokens. What a request
means is decided in `ottla.broker`.
"""
