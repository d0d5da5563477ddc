"""The server's certificates: checked before use, exchanged while it runs, without touching connections that are open.

gRPC asks at every handshake whether there are newer ones. So files that were replaced are taken up by the next handshake, and on
SIGHUP; what does not fit together is refused with one line in the log, and the old certificates stay.
"""

from __future__ import annotations

import threading
from pathlib import Path

import grpc
import structlog

from veilset._service.pem import read_authorities, read_pair
from veilset.errors import InvalidInput

log = structlog.get_logger(__name__)

_Seen = tuple[tuple[int, int, int], ...]


class ServerCertificates:
    """A certificate chain and its key in PEM files, and the authority whose clients are let in (mTLS) if there is one.

    With a client authority every client has to show a certificate that it signed; without, none is asked for.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        """Reads the files. Raises InvalidInput naming the option: unreadable, no PEM, not a pair, or not valid now."""
        self._cert = cert
        self._key = key
        self._client_ca = client_ca
        self._lock = threading.Lock()
        self._seen = self._look()
        self._current = self._read()
        self._delivered = self._current

    def credentials(self) -> grpc.ServerCredentials:
        """What a server's port is opened with."""
        return grpc.dynamic_ssl_server_credentials(
            self._current,
            self._newer,  # type: ignore[arg-type]  # gRPC takes None for "as before"; the types do not say so
            require_client_authentication=self._client_ca is not None,
        )

    def reload(self) -> bool:
        """Read the files again; whether the certificates are now those in the files. What is refused is logged."""
        with self._lock:
            self._seen = self._look()
            return self._take()

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC in its own threads at every handshake; None where nothing is new. Must not raise."""
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._take()
            if self._delivered is self._current:
                return None
            self._delivered = self._current
            return self._current

    def _take(self) -> bool:
        try:
            self._current = self._read()
        except InvalidInput as error:
            log.error("new certificate refused, the old one stays", field=error.field, why=error.message)  # noqa: TRY400 - by its name, not its trace
            return False
        log.info("certificate read again")
        return True

    def _read(self) -> grpc.ServerCertificateConfiguration:
        chain, secret = read_pair("tls-cert", self._cert, "tls-key", self._key)
        authorities = read_authorities("client-ca", self._client_ca) if self._client_ca is not None else None
        return grpc.ssl_server_certificate_configuration([(secret, chain)], root_certificates=authorities)

    def _look(self) -> _Seen:
        """Which files there are now, as far as one can see without reading them."""
        return tuple(_state(path) for path in (self._cert, self._key, self._client_ca) if path is not None)


def _state(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()  # of what a link points to: orchestrators exchange links
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
