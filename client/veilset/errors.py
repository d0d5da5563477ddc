"""Every error that veilset raises, one class for each cause and what to do next.

An error carries its values as attributes beside the sentence. ``status`` is the canonical gRPC status that the server
answers with and ``reason`` the stable machine-readable name; both edges (server and client) translate through
`BY_REASON`, so an error crosses the wire as the same class. No message may hold an element, a digest, or anything else
computed from a set's contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class VeilsetError(Exception):
    """Root of all errors raised on purpose. ``details`` holds what the sentence says, as text, for machines.

    request_id: of the publish that failed, to repeat it with; None for anything else.
    """

    status: ClassVar[str] = "UNKNOWN"
    reason: ClassVar[str] = "UNKNOWN"
    request_id: str | None = None

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, str] = {key: str(value) for key, value in details.items()}


class InvalidInput(VeilsetError, ValueError):
    """The caller's value is wrong whatever the state.

    message: a full sentence that names the field, what is wrong and what to do. ``field`` names it for programs, ``allowed``
    says what would be right where that is a range or a choice, else "".
    """

    status = "INVALID_ARGUMENT"
    reason = "INVALID_INPUT"

    def __init__(self, field: str, message: str, *, allowed: str = "") -> None:
        super().__init__(message, field=field, allowed=allowed)
        self.field = field
        self.allowed = allowed


def must_be(field: str, allowed: str, got: object = None) -> InvalidInput:
    """The error for a value outside a range or choice: ``allowed`` completes the sentence "<field> must be"."""
    return InvalidInput(
        field, f"{field} must be {allowed}" + ("" if got is None else f", not {got!r}"), allowed=allowed
    )


class NotComparable(InvalidInput):
    """Two sides, such as releases, differ in what has to be alike to compare them; nothing was compared.

    ``field`` names the first such thing; ``differences`` has all of them: name → (left's value, right's value).
    """

    reason = "NOT_COMPARABLE"

    def __init__(self, left: str, right: str, differences: Mapping[str, tuple[object, object]]) -> None:
        listed = "; ".join(f"{name}: {left} has {a}, {right} has {b}" for name, (a, b) in differences.items())
        super().__init__(
            next(iter(differences)), f"The two sides differ in {listed}. Create both sets from one spec (veilset spec)"
        )
        self.differences = dict(differences)


class WrongKey(InvalidInput):
    """The secret is not the one that a keyed set was made with; every answer would have been "no". ``field`` is "key"."""

    reason = "WRONG_KEY"


class NotFound(VeilsetError):
    """The named set, release or upload does not exist."""

    status = "NOT_FOUND"
    reason = "NOT_FOUND"


class AlreadyExists(VeilsetError):
    """A set of that name exists already, or an upload of that id with other elements."""

    status = "ALREADY_EXISTS"
    reason = "ALREADY_EXISTS"


class FailedPrecondition(VeilsetError):
    """The call is right but the state does not allow it; change the state first."""

    status = "FAILED_PRECONDITION"
    reason = "FAILED_PRECONDITION"


class BudgetExceeded(FailedPrecondition):
    """The charge would pass the budget; nothing was charged. Details: asked, spent, left."""

    reason = "BUDGET_EXCEEDED"


class PoorUtility(FailedPrecondition):
    """The answers of this setting would be hardly better than guessing; nothing was created. Details: the numbers, a
    better setting."""

    reason = "POOR_UTILITY"


class Unsupported(VeilsetError):
    """The encoding of a release does not show what is asked; the message says what to do instead."""

    status = "UNIMPLEMENTED"
    reason = "UNSUPPORTED"


class StateRolledBack(FailedPrecondition):
    """The ledger is an older copy of itself; nothing is published until an operator has charged what was lost."""

    reason = "STATE_ROLLED_BACK"


class OutOfSequence(VeilsetError):
    """A batch or a finish does not continue the upload; resume from the last acknowledged batch."""

    status = "ABORTED"
    reason = "OUT_OF_SEQUENCE"


class UploadMismatch(VeilsetError):
    """The finish message's count or checksum disagrees with what was received; nothing of the upload is used."""

    status = "ABORTED"
    reason = "UPLOAD_MISMATCH"


class Unauthenticated(VeilsetError):
    """No credentials were shown, or none that are valid: wrong, unknown, expired and revoked ones get the same answer."""

    status = "UNAUTHENTICATED"
    reason = "UNAUTHENTICATED"


class PermissionDenied(VeilsetError):
    """The credentials are valid but do not allow this call, or not for this set; the answer does not show whether it exists."""

    status = "PERMISSION_DENIED"
    reason = "PERMISSION_DENIED"


class LimitExceeded(VeilsetError):
    """A quota or size limit was hit. Details: limit and its value."""

    status = "RESOURCE_EXHAUSTED"
    reason = "LIMIT_EXCEEDED"


class StorageFull(VeilsetError):
    """The state folder's disk is full; nothing was half-applied. Try again after space returns."""

    status = "RESOURCE_EXHAUSTED"
    reason = "STORAGE_FULL"


class Unavailable(VeilsetError):
    """The service, or the Redis behind it, cannot be reached now; the same call may be tried again."""

    status = "UNAVAILABLE"
    reason = "UNAVAILABLE"


class StoreMisconfigured(Unavailable):
    """Redis answers but refuses the service or the reader; an operator has to change a setting or a password."""

    status = "FAILED_PRECONDITION"
    reason = "STORE_MISCONFIGURED"


class StateCorrupted(VeilsetError):
    """A file of the state folder is damaged, of a later version, or rolled back; an operator has to act."""

    status = "DATA_LOSS"
    reason = "STATE_CORRUPTED"


class ReleaseRejected(VeilsetError):
    """A release failed a check (format, signature, set, length, hash, sequence); it must not be used."""

    status = "DATA_LOSS"
    reason = "RELEASE_REJECTED"


class StaleRelease(VeilsetError):
    """The newest verified release is older than the reader allows. Details: release, age_seconds, max_age_seconds."""

    status = "FAILED_PRECONDITION"
    reason = "STALE_RELEASE"


def _all_errors(root: type[VeilsetError]) -> list[type[VeilsetError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _all_errors(child))]


BY_REASON: dict[str, type[VeilsetError]] = {error.reason: error for error in _all_errors(VeilsetError)}


def from_reason(reason: str, message: str, details: dict[str, str]) -> VeilsetError:
    """Rebuild the error that crossed the wire under ``reason``; an unknown reason gives a plain VeilsetError."""
    kind = BY_REASON.get(reason, VeilsetError)
    error = kind.__new__(kind)
    VeilsetError.__init__(error, message, **details)
    if isinstance(error, InvalidInput):
        error.field = details.get("field", "")
        error.allowed = details.get("allowed", "")
    return error
