"""The Redis URLs that veilset accepts, checked before anything connects. No message repeats a URL: it may have a password.

    redis://[user[:password]@]host[:port][/database]           one server; rediss:// with TLS
    unix://[user[:password]@]/path/of/socket[?db=database]     one server on this machine
    redis+cluster://[…@]host[:port][,host[:port]…]             a cluster, found by any of its nodes; rediss+cluster://
    redis+sentinel://[…@]host[:port][,…]/name[/database]       the primary that Sentinels know by name; rediss+sentinel://

User, password, name and path are percent-encoded. Options follow a question mark: `TLS_OPTIONS` with the rediss schemes,
`sentinel_username` and `sentinel_password` for Sentinels that have users of their own, `protocol=2` anywhere.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import unquote

from veilset.errors import InvalidInput, must_be

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
PROTOCOL = 2
"""The one version of Redis's protocol that is spoken: see `redis_replies`."""

_REDIS_PORT, _SENTINEL_PORT = 6379, 26379
_VALUES = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "false"),
    "protocol": (str(PROTOCOL),),
}

Host = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """The parts of a URL. kind: "redis", "unix", "cluster" or "sentinel". hosts: one, or several of a cluster or of Sentinels.

    path: of the socket. primary: its name for the Sentinels. options: those after the question mark, without protocol.
    seen: nodes of the cluster that answered an earlier connection, to be tried in addition to ``hosts``.
    """

    kind: str
    tls: bool
    hosts: tuple[Host, ...] = ()
    path: str = ""
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    database: int = 0
    primary: str = ""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    seen: set[Host] = field(default_factory=set, compare=False, repr=False)

    @property
    def place(self) -> str:
        """Hosts and ports, or the socket, for messages: never the user or the password."""
        return self.path or ", ".join(host_and_port(*host) for host in self.hosts)


def host_and_port(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def parse_redis_url(url: str) -> RedisUrl:
    """The parts of a URL. Raises InvalidInput for another URL, an option that is not supported, and unusable TLS files."""
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme not in SCHEMES:
        _refuse("a URL that starts with " + ", ".join(f"{known}://" for known in SCHEMES))
    tls, kind = scheme.startswith("rediss"), scheme.partition("+")[2] or ("unix" if scheme == "unix" else "redis")
    end = min((place for mark in "/?#" if (place := rest.find(mark)) >= 0), default=len(rest))
    authority, behind = rest[:end], rest[end:]
    if "#" in behind or "@" in behind:
        _refuse("a URL whose user, password and options have %23 for #, %3F for ?, %2F for / and %40 for @")
    path, _, query = behind.partition("?")
    credentials, _, hosts = authority.rpartition("@")
    username, _, password = credentials.partition(":")
    options = _options(query, kind, tls=tls)
    database, primary = _database(path, options, kind)
    return RedisUrl(
        kind=kind,
        tls=tls,
        hosts=() if kind == "unix" else _hosts(hosts, kind),
        path=unquote(path) if kind == "unix" else "",
        username=unquote(username) or None,
        password=unquote(password) or None,
        database=database,
        primary=primary,
        options=options,
    )


def _refuse(allowed: str) -> NoReturn:
    raise must_be("redis", allowed)


def _hosts(text: str, kind: str) -> tuple[Host, ...]:
    default = _SENTINEL_PORT if kind == "sentinel" else _REDIS_PORT
    hosts = []
    for part in text.split(","):
        found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:@%\s]*))(?::([0-9]{1,5}))?", part)
        port = int(found[3] or default) if found else 0
        if found is None or not 1 <= port <= 65535:
            _refuse("a URL whose host and port are such as redis.example.com:6379 or [::1]:6379")
        hosts.append((found[1] or found[2] or "localhost", port))
    if len(hosts) > 1 and kind == "redis":
        _refuse("a URL of one host; several are for redis+cluster:// and redis+sentinel://")
    return tuple(hosts)


def _database(path: str, options: dict[str, str], kind: str) -> tuple[int, str]:
    """The number of the database, and the name of the Sentinels' primary."""
    parts = path.strip("/").split("/") if path.strip("/") else []
    primary = ""
    if kind == "unix":
        if not path.strip("/"):
            _refuse("a URL with the path of a socket, such as unix:///run/redis/redis.sock?db=0")
        parts = [options.pop("db")] if "db" in options else []
    if kind == "sentinel":
        if not parts:
            _refuse("a URL with the primary's name after the Sentinels, such as redis+sentinel://s1,s2/mymaster/0")
        primary = unquote(parts.pop(0))
    if len(parts) > 1 or not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        _refuse("a URL whose database is a number, such as /0 at its end")
    database = int(parts[0]) if parts else 0
    if database and kind == "cluster":
        _refuse("a URL of database 0, or without one, as a cluster has no other")
    return database, primary


def _options(query: str, kind: str, *, tls: bool) -> dict[str, str]:
    allowed = (*(TLS_OPTIONS if tls else ()), *(SENTINEL_OPTIONS if kind == "sentinel" else ()), "protocol")
    allowed = (*allowed, "db") if kind == "unix" else allowed
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in allowed:
            shown = f" without the option {name}" if re.fullmatch("[a-z_]{1,40}", name) else " without unknown options"
            hint = "; with TLS the scheme starts with rediss" if name in TLS_OPTIONS else ""
            _refuse(f"a URL{shown}; supported here: {', '.join(allowed)}{hint}")
        value = unquote(value)
        if name in options or not value or value not in _VALUES.get(name, (value,)):
            values = f", one of {', '.join(_VALUES[name])}" if name in _VALUES else ""
            _refuse(f"a URL in which {name} is given once{values}")
        options[name] = value
    options.pop("protocol", None)
    _check_files(options)
    return options


def _check_files(options: dict[str, str]) -> None:
    """Check the TLS files now: with unusable ones a service would retry for ever."""
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        if name in options and not os.access(options[name], os.R_OK):
            raise InvalidInput("redis", f"redis names a file in {name} that cannot be read: {options[name]}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authorities, certificate, key = (options.get(name) for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"))
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except (ssl.SSLError, OSError):
            raise must_be("redis", "a URL whose ssl_ca_certs holds certificates (PEM)", authorities) from None
    if certificate is None:
        if key is not None:
            _refuse("a URL in which ssl_keyfile comes with ssl_certfile")
        return
    try:
        context.load_cert_chain(certificate, key, password=b"")  # else OpenSSL asks for an encrypted key's password
    except (ssl.SSLError, OSError) as error:
        if "MISMATCH" in (getattr(error, "reason", "") or ""):
            _refuse("a URL whose ssl_certfile and ssl_keyfile belong together")
        _refuse("a URL whose ssl_certfile and ssl_keyfile hold a certificate and its unencrypted key (PEM)")
