"""The table of bad input: what is sent, and the status, reason and field that have to come back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.raw_calls import digest_batch, finish, hashed, open_upload, raw_batch
from harness.shapes import bloom
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2

UNKNOWN = "no-such-set"
INVALID = ("INVALID_ARGUMENT", "INVALID_INPUT")
MISSING = ("NOT_FOUND", "NOT_FOUND")
ABORTED = ("ABORTED", "OUT_OF_SEQUENCE")
MISMATCH = ("ABORTED", "UPLOAD_MISMATCH")
HUGE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class BadCall:
    """A unary call. make: the request, given the name of a set that exists. field: as the details have to name it."""

    method: str
    make: Callable[[str], Any]
    answer: tuple[str, str]
    field: str


@dataclass(frozen=True, slots=True)
class BadStream:
    """Messages of an upload, given the name of a set and an upload id; half_close: the producer then says that it is done."""

    make: Callable[[str, str], Sequence[pb.AddElementsRequest]]
    answer: tuple[str, str]
    field: str
    half_close: bool = False


def creation(
    name: str = "never-made",
    epsilon: float = 3.0,
    delta: float = 1e-9,
    adjacency: int = parameters_pb2.ADJACENCY_ADD_REMOVE,
    privacy: dict[str, Any] | None = None,
    **more: Any,
) -> pb.CreateSetRequest:
    """A sound request to create a set, but for what is given."""
    promise = parameters_pb2.PrivacyParameters(epsilon=epsilon, delta=delta, adjacency=adjacency, **(privacy or {}))  # type: ignore[arg-type]
    if "bits" in more or "hashes" in more:
        more["encoding"] = bloom(more.pop("bits", 0), more.pop("hashes", 0))
    return pb.CreateSetRequest(name=name, privacy=promise, **({"size": 1000} | more))


def _creations() -> Iterator[tuple[str, BadCall]]:
    def bad(case: str, field: str, answer: tuple[str, str] = INVALID, **given: Any) -> tuple[str, BadCall]:
        return f"create: {case}", BadCall("CreateSet", lambda _: creation(**given), answer, field)

    names = ("", "Upper", "-x", ".x", "a" * 64, "a:b", "{a}b", "../x", "a b", "a\nb", "ä", "a\0")
    yield from (bad(f"name {name!r:.12}", "name", name=name) for name in names)
    yield from (bad(f"epsilon {e}", "epsilon", epsilon=e) for e in (0.0, -1.0, 64.1, math.nan, math.inf, -math.inf))
    yield from (bad(f"delta {d}", "delta", delta=d) for d in (-1e-9, 0.11, 1.0, math.nan, math.inf))
    yield bad("no hashes beside bits", "hashes", bits=1000)
    yield bad("no bits beside hashes", "bits", hashes=1)
    yield bad("33 hashes", "hashes", bits=1000, hashes=33)
    yield from (bad(f"{m} bits", "bits", bits=m, hashes=1) for m in (1, 7, (1 << 40) + 1, HUGE))
    yield bad(
        "more bits than this service takes", "bits", ("RESOURCE_EXHAUSTED", "LIMIT_EXCEEDED"), bits=1 << 36, hashes=1
    )
    yield bad("adjacency missing", "adjacency", adjacency=0)
    yield bad("adjacency unknown", "adjacency", adjacency=99)
    yield bad("calibration unknown", "calibration", privacy={"calibration": 99})
    yield bad("elements per user", "elements_per_user", privacy={"elements_per_user": 1001})
    yield bad("min size", "min_size", privacy={"min_size": HUGE})
    yield bad(f"size {HUGE}", "size", size=HUGE)
    yield bad("size and count epsilon", "count_epsilon", count_epsilon=0.1)
    counts = (1e-9, -1.0, 64.0, math.nan, math.inf)
    yield from (bad(f"count epsilon {e}", "count_epsilon", size=0, count_epsilon=e) for e in counts)
    replace_one = parameters_pb2.ADJACENCY_REPLACE_ONE
    yield bad("no size under replace-one", "size", size=0, adjacency=replace_one)
    yield bad("scheme unknown", "scheme", scheme=99)
    keyed = parameters_pb2.HASH_SCHEME_BLAKE2B_V1
    yield from (
        bad(f"check value of {len(c)} bytes", "key_check", scheme=keyed, key_check=c)
        for c in (b"", b"7 bytes", bytes(9))
    )
    yield bad("check value of an unkeyed scheme", "key_check", key_check=bytes(8))
    yield bad("normalization unknown", "normalization", normalization=99)
    yield bad("account", "account", account="No Account")
    yield bad("a budget below one release", "budget_epsilon", budget_epsilon=1.0)
    yield from (bad(f"budget {e}", "budget_epsilon", budget_epsilon=e) for e in (-1.0, math.nan, math.inf))
    yield from (bad(f"delta budget {d}", "budget_delta", budget_delta=d) for d in (-1.0, 1e-12, 2.0, math.nan))
    yield bad("a coin toss", "bits", ("FAILED_PRECONDITION", "POOR_UTILITY"), epsilon=0.5, bits=8000, hashes=32)


def _calls() -> Iterator[tuple[str, BadCall]]:
    def unknown(method: str, request: Callable[..., Any], name: str = "set_name", **more: Any) -> tuple[str, BadCall]:
        return f"{method}: unknown set", BadCall(method, lambda _: request(**{name: UNKNOWN} | more), MISSING, "name")

    yield unknown("GetSet", pb.GetSetRequest, "name")
    yield unknown("DeleteSet", pb.DeleteSetRequest, "name")
    yield unknown("PublishRelease", pb.PublishReleaseRequest, request_id="r")
    yield unknown("GetRelease", pb.GetReleaseRequest)
    yield unknown("ListReleases", pb.ListReleasesRequest)
    yield unknown("GetBudget", pb.GetBudgetRequest)
    yield unknown("ReconcileReleases", pb.ReconcileReleasesRequest)

    def bad(case: str, field: str, request: Callable[..., Any], **given: Any) -> tuple[str, BadCall]:
        method = request.__name__.removesuffix("Request")
        answer = given.pop("answer", INVALID)
        return f"{method}: {case}", BadCall(method, lambda name: request(**_named(given, name)), answer, field)

    taken = ("ALREADY_EXISTS", "ALREADY_EXISTS")
    yield "create: a name that is taken", BadCall("CreateSet", lambda name: creation(name), taken, "name")
    yield bad("no request id", "request_id", pb.PublishReleaseRequest, set_name="{set}")
    yield bad("a long request id", "request_id", pb.PublishReleaseRequest, set_name="{set}", request_id="r" * 129)
    yield bad("a sequence too high", "sequence", pb.GetReleaseRequest, set_name="{set}", sequence=99, answer=MISSING)
    yield bad("a sequence without bounds", "sequence", pb.GetReleaseRequest, set_name="{set}", sequence=HUGE)
    for token in ("x", "-1", "٣", "9" * 30):
        yield bad(f"page token {token}", "page_token", pb.ListReleasesRequest, set_name="{set}", page_token=token)
    yield bad("page size", "page_size", pb.ListReleasesRequest, set_name="{set}", page_size=1001)
    yield bad("page size", "page_size", pb.ListSetsRequest, page_size=1001)
    yield bad("neither set nor account", "account", pb.GetBudgetRequest)
    yield bad("both set and account", "account", pb.GetBudgetRequest, set_name="{set}", account="{set}")
    missing = {"account": UNKNOWN, "epsilon": 9.0, "reason": "none"}
    yield bad("unknown account", "account", pb.RaiseBudgetRequest, answer=MISSING, **missing)
    for epsilon in (-1.0, 0.5, math.nan, math.inf):
        given = {"account": "{set}", "epsilon": epsilon, "reason": "none"}
        yield bad(f"epsilon {epsilon}", "epsilon", pb.RaiseBudgetRequest, **given)
    for delta in (-1.0, 0.0, 2.0, math.nan):
        yield bad(f"delta {delta}", "delta", pb.RaiseBudgetRequest, account="{set}", delta=delta, reason="none")
    yield bad("no reason", "reason", pb.RaiseBudgetRequest, account="{set}", epsilon=9.0)
    yield bad("no adjacency", "adjacency", pb.PlanReleaseRequest, size=9, privacy=_promise(adjacency=0))
    yield bad("no hashes", "hashes", pb.PlanReleaseRequest, size=9, privacy=_promise(), encoding=bloom(100, 0))
    yield bad("no size", "size", pb.PlanReleaseRequest, privacy=_promise())
    removals = {"size": 9, "privacy": _promise(), "removals_epsilon": 1.0}
    yield bad("removals without increments", "removals_epsilon", pb.PlanReleaseRequest, **removals)


def _promise(adjacency: int = parameters_pb2.ADJACENCY_ADD_REMOVE) -> parameters_pb2.PrivacyParameters:
    return parameters_pb2.PrivacyParameters(epsilon=3.0, adjacency=adjacency)  # type: ignore[arg-type]


def _named(given: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: name if value == "{set}" else value for key, value in given.items()}


BAD_CALLS = dict([*_creations(), *_calls()])

_TEN = [b"element %d" % number for number in range(10)]
_PACKED = hashed(_TEN, seed=0)


def _stream(*messages: pb.AddElementsRequest) -> Callable[[str, str], Sequence[pb.AddElementsRequest]]:
    return lambda name, upload_id: [open_upload(name, upload_id), *messages]


BAD_STREAMS = {
    "no message": BadStream(lambda *_: [], ABORTED, "open", half_close=True),
    "no open message": BadStream(lambda *_: [raw_batch(1, _TEN)], ABORTED, "open"),
    "an empty message": BadStream(lambda *_: [pb.AddElementsRequest()], ABORTED, "open"),
    "unknown set": BadStream(lambda *_: [open_upload(UNKNOWN, "u")], MISSING, "name"),
    "no upload id": BadStream(lambda name, _: [open_upload(name, "")], INVALID, "upload_id"),
    "a long upload id": BadStream(lambda name, _: [open_upload(name, "u" * 129)], INVALID, "upload_id"),
    "opened twice": BadStream(lambda name, u: [open_upload(name, u), open_upload(name, u)], ABORTED, "message"),
    "an empty message later": BadStream(_stream(raw_batch(1, _TEN), pb.AddElementsRequest()), ABORTED, "message"),
    "a batch of nothing": BadStream(_stream(pb.AddElementsRequest(batch=pb.Batch(sequence=1))), INVALID, "content"),
    "a batch of no elements": BadStream(_stream(raw_batch(1, [])), INVALID, "elements"),
    "a batch of no digests": BadStream(_stream(digest_batch(1, b"")), INVALID, "digests"),
    "an empty element": BadStream(_stream(raw_batch(1, [*_TEN, b""])), INVALID, "elements"),
    "an overlong element": BadStream(_stream(raw_batch(1, [*_TEN, b"x" * 4097])), INVALID, "elements"),
    "half a digest": BadStream(_stream(digest_batch(1, _PACKED[:-1])), INVALID, "digests"),
    "too many elements": BadStream(_stream(raw_batch(1, [b"x"] * 65537)), INVALID, "elements"),
    "too many digests": BadStream(_stream(digest_batch(1, bytes(8 * 65537))), INVALID, "digests"),
    "batch 0": BadStream(_stream(raw_batch(0, _TEN)), INVALID, "sequence"),
    "batch 2 first": BadStream(_stream(raw_batch(2, _TEN)), ABORTED, "sequence"),
    "batch 3 after 1": BadStream(_stream(raw_batch(1, _TEN), raw_batch(3, _TEN)), ABORTED, "sequence"),
    "one too few in finish": BadStream(_stream(raw_batch(1, _TEN), finish(9)), MISMATCH, "count"),
    "one too many in finish": BadStream(_stream(raw_batch(1, _TEN), finish(11)), MISMATCH, "count"),
    "a count without bounds": BadStream(_stream(raw_batch(1, _TEN), finish(HUGE)), INVALID, "count"),
    "another checksum": BadStream(_stream(digest_batch(1, _PACKED), finish(10, _PACKED[8:])), MISMATCH, "checksum"),
    "no checksum of digests": BadStream(_stream(digest_batch(1, _PACKED), finish(10)), INVALID, "checksum"),
    "half a checksum": BadStream(
        _stream(digest_batch(1, _PACKED), pb.AddElementsRequest(finish=pb.FinishUpload(count=10, checksum=bytes(8)))),
        INVALID,
        "checksum",
    ),
    "no finish": BadStream(_stream(raw_batch(1, _TEN)), ABORTED, "finish", half_close=True),
    "nothing after open": BadStream(_stream(), ABORTED, "finish", half_close=True),
}
