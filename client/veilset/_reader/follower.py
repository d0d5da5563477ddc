"""Following a set: always the newest verified release, replaced while queries run.

A thread listens to the set's channel, and reads the pointer at intervals as well, since an announcement can be lost. A new
release is fetched and checked whole, then replaces the old one in a single assignment: a query sees one release or the other,
never a mixture. While Redis is away, empty, or holds something that fails a check, the last verified release answers; the
caller decides how old it may become. The sequence never goes back.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset._display import Displayed
from veilset._reader.fetching import check_max_age, make_demands, refuse_stale, tell_if_ahead
from veilset._reader.notifications import Notifications
from veilset._reader.reader import Found, SetReleases, view_of
from veilset._reader.redis_url import parse_redis_url
from veilset._reader.sources import RedisSource
from veilset._reader.view import View
from veilset._service.spec import Spec
from veilset._system import OneProcess, jitter
from veilset.core.elements.normalization import Element
from veilset.core.encodings.decoder import Rule
from veilset.core.estimates.results import Check, Overlap
from veilset.errors import Unavailable, VeilsetError, must_be

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LEAST_PAUSE = 0.05
LONGEST_POLL_SECONDS = 86_400.0


class Questions(ABC):
    """The questions of a `View`, for a holder whose view is replaced by newer ones: each call reads ``view`` once and asks that.

    Raises what the view raises, and what reading ``view`` raises.
    """

    @property
    @abstractmethod
    def view(self) -> View:
        """The release to ask. Hold on to it where several answers must be of one release."""

    def __contains__(self, element: Element) -> bool:
        return element in self.view

    def contains_many(self, elements: Iterable[Element]) -> NDArray[np.bool_]:
        """As `View.contains_many`."""
        return self.view.contains_many(elements)

    def scores(self, elements: Iterable[Element]) -> NDArray[np.float64]:
        """As `View.scores`."""
        return self.view.scores(elements)

    def posteriors(self, elements: Iterable[Element], prior: float) -> NDArray[np.float64]:
        """As `View.posteriors`."""
        return self.view.posteriors(elements, prior)

    def filter(self, candidates: Any, max_false_positive_rate: float | None = None) -> Any:
        """As `View.filter`."""
        return self.view.filter(candidates, max_false_positive_rate)

    def check(
        self, element: Element, prior: float, cost_false_positive: float = 1.0, cost_false_negative: float = 1.0
    ) -> Check:
        """As `View.check`."""
        return self.view.check(element, prior, cost_false_positive, cost_false_negative)

    def overlap(self, elements: Iterable[Element], confidence: float = 0.95) -> Overlap:
        """As `View.overlap`."""
        return self.view.overlap(elements, confidence)


class Follower(Displayed, Questions):
    """The newest verified release of a set; made by `veilset.follow`, used as a context manager. Thread-safe.

    The questions are those of `View`, each asked of one release. They raise StaleRelease where it is older than
    ``max_age_seconds``.

    last_error: why the last look at Redis failed, or what ``on_release`` raised; None if neither did.
    """

    def __init__(
        self,
        url: str,
        releases: SetReleases,
        *,
        poll_seconds: float = 10.0,
        max_age_seconds: float | None = None,
        on_release: Callable[[View], object] | None = None,
        key: bytes | None = None,
        decision: dict[str, Any] | None = None,
    ) -> None:
        if not 0 < poll_seconds <= LONGEST_POLL_SECONDS:
            raise must_be("poll_seconds", f"a number in (0, {LONGEST_POLL_SECONDS:g}]", poll_seconds)
        self._process = OneProcess()
        self._url = parse_redis_url(url)  # once: it remembers the nodes of a cluster
        self._releases = releases
        self._poll_seconds = poll_seconds
        self._max_age_seconds = check_max_age(max_age_seconds)
        self._on_release = on_release
        self._key = key
        self._decision = decision or {}
        self._source: RedisSource | None = None
        self._looking = threading.RLock()
        self._stop = threading.Event()
        self._news = Notifications(self._url, releases.set_name, self._stop)
        self._view = self._first()
        self.last_error: Exception | None = self._view.offline
        self._thread = threading.Thread(target=self._watch, name=f"follow {releases.set_name}", daemon=True)
        self._thread.start()

    @property
    def view(self) -> View:
        """The newest verified release. Raises StaleRelease, and FailedPrecondition in a forked child, which has no thread."""
        self._process.check("follower: made", "call veilset.follow in the child")
        view = self._view
        refuse_stale(f"{view.header.set_name}/{view.header.sequence}", view.age_seconds, self._max_age_seconds)
        return view

    @property
    def sequence(self) -> int:
        """Sequence of the newest verified release; never goes back."""
        return self._view.header.sequence

    @property
    def age_seconds(self) -> float:
        """Age of the newest verified release, as `View.age_seconds`."""
        return self._view.age_seconds

    def refresh(self) -> View:
        """Look at Redis now, and return the newest release.

        Raises why this failed (Unavailable, NotFound, ReleaseRejected, PoorUtility …); the old release stays.
        """
        self._refresh()
        return self.view

    def close(self) -> None:
        """Stop following; the last view still answers. Interrupts the thread's waits, so it does not take long."""
        self._stop.set()
        self._disconnect()
        self._news.interrupt()
        if threading.current_thread() is not self._thread:  # on_release may call this
            self._thread.join()

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _first(self) -> View:
        try:
            found = self._releases.find(self._url)
        except VeilsetError as error:  # a bad release in Redis must not hide a good one in the folder
            kept = self._releases.newest_kept()
            if kept is None:
                raise
            found = Found(kept, error)
        return self._view_of(found)

    def _view_of(self, found: Found) -> View:
        header = found.parts[-1].header
        tell_if_ahead(f"{header.set_name}/{header.sequence}", header.created_at_us, self._max_age_seconds)
        return view_of(found, self._key, self._decision)

    def _refresh(self) -> None:
        with self._looking:
            try:
                self._look()
            except Exception as error:
                self.last_error = error
                self._disconnect()
                raise

    def _look(self) -> None:
        source = self._connect()
        parts = self._releases.newer(source, self._view.parts)
        if parts is not None:
            self._view = self._view_of(Found(parts))
            self.last_error = None
            self._announce(self._view)
        else:
            self.last_error = None
            if self._view.offline is not None:
                confirmed = copy.copy(self._view)
                confirmed.offline = None
                self._view = confirmed

    def _announce(self, view: View) -> None:
        if self._on_release is not None:
            try:
                self._on_release(view)
            except Exception as error:  # noqa: BLE001 - the caller's, whatever it is; following goes on
                self.last_error = error

    def _connect(self) -> RedisSource:
        if self._source is None:
            self._source = RedisSource(self._url, self._releases.set_name, retries=0)
        if self._stop.is_set():  # after the assignment, so that `close` sees one or we see its flag
            self._disconnect()
            raise Unavailable("follower: it is closed; call veilset.follow again", kind="CLOSED")
        return self._source

    def _disconnect(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _watch(self) -> None:
        news = self._news
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            try:
                news.listen()  # before we look, so that no announcement in between is missed
                self._refresh()
                pause = FIRST_PAUSE
                news.wait(self._poll_seconds * _jitter())
                self._stop.wait(LEAST_PAUSE * _jitter())  # a channel full of noise must not keep us busy
            except Exception as error:  # noqa: BLE001 - whatever it is, only `close` may end this thread
                self.last_error = error
                self._stop.wait(pause * _jitter())
                pause = min(2 * pause, max(FIRST_PAUSE, min(self._poll_seconds, LONGEST_PAUSE)))
        with suppress(Exception):
            news.close()


def follow(
    url: str,
    set_name: str,
    *,
    poll_seconds: float = 10.0,
    max_age_seconds: float | None = None,
    cache_dir: str | Path | None = None,
    on_release: Callable[[View], object] | None = None,
    public_keys: Collection[bytes | str] = (),
    min_sequence: int = 0,
    rule: Rule | str = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
    key: bytes | None = None,
    spec: Spec | None = None,
) -> Follower:
    """Open the newest release of a set and keep up with it in the background; use the result as a context manager.

    poll_seconds: how often to look where no announcement comes; each time between 0.8 and 1.2 of it. max_age_seconds: queries
    raise StaleRelease where the newest verified release is older, by this machine's clock. cache_dir: see `veilset.open`; with
    it a follower starts without Redis. on_release: called with the view of each newer release, from the follower's thread.
    The rest as in `veilset.open`, and so are the errors, all of them about the first release: what goes wrong later is in
    `Follower.last_error`. A process that forks makes its followers after it has forked.
    """
    demands = make_demands(set_name, public_keys, min_sequence, spec=spec)
    return Follower(
        url,
        SetReleases(set_name, demands, cache_dir),
        poll_seconds=poll_seconds,
        max_age_seconds=max_age_seconds,
        on_release=on_release,
        key=key,
        decision={
            "rule": rule,
            "max_false_positive_rate": max_false_positive_rate,
            "min_true_positive_rate": min_true_positive_rate,
        },
    )


def _jitter() -> float:
    return jitter(0.8, 1.2)
