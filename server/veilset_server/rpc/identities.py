"""Which client certificate is whom: a TOML file that maps subjects and alternative names to roles and sets.

    [[identity]]
    certificate = "URI:spiffe://example.org/crm"     # or DNS:…, EMAIL:…, CN:…
    name = "crm"
    roles = ["producer"]
    sets = ["customers-*"]

The TLS layer has checked the certificate against the client authority before any of this; here only its names are read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from veilset.errors import InvalidInput, must_be
from veilset_server.principals import Principal, make_principal

KINDS: Mapping[str, str] = {
    "URI": "peer_uri",
    "DNS": "peer_dns",
    "EMAIL": "peer_email",
    "CN": "x509_common_name",
}
"""Kind of name → property of gRPC's authentication context. In this order a certificate's own names are looked up."""

_KEYS = frozenset({"certificate", "name", "roles", "sets"})

Identities = Mapping[str, Principal]
"""``KIND:name`` → principal."""


def parse_identities(text: bytes) -> Identities:
    """The identities in a file. Raises InvalidInput naming the entry."""
    try:
        found: dict[str, Any] = tomllib.loads(text.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise must_be("identities", f"a TOML file ({error})") from None
    entries = found.pop("identity", [])
    if found or not isinstance(entries, list):
        raise must_be("identities", "a file of [[identity]] entries and nothing else")
    identities: dict[str, Principal] = {}
    for number, entry in enumerate(entries, start=1):
        certificate, principal = _identity(f"identities: entry {number}", entry)
        if certificate in identities:
            raise must_be(f"identities: entry {number}: certificate", "named once only", certificate)
        identities[certificate] = principal
    return identities


def _identity(where: str, entry: object) -> tuple[str, Principal]:
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise must_be(where, f"a table of {', '.join(sorted(_KEYS))}")
    certificate, name, roles, sets = (entry[key] for key in ("certificate", "name", "roles", "sets"))
    kind, _, own = certificate.partition(":") if isinstance(certificate, str) else ("", "", "")
    if kind not in KINDS or not own:
        raise must_be(f"{where}: certificate", f"one of {', '.join(KINDS)}, a colon, and the name", certificate)
    for key, value in (("roles", roles), ("sets", sets)):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise must_be(f"{where}: {key}", "a list of texts")
    if not isinstance(name, str):
        raise must_be(f"{where}: name", "a text")
    try:
        return certificate, make_principal(name, roles, sets)
    except InvalidInput as error:
        raise must_be(f"{where}: {error.field}", error.allowed) from None


def find_identity(identities: Identities, certificate: Mapping[str, Iterable[bytes]]) -> Principal | None:
    """The principal of a connection's certificate, by the first of its names that is known."""
    for kind, key in KINDS.items():
        for value in certificate.get(key, ()):
            principal = identities.get(f"{kind}:{value.decode('utf-8', 'replace')}")
            if principal is not None:
                return principal
    return None
