"""veilset's errors as google.rpc.Status and back: the one place that knows both sides of the wire.

gRPC reports UNAVAILABLE for a wrong authority, a wrong name and a wrong protocol alike. So the endpoint is tried once more with
the standard library's TLS, which names the reason. Nothing is sent but a handshake.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from veilset._service.endpoint import Endpoint
from veilset.errors import InvalidInput, Unauthenticated, Unavailable, VeilsetError, from_reason

DOMAIN = "veilset.v1.MembershipService"

ENDPOINT = "ENDPOINT"
"""Kind of an Unavailable that comes from a name, a certificate or a protocol: waiting does not help."""

PROBE_SECONDS = 2.0
_EXPIRED, _NOT_YET_VALID = 10, 9
_NAME_MISMATCH = (62, 64)  # of a name, of an address
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_PLAIN_TEXT = "it speaks plain text there, and this was TLS: leave out tls://, ca and cert"


def to_status(error: VeilsetError) -> status_pb2.Status:
    """Canonical code, sentence, ErrorInfo and, where a field is to blame, BadRequest."""
    details = [_pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.details))]
    field = error.details.get("field")
    if field and isinstance(error, InvalidInput):
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=error.message)
        details.append(_pack(error_details_pb2.BadRequest(field_violations=[violation])))
    return status_pb2.Status(code=code_pb2.Code.Value(error.status), message=error.message, details=details)


def _pack(message: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def from_rpc_error(error: grpc.RpcError, target: Endpoint) -> VeilsetError:
    """The error that the service raised, or what gRPC itself reports, as a VeilsetError."""
    from grpc_status import rpc_status

    call = cast(grpc.Call, error)  # whatever a stub raises is both; the types do not say so
    code, text = call.code(), call.details() or "no details"
    status = rpc_status.from_call(call)
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            found = from_reason(info.reason, status.message, dict(info.metadata))
            if isinstance(found, Unauthenticated) and target.token is None:
                found.message += "; no token was sent: give one (VEILSET_TOKEN, VEILSET_TOKEN_FILE, --token-file)"
                found.args = (found.message,)
            return found
    if code is grpc.StatusCode.UNAVAILABLE:
        proxy = target.proxy(os.environ)
        why = None if proxy or "Connection refused" in text else explain(target)
        lasting = why is not None or "Domain name not found" in text or "DNS resolution failed" in text
        why = why or f"{text}; is it running there?"
        why += f" (through the proxy {proxy} that the environment names)" if proxy else ""
        kind = {"kind": ENDPOINT} if lasting else {}
        return Unavailable(f"service: cannot reach {target}: {why}", target=target, **kind)
    if code is grpc.StatusCode.CANCELLED:  # not by us: a service that stops ends the calls it has just accepted
        return Unavailable(f"service: {target} stopped before it answered", target=target)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(f"service: {target} did not answer in time", target=target)
    found = VeilsetError(f"service: {code.name}: {text}")
    found.details["code"] = code.name
    return found


def explain(endpoint: Endpoint) -> str | None:
    """Why no connection was made, as a sentence without a full stop; None where TLS is not the cause or nothing answers."""
    if not endpoint.port:
        return None
    try:
        with socket.create_connection((endpoint.host, endpoint.port), PROBE_SECONDS) as connection:
            return _of_tls(endpoint, connection) if endpoint.tls else _of_plain_text(endpoint, connection)
    except OSError:
        return None


def _of_plain_text(endpoint: Endpoint, connection: socket.socket) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: the question is only whether it is TLS
    context.set_alpn_protocols(["h2"])
    try:
        _Probe(context, connection, endpoint.host).shake_hands()
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return None
    return (
        f"it speaks TLS there, and this was plain text: use tls://{endpoint}, with the ca that signed its certificate"
    )


def _of_tls(endpoint: Endpoint, connection: socket.socket) -> str | None:
    context = ssl.create_default_context(cafile=endpoint.ca)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # gRPC's TLS is not as strict
    context.set_alpn_protocols(["h2"])
    if endpoint.cert is not None:
        context.load_cert_chain(endpoint.cert, endpoint.key)
    probe = _Probe(context, connection, endpoint.host)
    try:
        probe.shake_hands()
    except ssl.SSLCertVerificationError as error:
        return _of_certificate(endpoint, error)
    except ssl.SSLEOFError:
        return None
    except ssl.SSLError as error:
        return None if "ALERT" in (error.reason or "") else _PLAIN_TEXT
    try:
        probe.hear()
    except ssl.SSLError as error:
        reason = (error.reason or "").lower().replace("_", " ")
        if endpoint.cert is not None and "alert" in reason:
            return f"it refuses this client's certificate ({reason})"
    except ConnectionError:
        pass
    else:
        return None
    if endpoint.cert is None:
        return "it closed the connection after the handshake: it asks for a client certificate, give cert and key"
    return "it closed the connection after the handshake: its authority may not have signed this client's certificate"


class _Probe:
    """TLS over a socket that the caller closes: the standard library's own wrapper loses a socket whose peer has just gone."""

    def __init__(self, context: ssl.SSLContext, connection: socket.socket, host: str) -> None:
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def shake_hands(self) -> None:
        """Raises ssl.SSLError; SSLEOFError where the peer closes the connection meanwhile."""
        self._until_done(self._tls.do_handshake)

    def hear(self) -> None:
        """Read the first byte after the handshake; only then does a peer refuse our certificate. Raises ssl.SSLError."""
        self._until_done(self._read)

    def _read(self) -> None:
        if not self._tls.read(1):
            raise ssl.SSLZeroReturnError

    def _until_done(self, step: Callable[[], object]) -> None:
        while True:
            try:
                step()
            except ssl.SSLWantReadError:
                self._send()
                self._receive()
            else:
                self._send()
                return

    def _send(self) -> None:
        self._connection.sendall(self._outgoing.read())

    def _receive(self) -> None:
        received = self._connection.recv(1 << 16)
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()


def _of_certificate(endpoint: Endpoint, error: ssl.SSLCertVerificationError) -> str:
    match error.verify_code:
        case code if code == _EXPIRED:
            return "its certificate has expired"
        case code if code == _NOT_YET_VALID:
            return "its certificate is not valid yet"
        case code if code in _NAME_MISMATCH:
            return f"its certificate is not for the name {endpoint.host}"
        case code if code in _UNKNOWN_AUTHORITY:
            whose = "the well-known authorities" if endpoint.ca is None else f"the authority in {endpoint.ca}"
            return f"its certificate was not signed by {whose}"
        case _:
            return f"its certificate does not verify ({error.verify_message})"
