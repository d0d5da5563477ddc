"""Limits on what one principal, and all callers together, may ask of the service at a time; how a setting is declared."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from veilset.errors import LimitExceeded, must_be

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def setting(default: Any, text: str, low: float | None = None, high: float | None = None, **option: Any) -> Any:
    """A field of a dataclass of settings, with the help text, the range and further attributes of its command-line option."""
    return field(default=default, metadata={"help": text, "range": (low, high), "option": option})


def check_ranges(settings: DataclassInstance) -> None:
    """Raises InvalidInput naming the first field that is out of its range."""
    for item in fields(settings):
        low, high = item.metadata.get("range", (None, None))
        value = getattr(settings, item.name)
        if low is not None and value is not None and not low <= value <= high:
            raise must_be(item.name, f"a number in [{low:g}, {high:g}]", value)


@dataclass(frozen=True, slots=True)
class Limits:
    """A principal is who the credentials name. Where authentication is off, calls are counted by address, and all uploads and
    sets count as one principal's.

    A sixteenth of ``max_calls`` is kept in addition for calls that are no streams. Twice ``requests_per_second`` may come
    at once. Open uploads are those that were begun and not finished, with or without a stream.
    """

    max_calls: int = setting(1024, "Calls open at a time, streams and others.", 1, 100_000)
    max_calls_per_principal: int = setting(
        128, "The same of one principal, or of one address without authentication.", 1, 100_000
    )
    requests_per_second: int = setting(10_000, "Calls begun a second, on the long run.", 1, 1e6)
    requests_per_second_per_principal: int = setting(2_000, "The same of one principal.", 1, 1e6)
    max_open_uploads: int = setting(10_000, "Uploads begun and not finished.", 1, 1_000_000)
    max_open_uploads_per_principal: int = setting(1_000, "The same of one principal.", 1, 1_000_000)
    max_sets_per_principal: int = setting(1_000, "Sets that one principal may have created.", 1, 1_000_000)
    max_message_bytes: int = setting(2 << 20, "Longest message of a call, in bytes.", 1 << 16, 1 << 26)
    failed_attempts_per_minute: int = setting(20, "Calls without valid credentials that one address may make.", 1, 1000)

    @property
    def reserved_calls(self) -> int:
        """Places beyond ``max_calls`` that streams cannot take."""
        return self.max_calls // 16

    def __post_init__(self) -> None:
        check_ranges(self)


def exceeded(what: str, setting: str, limit: float) -> LimitExceeded:
    """The refusal that names a limit. what: the sentence, such as "calls: 128 are open"."""
    return LimitExceeded(f"{what} (limit {setting} = {limit:g})", setting=setting, limit=f"{limit:g}")
