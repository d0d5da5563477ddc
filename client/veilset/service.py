"""Talking to the service: create sets, add elements, publish, look at budgets."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import grpc

from veilset.core import wire
from veilset.core.budget import NANO, format_delta, parse_delta
from veilset.core.normalization import Element
from veilset.core.params import (
    Adjacency,
    Calibration,
    FilterParameters,
    HashScheme,
    Normalization,
    PrivacyParameters,
    check_choice,
    check_name,
)
from veilset.core.release import ReleaseHeader, decode_header
from veilset.errors import InvalidInput, VeilsetError
from veilset.rich_errors import from_rpc_error
from veilset.upload import Upload, UploadResult
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc

Request = TypeVar("Request")
Response = TypeVar("Response")

_OPTIONS = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 250),  # a service that restarts is back in a second or two
    ("grpc.max_reconnect_backoff_ms", 5_000),
]


@dataclass(frozen=True, slots=True)
class SetInfo:
    """A set as its owner made it."""

    name: str
    filter: FilterParameters
    privacy: PrivacyParameters
    normalization: Normalization
    account: str
    declared_size: int
    shared_seed: bool


@dataclass(frozen=True, slots=True)
class Release:
    """A release as the service knows it. state: pending, published, lost or expired."""

    set_name: str
    sequence: int
    state: str
    request_id: str
    header: ReleaseHeader
    public_keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget account; epsilon in units, delta as exact decimal text."""

    account: str
    epsilon_total: float
    epsilon_spent: float
    epsilon_left: float
    delta_total: str
    delta_spent: str
    delta_left: str
    charges: int


