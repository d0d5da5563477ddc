"""What Redis answers, or fails to, as one of our errors: a cause that passes by itself, or one that somebody has to mend.

redis-py's errors wrap one another, the telling one often innermost. Redis's own text is never repeated: from it come a command's
name and an address at most.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from veilset.errors import StoreMisconfigured, Unavailable, VeilsetError

# What redis-py makes of an answer that is no RESP, or not what the command answers; by the kind, as each comes from many places.
_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, AssertionError)

_EXPIRED, _NOT_YET_VALID = 10, 9
_NAME_MISMATCH = (62, 64)  # of a name, of an address


@contextmanager
def transient(place: str = "") -> Iterator[None]:
    """Turn what Redis answers when it is down, full, loading or read-only into Unavailable, naming the kind and the place, and
    what will not pass by itself (a password, an access rule, a wrong scheme) into StoreMisconfigured, naming what to do."""
    try:
        yield
    except VeilsetError:
        raise
    except Exception as error:
        found = _translate(error, place)
        if found is None:
            raise
        raise found from None


def _translate(error: Exception, place: str) -> VeilsetError | None:
    import redis  # here, as it takes a third of a second, and most processes meet no error

    if isinstance(error, _MALFORMED) and not isinstance(error, redis.RedisError):
        return Unavailable("Redis: does not speak its protocol", kind="PROTOCOL")
    if not isinstance(error, redis.RedisError | redis.RedisClusterException | OSError):
        return None
    causes = list(_chain(error))
    for cause in causes:
        if hint := _lasting(cause):
            kind = "UnknownCommand" if _unknown_command(cause) else type(cause).__name__
            return StoreMisconfigured(f"Redis: refuses us ({kind}): {hint}", kind=kind)
    kind = type(error).__name__
    if type(error) is redis.ResponseError:  # its text starts with the code, such as MISCONF
        code = str(error).rpartition("caused error: ")[2].split(" ", 1)[0]  # a pipeline says more in front of it
        kind = code if code.isalpha() and code.isupper() else kind
    named = next(filter(None, map(_address, causes)), place)
    return Unavailable(f"Redis: unavailable ({kind}){f' at {named}' if named else ''}", kind=kind)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it was raised from, or while handling."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _address(error: BaseException) -> str:
    """Which of several hosts redis-py means."""
    found = re.search(r"(?:connecting to|reading from) (\[?[\w.:-]{1,255}\]?:[0-9]{1,5})\b", str(error))
    return found[1] if found else ""


def _lasting(error: BaseException) -> str:
    """What somebody has to change before the same command can succeed; empty if time alone may do."""
    import redis

    text = str(error)
    if isinstance(error, ssl.SSLError):
        return _tls_fault(error)
    if isinstance(error, redis.AuthenticationError | redis.AuthenticationWrongNumberOfArgsError):
        return "it wants another user or password in the URL"
    if isinstance(error, redis.exceptions.NoPermissionError) or (
        isinstance(error, redis.exceptions.ExecAbortError) and "NOPERM" in text  # of EXEC itself
    ):
        return f"its access rules do not allow {_forbidden(error) or 'what is needed'}"
    if isinstance(error, redis.exceptions.MovedError):
        return "it is a node of a cluster; give a redis+cluster:// URL"
    if hasattr(error, "mend"):  # `redis_connections.Lasting`
        return str(error.mend)
    if isinstance(error, redis.RedisError):
        return mend_of(text)
    return ""


def mend_of(text: str) -> str:
    """What somebody has to change, from Redis's own words; empty if time alone may do."""
    if "cluster support disabled" in text:
        return "it is no cluster; give a redis:// URL"
    if "not allowed in cluster mode" in text:
        return "it is a node of a cluster; give a redis+cluster:// URL"
    if (command := _unknown_command_of(text)) == "SENTINEL":
        return "it is no Sentinel; a server's URL starts with redis:// or rediss://"
    if command:
        return f"it does not know {command}, which is renamed or switched off there; a Sentinel's URL starts with redis+sentinel://"
    if "DB index" in text:
        return "it has no database of that number; the URL ends with one that it has, such as /0"
    if "protected mode" in text:
        return "its protected mode answers its own machine only; give it a password, or switch that mode off"
    if "max number of clients" in text:
        return "it serves as many clients as its maxclients allows; raise that, or close some"
    return ""


def refused_command(error: BaseException) -> bool:
    """Whether Redis knows no such command, or does not allow it to us."""
    import redis

    return isinstance(error, redis.exceptions.NoPermissionError) or bool(_unknown_command(error))


def _forbidden(error: BaseException) -> str:
    """What access rules refuse, as far as Redis says so: a command, a key or a channel."""
    text = str(error)
    if found := re.search(r"'([A-Za-z|_-]{1,40})' command", text):
        return found[1].upper()
    if "channel" in text:
        return "the channel of the set"
    return "the keys of the set" if "key" in text else ""


def _unknown_command(error: BaseException) -> str:
    import redis

    return _unknown_command_of(str(error)) if isinstance(error, redis.ResponseError) else ""


def _unknown_command_of(text: str) -> str:
    found = re.search(r"unknown command [`']([A-Za-z|_-]{1,40})[`']", text, re.IGNORECASE)
    return found[1].upper() if found else ""


def _tls_fault(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _NAME_MISMATCH:
            return f"its certificate is for another name or address than the URL's ({error.verify_message})"
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            return f"its certificate does not verify ({error.verify_message}); renew it, or look at the clocks"
        return f"its certificate does not verify ({error.verify_message}); ssl_ca_certs in the URL names whom to trust"
    if "CERTIFICATE_REQUIRED" in reason:
        return "it asks for a client certificate; give ssl_certfile and ssl_keyfile in the URL"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "HANDSHAKE_FAILURE" in reason):
        told = reason.lower().replace("_", " ")
        return f"it refuses this client's certificate ({told}); give ssl_certfile and ssl_keyfile that it accepts"
    if "MISMATCH" in reason:
        return "ssl_certfile and ssl_keyfile in the URL do not belong together"
    return ""
