"""Whether a service is ready, by gRPC's standard health protocol (grpc.health.v1)."""

from __future__ import annotations

import grpc

from veilset._service.channel import open_channel
from veilset._service.endpoint import Endpoint
from veilset._service.rich_errors import from_rpc_error

METHOD = "/grpc.health.v1.Health/Check"
WHOLE_SERVER = b""
"""HealthCheckRequest with its default, the empty service name."""
SERVING = b"\x08\x01"
"""HealthCheckResponse whose field 1, status, is SERVING; so small a message needs no generated code."""


def is_serving(endpoint: Endpoint, timeout_seconds: float = 5.0) -> bool:
    """Whether it says that it is ready; False while it stops. Raises Unavailable where nothing answers, InvalidInput."""
    with open_channel(endpoint) as channel:
        check = channel.unary_unary(METHOD, request_serializer=bytes, response_deserializer=bytes)
        try:
            return check(WHOLE_SERVER, timeout=timeout_seconds) == SERVING
        except grpc.RpcError as error:
            raise from_rpc_error(error, endpoint) from None
