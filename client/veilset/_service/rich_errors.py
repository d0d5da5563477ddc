"""veilset's errors as google.rpc.Status and back: the one place that knows both sides of the wire."""

from __future__ import annotations

import os
from typing import cast

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from veilset._service.endpoint import Endpoint
from veilset._service.tls_diagnosis import explain
from veilset.errors import InvalidInput, Unauthenticated, Unavailable, VeilsetError, from_reason

DOMAIN = "veilset.v1.MembershipService"

ENDPOINT = "ENDPOINT"
"""Kind of an Unavailable that comes from a name, a certificate or a protocol: no restart mends it."""


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
    if code is grpc.StatusCode.CANCELLED:  # not by us: a service that stops cuts what it had just taken in
        return Unavailable(f"service: {target} stopped before it answered", target=target)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(f"service: {target} did not answer in time", target=target)
    found = VeilsetError(f"service: {code.name}: {text}")
    found.details["code"] = code.name
    return found
