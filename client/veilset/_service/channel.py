"""The gRPC channel to an endpoint: keepalive, TLS, client certificate, bearer token; and whether the service is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from veilset._service.endpoint import Endpoint
from veilset._service.errors import from_rpc_error

_OPTIONS = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 250),  # a service that restarts is back in a second or two
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 8 << 20),  # the manifest of 2^40 bits has 4.3 MiB; gRPC's own limit is 4
]
_HEALTH_CHECK = "/grpc.health.v1.Health/Check"
_WHOLE_SERVER = b""
"""HealthCheckRequest with its default, the empty service name."""

_SERVING = b"\x08\x01"
"""HealthCheckResponse whose field 1, status, is _SERVING; so small a message needs no generated code."""


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
    """Adds the bearer token to every call. gRPC's own call credentials need TLS, and a token may also go over loopback, or over
    plain text where `veilset._service.endpoint.make_endpoint` allowed it."""

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


def open_channel(endpoint: Endpoint) -> grpc.Channel:
    """A channel; it connects at the first call. Raises InvalidInput for files that hold no certificate or key."""
    # gRPC obeys http_proxy for localhost too; a proxy would read what is sent in plain text, token and digests.
    options = [*_OPTIONS, ("grpc.enable_http_proxy", int(endpoint.may_use_proxy))]
    if endpoint.tls:
        channel = grpc.secure_channel(endpoint.address, _credentials(endpoint), options=options)
    else:
        channel = grpc.insecure_channel(endpoint.address, options=options)
    return channel if endpoint.token is None else grpc.intercept_channel(channel, BearerToken(endpoint.token))


def _credentials(endpoint: Endpoint) -> grpc.ChannelCredentials:
    from veilset._service.pem import read_authorities, read_pair

    authorities = read_authorities("ca", endpoint.ca) if endpoint.ca is not None else None
    if endpoint.cert is None or endpoint.key is None:
        return grpc.ssl_channel_credentials(authorities)
    chain, secret = read_pair("cert", endpoint.cert, "key", endpoint.key)
    return grpc.ssl_channel_credentials(authorities, secret, chain)


def is_serving(endpoint: Endpoint, timeout_seconds: float = 5.0) -> bool:
    """Whether it says that it is ready; False while it stops. Raises Unavailable where nothing answers, InvalidInput."""
    with open_channel(endpoint) as channel:
        check = channel.unary_unary(_HEALTH_CHECK, request_serializer=bytes, response_deserializer=bytes)
        try:
            return check(_WHOLE_SERVER, timeout=timeout_seconds) == _SERVING
        except grpc.RpcError as error:
            raise from_rpc_error(error, endpoint) from None
