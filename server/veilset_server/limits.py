"""What one principal, and all together, may ask of the service at a time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from veilset.errors import LimitExceeded, must_be

RANGES: dict[str, tuple[float, float]] = {
    "max_calls": (1, 100_000),
    "max_calls_per_principal": (1, 100_000),
    "requests_per_second": (1, 1e6),
    "requests_per_second_per_principal": (1, 1e6),
    "max_open_uploads": (1, 1_000_000),
    "max_open_uploads_per_principal": (1, 1_000_000),
    "max_sets_per_principal": (1, 1_000_000),
    "max_message_bytes": (1 << 16, 1 << 26),
    "failed_attempts_per_minute": (1, 1000),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """A principal is who the credentials say; where authentication is off, calls are counted by address, and uploads and
    sets belong to everybody.

    max_calls: calls open at a time, upload streams and others; a sixteenth more for others than streams. requests_per_second:
    calls begun; twice as many may come at once. max_open_uploads: begun and not finished, with or without a stream.
    max_message_bytes: one message of a call. failed_attempts_per_minute: wrong or missing credentials from one address.
    """

    max_calls: int = 1024
    max_calls_per_principal: int = 128
    requests_per_second: int = 10_000
    requests_per_second_per_principal: int = 2_000
    max_open_uploads: int = 10_000
    max_open_uploads_per_principal: int = 1_000
    max_sets_per_principal: int = 1_000
    max_message_bytes: int = 2 << 20
    failed_attempts_per_minute: int = 20

    @property
    def reserved_calls(self) -> int:
        """Places beyond ``max_calls`` that streams cannot take."""
        return self.max_calls // 16

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = RANGES[field.name]
            value = getattr(self, field.name)
            if not low <= value <= high:
                raise must_be(field.name, f"a number in [{low:g}, {high:g}]", value)


def exceeded(what: str, setting: str, limit: float) -> LimitExceeded:
    """The refusal that names a limit. what: the sentence, such as "calls: 128 are open"."""
    return LimitExceeded(f"{what} (limit {setting} = {limit:g})", setting=setting, limit=f"{limit:g}")
