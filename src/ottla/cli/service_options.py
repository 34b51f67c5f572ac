"""Options of commands that run a service with HTTP: where it listens, its certificate, its log."""

from typing import Annotated

import typer

Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port.")
]
TlsCertificate = Annotated[
    str | None,
    typer.Option("--tls-certificate", metavar="FILE", help="PEM file with the certificate chain: serve HTTPS."),
]
TlsKey = Annotated[
    str | None,
    typer.Option("--tls-key", metavar="FILE", help="PEM file with the private key.", show_default="the same file"),
]
LogFormat = Annotated[str, typer.Option("--log-format", metavar="text|json", help="Format of log lines.")]
LogLevel = Annotated[
    str, typer.Option("--log-level", metavar="debug|info|warning|error", help="Lowest level of log lines.")
]
StopsWithStdin = Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)]
