"""The connection to a service: create sets, add elements, publish, show budgets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import grpc

from veilset._input.columns import Batch, element_batches
from veilset._service.channel import open_channel
from veilset._service.endpoint import Endpoint, FileName, make_endpoint
from veilset._service.errors import from_rpc_error
from veilset._service.records import Budget, Reconciled, Release, SetInfo, budget_record, release_record, set_info
from veilset._service.small_uploads import SmallUploads, leading_batches
from veilset._service.upload import Patience, Upload, UploadOptions, UploadPart, UploadResult
from veilset._system import OneProcess
from veilset.core.elements.hashing import key_check as compute_key_check
from veilset.core.elements.normalization import Element
from veilset.core.encodings import ENCODINGS, find_encoding
from veilset.core.params import (
    MAX_PART,
    Adjacency,
    Calibration,
    HashScheme,
    Normalization,
    Operation,
    PrivacyParameters,
    check_choice,
    check_integer,
    check_key_check,
    check_name,
)
from veilset.core.release import wire
from veilset.errors import (
    FailedPrecondition,
    InvalidInput,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    VeilsetError,
    WrongKey,
    must_be,
)
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc
from veilset.v1.parameters_pb2 import Encoding

if TYPE_CHECKING:
    from veilset._service.spec import Spec

Request = TypeVar("Request")
Response = TypeVar("Response")


class SpecSetOptions(TypedDict, total=False):
    """What the owner of a set decides where a spec fixes the rest; `Service.create_set` describes it."""

    account: str
    budget_epsilon: float
    budget_delta: float | None
    allow_poor_utility: bool
    increments: int
    increment_capacity: int
    removals_epsilon: float
    expire_days: int


class Service:
    """A connection to a veilset service; use it as a context manager. Thread-safe; a process that forks connects anew.

    Every method raises `veilset.errors.VeilsetError` subclasses: what the service raised, or Unavailable.
    timeout_seconds: for each call but `add`, which ends when it is done, and `publish`.
    """

    def __init__(self, target: str | Endpoint, timeout_seconds: float = 30.0) -> None:
        self.target = target if isinstance(target, Endpoint) else make_endpoint(target)
        self._timeout = timeout_seconds
        self._closed = False
        self._process = OneProcess()
        self._channel = open_channel(self.target)
        self._stub = membership_pb2_grpc.MembershipServiceStub(self._channel)
        self._small_uploads = SmallUploads(self._stub, self.target, timeout_seconds)

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; every later call raises FailedPrecondition."""
        self._closed = True
        self._channel.close()

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPrecondition("service: this connection is closed; veilset.connect makes a new one")
        self._process.check("service: this connection was made", "call veilset.connect in the child")

    def create_set(
        self,
        name: str,
        *,
        size: int = 0,
        epsilon: float,
        adjacency: Adjacency | str,
        delta: float = 0.0,
        count_epsilon: float = 0.0,
        encoding: str = "",
        max_bytes: int = 0,
        max_false_positive_rate: float = 0.0,
        min_true_positive_rate: float = 0.0,
        calibration: Calibration | str | None = None,
        elements_per_user: int = 1,
        min_size: int = 1,
        scheme: HashScheme | str = HashScheme.MMH3,
        seed: int | None = None,
        key: bytes | None = None,
        key_check: str = "",
        normalization: Normalization | str = Normalization.NONE,
        account: str = "",
        budget_epsilon: float = 0.0,
        budget_delta: float | None = None,
        allow_poor_utility: bool = False,
        increments: int = 0,
        increment_capacity: int = 0,
        removals_epsilon: float = 0.0,
        expire_days: int = 0,
        **dimensions: int,
    ) -> SetInfo:
        """Create an empty set; the planner chooses the dimensions of its encoding that are not given.

        size: expected number of distinct elements; without one each release is made for a noisy count of its own, which takes
        count_epsilon (default 0.05) of its ε. encoding: "bloom" (default) or "linear"; dimensions: by the names that
        ``veilset plan`` shows, such as bits and hashes. max_bytes, max_false_positive_rate, min_true_positive_rate: limits
        for the planner, at most one of the two rates; 0 for none. epsilon, delta, adjacency, elements_per_user: what each release
        promises. budget_epsilon: what all releases together may spend (default: one release). key: the secret of a
        keyed scheme, of which the service gets the check value only; key_check: that value, where the secret is elsewhere.
        increments: how many may follow each base release; they cost nothing beside their base. increment_capacity: how many new
        elements one is made for (default: a hundredth of size, at least 1000). removals_epsilon: what each generation pays, on
        top of its base, for vectors of removed elements. expire_days: an element that was not added again for so many days
        leaves the set; like a removal this takes effect in the next base release, refunds nothing and is never confirmed.
        Arguments as in `veilset.core.params`. Raises InvalidInput, WrongKey, AlreadyExists, PoorUtility.
        """
        if key is not None:
            own = compute_key_check(key)
            if key_check not in ("", own):
                raise WrongKey(
                    "key", f"key is not the secret whose check value is {key_check}; its check value is {own}"
                )
            key_check = own
        chosen_scheme = check_choice("scheme", scheme, HashScheme)
        check_key_check(key_check, chosen_scheme)
        default = Calibration.W_QUANTILE if seed is None else Calibration.WORST_CASE
        privacy = PrivacyParameters(
            epsilon=epsilon,
            delta=delta,
            adjacency=check_choice("adjacency", adjacency, Adjacency),
            calibration=check_choice("calibration", calibration or default, Calibration),
            elements_per_user=elements_per_user,
            min_size=min_size,
        )
        with _fitting("size, a dimension, max_bytes, seed, account or a budget"):
            request = pb.CreateSetRequest(
                name=check_name("name", name),
                size=size,
                privacy=wire.privacy_to_proto(privacy),
                encoding=_encoding_message(encoding, dimensions),
                max_bytes=max_bytes,
                max_false_positive_rate=max_false_positive_rate,
                min_true_positive_rate=min_true_positive_rate,
                scheme=wire.to_number(wire.HASH_SCHEME, chosen_scheme),  # type: ignore[arg-type]
                seed=seed,
                key_check=bytes.fromhex(key_check),
                normalization=wire.to_number(  # type: ignore[arg-type]
                    wire.NORMALIZATION, check_choice("normalization", normalization, Normalization)
                ),
                account=account,
                budget_epsilon=budget_epsilon,
                budget_delta=budget_delta,
                allow_poor_utility=allow_poor_utility,
                count_epsilon=count_epsilon,
                increments=increments,
                increment_capacity=increment_capacity,
                removals_epsilon=removals_epsilon,
                expire_days=expire_days,
            )
        return set_info(self._call(self._stub.CreateSet, request).set)

    def create_set_from_spec(
        self,
        name: str,
        spec: Spec,
        *,
        size: int | None = None,
        key: bytes | None = None,
        **options: Unpack[SpecSetOptions],
    ) -> SetInfo:
        """Create an empty set from a spec; its releases compare with those of every set made from the same spec.

        size: expected number of distinct elements on this side; default: the spec's. key: the secret of a keyed scheme, if it
        is to be checked against the spec here. options: as in `create_set`. Raises as `create_set` does.
        """
        hashing, privacy = spec.hashing, spec.privacy
        return self.create_set(
            name,
            size=spec.size if size is None else size,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            adjacency=privacy.adjacency,
            calibration=privacy.calibration,
            elements_per_user=privacy.elements_per_user,
            min_size=privacy.min_size,
            encoding=spec.encoding.encoding,
            scheme=hashing.scheme,
            seed=hashing.seed,
            key=key,
            key_check=hashing.key_check,
            normalization=spec.normalization,
            **options,
            **spec.encoding.dimensions(),
        )

    def get_set(self, name: str) -> SetInfo:
        """The parameters of a set. Raises NotFound."""
        return set_info(self._call(self._stub.GetSet, pb.GetSetRequest(name=check_name("name", name))).set)

    def list_sets(self) -> Iterator[SetInfo]:
        """The parameters of all sets, sorted by name."""
        token = ""
        while True:
            page = self._call(self._stub.ListSets, pb.ListSetsRequest(page_token=token))
            yield from map(set_info, page.sets)
            token = page.next_page_token
            if not token:
                return

    def delete_set(self, name: str) -> None:
        """Delete a set and its releases; what was charged stays charged. Raises NotFound."""
        self._call(self._stub.DeleteSet, pb.DeleteSetRequest(name=check_name("name", name)))

    def add(self, name: str, elements: Iterable[Element], **options: Unpack[UploadOptions]) -> UploadResult:
        """Hash elements (str or bytes) here and add them to the set; returns once the service holds them durably.

        options, all optional. upload_id: give one to be able to resume after a crash, with the same elements in the same order;
        other elements need another id: those of a finished upload are compared and not sent, and AlreadyExists is raised if they
        differ. key: the secret of a keyed scheme. on_progress: called with the number acknowledged so far. retry_seconds: how
        long to keep trying without progress while the service is away (default: 30, enough for a restart). skip_invalid: leave
        out what is no element under the set's normalization, instead of refusing all of it.
        Raises InvalidInput, NotFound, AlreadyExists, Unavailable; an upload that did not return is not part of any release.
        """
        return self.upload(Operation.ADD, name, elements, **options)

    def remove(self, name: str, elements: Iterable[Element], **options: Unpack[UploadOptions]) -> UploadResult:
        """Remove elements from the set, until they are added again; options as of `add`.

        This takes effect in the next base release: published releases do not change, and their charges stay. No answer shows
        whether an element was in the set.
        """
        return self.upload(Operation.REMOVE, name, elements, **options)

    def replace(self, name: str, elements: Iterable[Element], **options: Unpack[UploadOptions]) -> UploadResult:
        """Make the elements the whole content of the set; they may be none. Options as of `add`.

        The old content stays until the service holds all of the new one. Takes effect in the next base release, as `remove` does.
        """
        return self.upload(Operation.REPLACE, name, elements, **options)

    def upload(
        self, operation: Operation | str, name: str, elements: Iterable[Element], **options: Unpack[UploadOptions]
    ) -> UploadResult:
        """`add`, `remove` or `replace`, as ``operation`` says."""
        self._check_open()
        opening = _opening(operation, name, options.get("upload_id") or secrets.token_hex(16))
        batches = _batches(elements)
        self._small_uploads.describe(name, Patience(options.get("retry_seconds")))  # before the elements are read
        first, whole = leading_batches(batches)
        if whole and any(first):
            try:
                return self._small_uploads.send(opening, first, options)
            except FailedPrecondition as error:
                if error.details.get("field") != "upload_id":  # else a stream of that id is open, which goes on
                    raise
        return self._stream(opening, chain(first, batches), options).run(options.get("retry_seconds"))

    def upload_part(
        self,
        operation: Operation | str,
        name: str,
        elements: Iterable[Element],
        part: int,
        **options: Unpack[UploadOptions],
    ) -> UploadPart:
        """Upload one part of an upload that `finish_upload` commits, from any machine; returns once the service holds it durably.

        part: its number, 1 to 10000. options: as of `add`; upload_id, required, and operation are those of the whole upload. A
        part is resumed as an upload is, with the same elements in the same order. Raises as `add` does.
        """
        check_integer("part", part, 1, MAX_PART)
        upload_id = options.get("upload_id")
        if not upload_id:
            raise InvalidInput("upload_id", "upload_id is needed for a part: give the id of the whole upload")
        self._check_open()
        upload = self._stream(_opening(operation, name, upload_id, part), _batches(elements), options)
        upload.run(options.get("retry_seconds"))
        return upload.sealed()

    def finish_upload(
        self,
        operation: Operation | str,
        name: str,
        parts: Iterable[UploadPart],
        *,
        upload_id: str,
        retry_seconds: float | None = None,
    ) -> UploadResult:
        """Commit the parts of an upload together; returns once all of them are part of the set.

        parts: what `upload_part` returned, in any order. Raises UploadMismatch and commits none where they are not what the
        service holds.
        """
        self._check_open()
        opening = _opening(operation, name, upload_id)
        return self._stream(opening, [], {}, sorted(parts, key=attrgetter("part"))).run(retry_seconds)

    def _stream(
        self,
        opening: pb.OpenUpload,
        batches: Iterable[Batch],
        options: UploadOptions,
        parts: Sequence[UploadPart] = (),
    ) -> Upload:
        return Upload(
            self._stub,
            self.target,
            opening,
            batches,
            options.get("key"),
            options.get("on_progress"),
            skip_invalid=options.get("skip_invalid", False),
            parts=parts,
        )

    def publish(
        self,
        name: str,
        *,
        request_id: str | None = None,
        wait: bool = True,
        count_epsilon: float | None = None,
        count_delta: float = 0.0,
        although_pending: bool = False,
        epsilon: float = 0.0,
        encoding: str = "",
        increment: bool = False,
        increments: int | None = None,
        timeout_seconds: float = 120.0,
        **dimensions: int,
    ) -> Release:
        """Draw noise, charge the budget, and publish a release.

        request_id: a repetition with the same id returns the same release and charges nothing; it is refused with another
        count, epsilon or encoding. wait: until Redis holds the release; its state may still be "pending" (Redis stays away,
        ``delayed_by`` says why) or "lost" (its file was damaged before Redis had it). count_epsilon, count_delta: what to spend
        on a noisy count, on top of the release (add-remove only). although_pending: charge even if an earlier release of the
        set is charged and Redis does not accept it; else Unavailable or StoreMisconfigured is raised. epsilon, encoding,
        dimensions, increments: of this base release, in place of the set's; as in `create_set`. increment: publish only what no
        earlier release of the generation holds; this costs nothing. Raises NotFound, FailedPrecondition, BudgetExceeded,
        Unavailable. Every error has the ``request_id``, drawn here if none was given: repeating the publish with it never
        charges twice.
        """
        check_name("set_name", name)
        request_id = request_id or secrets.token_hex(16)
        with _fitting("request_id, epsilon, a dimension or a count's epsilon and delta"):
            request = pb.PublishReleaseRequest(
                set_name=name,
                request_id=request_id,
                no_wait=not wait,
                count=None if count_epsilon is None else pb.CountPurchase(epsilon=count_epsilon, delta=count_delta),
                although_pending=although_pending,
                epsilon=epsilon,
                encoding=_encoding_message(encoding, dimensions),
                increment=increment,
                increments=increments,
            )
        with _repeatable(request_id):
            return release_record(self._call(self._stub.PublishRelease, request, timeout_seconds).release)

    def get_release(self, name: str, sequence: int = 0) -> Release:
        """Describe a release; 0 is the newest. Raises NotFound."""
        with _fitting("sequence"):
            request = pb.GetReleaseRequest(set_name=check_name("set_name", name), sequence=sequence)
        return release_record(self._call(self._stub.GetRelease, request).release)

    def list_releases(self, name: str) -> Iterator[Release]:
        """All releases of a set, newest first."""
        check_name("set_name", name)
        token = ""
        while True:
            request = pb.ListReleasesRequest(set_name=name, page_token=token)
            page = self._call(self._stub.ListReleases, request)
            yield from map(release_record, page.releases)
            token = page.next_page_token
            if not token:
                return

    def budget(self, set_name: str = "", *, account: str = "") -> Budget:
        """The budget account of that name, or the one that a set is charged to, with what people changed. Raises NotFound."""
        request = pb.GetBudgetRequest(
            account=account and check_name("account", account), set_name=set_name and check_name("set_name", set_name)
        )
        answer = self._call(self._stub.GetBudget, request)
        return budget_record(answer.budget, answer.changes)

    def raise_budget(self, account: str, *, reason: str, epsilon: float = 0.0, delta: float | None = None) -> Budget:
        """Raise the totals of a budget account; the reason is kept for auditors. Raises NotFound, InvalidInput."""
        check_name("account", account)
        with _fitting("epsilon, delta or reason"):
            request = pb.RaiseBudgetRequest(account=account, epsilon=epsilon, delta=delta, reason=reason)
        return budget_record(self._call(self._stub.RaiseBudget, request).budget)

    def confirm_loss(self, set_name: str, *, epsilon: float, reason: str, delta: float = 0.0) -> Budget:
        """Charge what was spent since the copy from which the ledger was restored: at least what the refused publish named.

        Raises InvalidInput, NotFound, FailedPrecondition (nothing was lost), BudgetExceeded (raise the budget first).
        """
        check_name("set_name", set_name)
        with _fitting("epsilon, delta or reason"):
            request = pb.ConfirmLossRequest(set_name=set_name, epsilon=epsilon, delta=delta, reason=reason)
        return budget_record(self._call(self._stub.ConfirmLoss, request).budget)

    def reconcile(self, set_name: str = "") -> Reconciled:
        """Compare Redis with the ledger, content included, and restore what is missing or changed.

        The result lists what cannot be restored. Raises NotFound, Unavailable.
        """
        request = pb.ReconcileReleasesRequest(set_name=set_name and check_name("set_name", set_name))
        answer = self._call(self._stub.ReconcileReleases, request)
        return Reconciled.of(answer)

    def _call(
        self, method: grpc.UnaryUnaryMultiCallable[Request, Response], request: Request, timeout: float | None = None
    ) -> Response:
        self._check_open()
        try:
            return method(request, timeout=timeout or self._timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.target) from None


