"""The gRPC channel to an endpoint: keepalive, TLS, client certificate."""

from __future__ import annotations

import grpc

from veilset._service.bearer import BearerToken
from veilset._service.endpoint import Endpoint

_OPTIONS = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 250),  # a service that restarts is back in a second or two
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 8 << 20),  # the manifest of 2^40 bits has 4.3 MiB; gRPC's own limit is 4
]


def open_channel(endpoint: Endpoint) -> grpc.Channel:
    """A channel; it connects at the first call. Raises InvalidInput for files that hold no certificate or key."""
    # gRPC obeys http_proxy for localhost too; a proxy would read what plain text sends, token and digests.
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
