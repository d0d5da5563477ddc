"""Who is let in, as the settings want it, and the rule that no service stands open on a network by accident."""

from __future__ import annotations

from veilset._service.endpoint import is_loopback
from veilset.errors import must_be
from veilset_server.ports import Clock
from veilset_server.principals import AuthMode
from veilset_server.rpc.credentials import Credentials
from veilset_server.settings import Settings


def make_credentials(settings: Settings, clock: Clock) -> Credentials:
    """The credentials of a service.

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
        raise must_be(
            "host",
            "a loopback address, since callers are not asked who they are, or used with tokens (veilset token create, or "
            "auth token), with client-ca, or insecure",
            settings.host,
        )
    return credentials