def connect(
    target: str,
    *,
    timeout_seconds: float = 30.0,
    token: str | None = None,
    ca: FileName | None = None,
    cert: FileName | None = None,
    key: FileName | None = None,
    insecure: bool = False,
) -> Service:
    """Connect to a veilset service; use the result as a context manager.

    target: host:port, or tls://host:port for TLS with a well-known certificate authority. ca: PEM file of the authority that
    signed the service's certificate; turns TLS on. cert, key: PEM files of this client's certificate and its key, if the service
    asks for one. token: bearer token. insecure: allow plain text to another machine. Defaults come from VEILSET_CA_FILE,
    VEILSET_CERT_FILE, VEILSET_CERT_KEY_FILE, VEILSET_TOKEN or VEILSET_TOKEN_FILE. Raises InvalidInput.
    """
    endpoint = make_endpoint(target, token=token, ca=ca, cert=cert, key=key, insecure=insecure, environment=os.environ)
    return Service(endpoint, timeout_seconds)


_REFUSED = (InvalidInput, NotFound, FailedPrecondition, Unauthenticated, PermissionDenied)
"""Errors of a publish that charged nothing, so that there is nothing to repeat."""


def _batches(elements: Iterable[Element]) -> Iterator[Batch]:
    if isinstance(elements, str | bytes):
        raise must_be("elements", "a collection of elements, not one of them")
    return iter(element_batches(elements))


