"""The bearer token, sent with every call of a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc


class _Details(grpc.ClientCallDetails):
    """A call's details with more metadata."""

    def __init__(self, given: grpc.ClientCallDetails, authorization: str) -> None:
        self.method = given.method
        self.timeout = given.timeout
        self.metadata = (*(given.metadata or ()), ("authorization", authorization))
        self.credentials = given.credentials
        self.wait_for_ready = given.wait_for_ready
        self.compression = given.compression


class BearerToken(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """gRPC's own call credentials are for TLS only; over loopback and where plain text was asked for a token goes too.

    Whether a token may go over plain text `veilset._service.endpoint.make_endpoint` has decided.
    """

    def __init__(self, token: str) -> None:
        self._authorization = f"Bearer {token}"

    def __repr__(self) -> str:
        return "BearerToken(…)"

    # gRPC calls all four alike; their types say otherwise.
    def _intercept(self, continuation: Callable[..., Any], details: grpc.ClientCallDetails, request: Any) -> Any:
        return continuation(_Details(details, self._authorization), request)

    intercept_unary_unary = _intercept  # type: ignore[assignment]
    intercept_unary_stream = _intercept  # type: ignore[assignment]
    intercept_stream_unary = _intercept  # type: ignore[assignment]
    intercept_stream_stream = _intercept  # type: ignore[assignment]
