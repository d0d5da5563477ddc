"""The options that say how to reach the service, as one decorator for all commands that call it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veilset._service.endpoint import Endpoint, make_endpoint, read_token

if TYPE_CHECKING:
    from veilset._service.service import Service


@dataclass(frozen=True, slots=True)
class Server:
    """The service as the options name it."""

    target: str
    token: str | None = field(repr=False)
    ca: Path | None
    cert: Path | None
    cert_key: Path | None
    insecure: bool

    def connect(self, timeout_seconds: float = 30.0) -> Service:
        """The library's connection; use it as a context manager. Raises InvalidInput."""
        from veilset._service.service import Service

        return Service(self.endpoint(), timeout_seconds)

    def endpoint(self) -> Endpoint:
        """The checked target. Raises InvalidInput."""
        return make_endpoint(
            self.target,
            token=self.token,
            ca=self.ca,
            cert=self.cert,
            key=self.cert_key,
            insecure=self.insecure,
            environment=os.environ,
        )


def _file(flag: str, name: str, variable: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, name, type=kind, envvar=variable, help=text)


def server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --server, --token-file, --ca, --cert, --cert-key and --insecure; the command gets them as ``server``."""

    @click.option(
        "--server",
        "target",
        envvar="VEILSET_SERVER",
        default="localhost:50051",
        show_default=True,
        help="Address of the service; tls://host:port for TLS with a well-known authority.",
    )
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="File with a bearer token; default: VEILSET_TOKEN, or the file VEILSET_TOKEN_FILE names.",
    )
    @_file("--ca", "ca", "VEILSET_CA_FILE", "Authority (PEM) that signed the service's certificate; means TLS.")
    @_file("--cert", "cert", "VEILSET_CERT_FILE", "Certificate (PEM) to show to the service.")
    @_file("--cert-key", "cert_key", "VEILSET_CERT_KEY_FILE", "Its private key (PEM).")
    @click.option("--insecure", is_flag=True, help="Allow plain text to an address that is not loopback.")
    @wraps(command)
    def with_server(
        target: str,
        token_file: Path | None,
        ca: Path | None,
        cert: Path | None,
        cert_key: Path | None,
        insecure: bool,
        **rest: Any,
    ) -> Any:
        token = read_token(token_file) if token_file is not None else None
        return command(server=Server(target, token, ca, cert, cert_key, insecure), **rest)

    return with_server