def _opening(operation: Operation | str, name: str, upload_id: str, part: int = 0) -> pb.OpenUpload:
    """The message that opens an upload. Raises InvalidInput."""
    number = wire.to_number(wire.OPERATION, check_choice("operation", operation, Operation))
    with _fitting("upload_id"):
        return pb.OpenUpload(
            set_name=check_name("set_name", name),
            upload_id=upload_id,
            operation=number,  # type: ignore[arg-type]
            part=part,
        )


@contextmanager
def _repeatable(request_id: str) -> Iterator[None]:
    """Add the request id to every error, and to the message where the release may have been made and charged."""
    try:
        yield
    except VeilsetError as error:
        error.request_id = request_id
        error.details["request_id"] = request_id
        if not isinstance(error, _REFUSED):
            error.message += f"; repeat it with request id {request_id}, which never charges twice"
            error.args = (error.message,)
        raise


def _encoding_message(name: str, dimensions: Mapping[str, int]) -> Encoding | None:
    """The encoding that is asked for; without a name the first that has all dimensions. Raises InvalidInput."""
    if not name and not dimensions:
        return None
    families = [find_encoding(name)] if name else list(ENCODINGS.values())
    for family in families:
        if all(field in family.DIMENSIONS for field in dimensions):
            return wire.dimensions_to_proto(family.encoding, dimensions)
    known = [field for family in families for field in family.DIMENSIONS]
    wrong = next(field for field in dimensions if not name or field not in known)
    raise must_be(wrong, "a dimension of the encoding, one of " + ", ".join(known))


@contextmanager
def _fitting(fields: str) -> Iterator[None]:
    """Raise InvalidInput for what a protobuf field cannot hold, such as a negative count or text with lone surrogates."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, VeilsetError):
            raise
        raise must_be(fields, "numbers in range and valid Unicode text") from None
