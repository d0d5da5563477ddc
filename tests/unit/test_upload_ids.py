"""Upload ids in the ledger: whatever callers choose, no two uploads share one, and none is taken for one of another kind."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from veilset_server.principals import EVERYBODY, Principal, Role, make_principal
from veilset_server.usecases.upload_ids import UploadContent, content_of, kept_id, prefixes

NAMES = ["", "a", "a.b", "b", "vector", "elements", "v", "vector-", "alice"]
"""Of principals; the first is everybody's."""


def principal_of(name: str) -> Principal:
    """Everybody, or a checked one."""
    return make_principal(name, [Role.PRODUCER], ["*"]) if name else EVERYBODY


PRINCIPALS = st.one_of(st.sampled_from(NAMES), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}", fullmatch=True)).map(
    principal_of
)
PARTS = ["", "/", "//", "a", "u", "vector", "elements", "alice", "a.b", "\0", ":", "é"]
IDS = st.one_of(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join), st.text(max_size=128))
UPLOADS = st.tuples(st.sampled_from(UploadContent), PRINCIPALS, IDS)


@given(UPLOADS, UPLOADS)
@example((UploadContent.ELEMENTS, principal_of("vector"), "u1"), (UploadContent.VECTOR, EVERYBODY, "u1"))
@example(
    (UploadContent.ELEMENTS, principal_of("vector"), "alice/u"), (UploadContent.VECTOR, principal_of("alice"), "u")
)
@example((UploadContent.ELEMENTS, EVERYBODY, "alice/x"), (UploadContent.ELEMENTS, principal_of("alice"), "x"))
@example((UploadContent.ELEMENTS, EVERYBODY, "vector//u"), (UploadContent.VECTOR, EVERYBODY, "u"))
def test_two_uploads_never_share_an_id(
    one: tuple[UploadContent, Principal, str], other: tuple[UploadContent, Principal, str]
) -> None:
    """Content, principal and id make one text, from which all three can be told."""
    assert (kept_id(*one) == kept_id(*other)) == (one == other)


@given(UPLOADS)
def test_the_three_can_be_told_from_the_id(upload: tuple[UploadContent, Principal, str]) -> None:
    """So nothing a caller says moves the boundary between them."""
    content, principal, given_id = upload
    assert kept_id(*upload).split("/", 2) == [content, principal.name, given_id]
    assert content_of(kept_id(*upload)) is content


@given(UPLOADS, PRINCIPALS)
def test_a_principals_prefixes_begin_its_own_ids_only(
    upload: tuple[UploadContent, Principal, str], counted: Principal
) -> None:
    """They are what its quota counts; where nobody is asked, everything is."""
    own = any(kept_id(*upload).startswith(prefix) for prefix in prefixes(counted))
    assert own == (counted in (upload[1], EVERYBODY))


def test_the_worst_names_and_ids() -> None:
    """All pairs of them, no sample."""
    ids = {"".join(parts) for parts in itertools.product(PARTS, repeat=2)}
    made = [
        kept_id(content, principal_of(name), given_id)
        for content in UploadContent
        for name in NAMES
        for given_id in ids
    ]
    assert len(set(made)) == len(made)
