"""The gate as the settings want it, and the rule that no service stands open on a network by accident."""

from __future__ import annotations

from veilset._service.endpoint import is_loopback
from veilset.errors import InvalidInput
from veilset_server.ports import Clock
from veilset_server.principals import AuthMode
from veilset_server.rpc.allowances import Allowances
from veilset_server.rpc.credentials import Credentials
from veilset_server.rpc.gate import Gate
from veilset_server.settings import Settings

MAX_METADATA_BYTES = 16 << 10
MAX_STREAMS_PER_CONNECTION = 256


def make_gate(settings: Settings, clock: Clock) -> Gate:
    """The gate of a service.

    Raises StateCorrupted, InvalidInput for a damaged file of tokens or identities, and InvalidInput for an address that others
    reach where nothing asks who calls: neither tokens, nor identities, nor certificates.
    """
    credentials = Credentials(
        AuthMode(settings.auth),
        settings.state,
        settings.identities,
        clock,
        failed_per_minute=settings.limits.failed_attempts_per_minute,
        insecure=settings.insecure,
    )
    if not (credentials.on or settings.client_ca or settings.insecure or is_loopback(settings.host)):
        raise InvalidInput(
            "host",
            "a loopback address, since callers are not asked who they are, or used with tokens (veilset token create, or "
            "auth token), with client-ca, or insecure",
            settings.host,
        )
    return Gate(credentials, Allowances(settings.limits), settings.idle_seconds)


def channel_options(settings: Settings) -> list[tuple[str, int]]:
    """GRPC's own limits: they hold before the gate sees a call."""
    return [
        ("grpc.max_receive_message_length", settings.limits.max_message_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
    ]