class Service:
    """A connection to a veilset service; use it as a context manager. Thread-safe.

    Every method raises `veilset.errors.VeilsetError` subclasses: what the service raised, or Unavailable.
    timeout_seconds: for each call but `add`, which ends when it is done, and `publish`.
    """

    def __init__(self, target: str, timeout_seconds: float = 30.0) -> None:
        if ":" not in target or target.startswith(("http://", "https://")):
            raise InvalidInput("server", "host:port, such as localhost:50051", target)
        self.target = target
        self._timeout = timeout_seconds
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._stub = membership_pb2_grpc.MembershipServiceStub(self._channel)

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def create_set(
        self,
        name: str,
        *,
        size: int,
        epsilon: float,
        adjacency: Adjacency | str,
        delta: float = 0.0,
        bits: int = 0,
        hashes: int = 0,
        max_bytes: int = 0,
        calibration: Calibration | str | None = None,
        elements_per_user: int = 1,
        min_size: int = 1,
        scheme: HashScheme | str = HashScheme.MMH3,
        seed: int | None = None,
        normalization: Normalization | str = Normalization.NONE,
        account: str = "",
        budget_epsilon: float = 0.0,
        budget_delta: float | None = None,
        allow_poor_utility: bool = False,
    ) -> SetInfo:
        """Create an empty set; the planner chooses bits and hashes where they are 0.

        size: expected number of distinct elements. epsilon, delta, adjacency, elements_per_user: what each release
        promises. budget_epsilon: what all releases together may spend (default: one release). Arguments as in
        `veilset.core.params`. Raises InvalidInput, AlreadyExists, PoorUtility.
        """
        default = Calibration.W_QUANTILE if seed is None else Calibration.WORST_CASE
        privacy = PrivacyParameters(
            epsilon=epsilon,
            delta=delta,
            adjacency=check_choice("adjacency", adjacency, Adjacency),
            calibration=check_choice("calibration", calibration or default, Calibration),
            elements_per_user=elements_per_user,
            min_size=min_size,
        )
        with _fitting("size, bits, hashes, max_bytes, seed, account or a budget"):
            request = pb.CreateSetRequest(
                name=check_name("name", name),
                size=size,
                privacy=wire.privacy_to_proto(privacy),
                bits=bits,
                hashes=hashes,
                max_bytes=max_bytes,
                scheme=wire.to_number(wire.HASH_SCHEME, check_choice("scheme", scheme, HashScheme)),  # type: ignore[arg-type]
                seed=seed,
                normalization=wire.to_number(  # type: ignore[arg-type]
                    wire.NORMALIZATION, check_choice("normalization", normalization, Normalization)
                ),
                account=account,
                budget_epsilon=budget_epsilon,
                budget_delta=budget_delta,
                allow_poor_utility=allow_poor_utility,
            )
        return _set_info(self._call(self._stub.CreateSet, request).set)

    def get_set(self, name: str) -> SetInfo:
        """Describe a set. Raises NotFound."""
        return _set_info(self._call(self._stub.GetSet, pb.GetSetRequest(name=check_name("name", name))).set)

    def list_sets(self) -> Iterator[SetInfo]:
        """All sets, by name."""
        token = ""
        while True:
            page = self._call(self._stub.ListSets, pb.ListSetsRequest(page_token=token))
            yield from map(_set_info, page.sets)
            token = page.next_page_token
            if not token:
                return

    def delete_set(self, name: str) -> None:
        """Delete a set and its releases; what was charged stays charged. Raises NotFound."""
        self._call(self._stub.DeleteSet, pb.DeleteSetRequest(name=check_name("name", name)))

    def add(
        self,
        name: str,
        elements: Iterable[Element],
        *,
        upload_id: str | None = None,
        key: bytes | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> UploadResult:
        """Upload elements (str or bytes), hashed here; returns once the service holds them durably.

        upload_id: give one to be able to resume after a crash, with the same elements in the same order.
        on_progress: called with the number acknowledged so far. Raises InvalidInput, NotFound, Unavailable; nothing of
        an upload that did not return is publishable.
        """
        check_name("set_name", name)
        if isinstance(elements, str | bytes):
            raise InvalidInput("elements", "a collection of elements, not one of them")
        chosen = upload_id or secrets.token_hex(16)
        with _fitting("upload_id"):
            upload = Upload(self._stub, self.target, name, chosen, elements, key, on_progress)
        return upload.run()

    def publish(
        self,
        name: str,
        *,
        request_id: str | None = None,
        wait: bool = True,
        count_epsilon: float | None = None,
        count_delta: float = 0.0,
        timeout_seconds: float = 120.0,
    ) -> Release:
        """Draw noise, charge the budget, publish. The same request_id returns the same release and charges nothing.

        wait: until Redis holds it (the answer may still be "pending" where Redis stays away). count_epsilon, count_delta: what
        to spend beside that on a noisy count (add-remove only). Raises NotFound,
        FailedPrecondition, BudgetExceeded, MinimumSizeUnproved, Unavailable.
        """
        check_name("set_name", name)
        with _fitting("request_id or a count's epsilon and delta"):
            request = pb.PublishReleaseRequest(
                set_name=name,
                request_id=request_id or secrets.token_hex(16),
                no_wait=not wait,
                count=None if count_epsilon is None else pb.CountPurchase(epsilon=count_epsilon, delta=count_delta),
            )
        return _release(self._call(self._stub.PublishRelease, request, timeout_seconds).release)

    def get_release(self, name: str, sequence: int = 0) -> Release:
        """Describe a release; 0 is the newest. Raises NotFound."""
        with _fitting("sequence"):
            request = pb.GetReleaseRequest(set_name=check_name("set_name", name), sequence=sequence)
        return _release(self._call(self._stub.GetRelease, request).release)

    def list_releases(self, name: str) -> Iterator[Release]:
        """All releases of a set, newest first."""
        check_name("set_name", name)
        token = ""
        while True:
            request = pb.ListReleasesRequest(set_name=name, page_token=token)
            page = self._call(self._stub.ListReleases, request)
            yield from map(_release, page.releases)
            token = page.next_page_token
            if not token:
                return

    def budget(self, set_name: str = "", *, account: str = "") -> Budget:
        """The budget account of that name, or the one that a set is charged to. Raises NotFound."""
        request = pb.GetBudgetRequest(
            account=account and check_name("account", account), set_name=set_name and check_name("set_name", set_name)
        )
        return _budget(self._call(self._stub.GetBudget, request).budget)

    def raise_budget(self, account: str, *, reason: str, epsilon: float = 0.0, delta: float | None = None) -> Budget:
        """Raise a budget's totals; leaves an audit row with the reason. Raises NotFound, InvalidInput."""
        check_name("account", account)
        with _fitting("epsilon, delta or reason"):
            request = pb.RaiseBudgetRequest(account=account, epsilon=epsilon, delta=delta, reason=reason)
        return _budget(self._call(self._stub.RaiseBudget, request).budget)

    def confirm_loss(self, set_name: str, *, epsilon: float, reason: str, delta: float = 0.0) -> Budget:
        """Charge what a ledger lost that was restored from an older copy, at least what the refused publish named.

        Raises InvalidInput, NotFound, FailedPrecondition (nothing was lost), BudgetExceeded (raise the budget first).
        """
        check_name("set_name", set_name)
        with _fitting("epsilon, delta or reason"):
            request = pb.ConfirmLossRequest(set_name=set_name, epsilon=epsilon, delta=delta, reason=reason)
        return _budget(self._call(self._stub.ConfirmLoss, request).budget)

    def reconcile(self, set_name: str = "") -> tuple[int, int]:
        """Compare Redis with the ledger and restore what is missing; returns (releases checked, keys restored)."""
        request = pb.ReconcileReleasesRequest(set_name=set_name and check_name("set_name", set_name))
        answer = self._call(self._stub.ReconcileReleases, request)
        return answer.checked, answer.restored_keys

    def _call(
        self, method: grpc.UnaryUnaryMultiCallable[Request, Response], request: Request, timeout: float | None = None
    ) -> Response:
        try:
            return method(request, timeout=timeout or self._timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.target) from None


def connect(target: str, *, timeout_seconds: float = 30.0) -> Service:
    """Connect to a veilset service at host:port; use the result as a context manager."""
    return Service(target, timeout_seconds)


@contextmanager
def _fitting(fields: str) -> Iterator[None]:
    """What a protobuf field cannot hold (a negative count, text with lone surrogates) as InvalidInput."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, VeilsetError):
            raise
        raise InvalidInput(fields, "numbers in range and valid Unicode text") from None


def _set_info(message: pb.MembershipSet) -> SetInfo:
    return SetInfo(
        name=message.name,
        filter=wire.filter_from_proto(message.filter),
        privacy=wire.privacy_from_proto(message.privacy),
        normalization=wire.from_number("normalization", wire.NORMALIZATION, message.normalization),
        account=message.account,
        declared_size=message.declared_size,
        shared_seed=message.shared_seed,
    )


def _release(message: pb.Release) -> Release:
    return Release(
        set_name=message.set_name,
        sequence=message.sequence,
        state=pb.ReleaseState.Name(message.state).removeprefix("RELEASE_STATE_").lower(),
        request_id=message.request_id,
        header=decode_header(message.manifest.header),
        public_keys=tuple(signature.public_key for signature in message.manifest.signatures),
    )


def _budget(message: pb.Budget) -> Budget:
    return Budget(
        account=message.account,
        epsilon_total=message.total_nano_epsilon / NANO,
        epsilon_spent=message.spent_nano_epsilon / NANO,
        epsilon_left=(message.total_nano_epsilon - message.spent_nano_epsilon) / NANO,
        delta_total=message.total_delta,
        delta_spent=message.spent_delta,
        delta_left=format_delta(parse_delta(message.total_delta) - parse_delta(message.spent_delta)),
        charges=message.charges,
    )
