"""Upload ids as the service keeps them, ``content/principal/id``, so that no two of these three ever share one.

Neither the name of a content nor a principal's holds a slash, and everybody's, where nobody is asked, is empty: the first two
slashes end the two, whatever text the caller chose as the id.
"""

from __future__ import annotations

from enum import StrEnum

from veilset_server.principals import Principal


class UploadContent(StrEnum):
    """What an upload brings, and so what its spool holds."""

    ELEMENTS = "elements"
    VECTOR = "vector"


def kept_id(content: UploadContent, principal: Principal, given_id: str) -> str:
    """The id in the ledger of what the principal calls ``given_id``."""
    return _prefix(content, principal) + given_id


def content_of(upload_id: str) -> UploadContent:
    """What the upload of an id in the ledger brings."""
    return UploadContent.VECTOR if upload_id.startswith(f"{UploadContent.VECTOR}/") else UploadContent.ELEMENTS


def prefixes(principal: Principal) -> tuple[str, ...]:
    """What the ids of the principal's uploads begin with; for everybody "", as all uploads are theirs."""
    return tuple(_prefix(content, principal) for content in UploadContent) if principal.name else ("",)


def _prefix(content: UploadContent, principal: Principal) -> str:
    return f"{content}/{principal.name}/"
