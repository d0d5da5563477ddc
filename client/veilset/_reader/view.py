"""A checked generation in memory: it answers without showing anyone what was asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from veilset._input import columns
from veilset._input.digests import DistinctDigests, digest_batch, digest_batches
from veilset._reader.answers import Answers, decoder_of, generation_vectors, read_all
from veilset._reader.fetching import CheckedRelease, ReleaseAge
from veilset._reader.sources import save_releases
from veilset.core.elements.hashing import check_key, digest_one
from veilset.core.elements.normalization import Element, normalize
from veilset.core.encodings.decoder import Decoder, Rule, posteriors
from veilset.core.encodings.generation import GenerationDecoder, generation_overlap
from veilset.core.encodings.interface import Readings
from veilset.core.estimates.intervals import check_confidence
from veilset.core.estimates.releases import check_comparable, name_of, size_from_count, total_size
from veilset.core.estimates.results import Check, Comparison, Overlap, SizeEstimate, decide
from veilset.core.params import MAX_ELEMENT_BYTES, Normalization
from veilset.core.privacy.statement import Statement, make_statement
from veilset.core.release.header import split_chunks
from veilset.errors import InvalidInput, Unsupported, VeilsetError

BATCH = columns.BATCH

Candidate = TypeVar("Candidate", str, bytes, str | bytes)


class View(Answers):
    """A checked base release and its increments in memory. Immutable and thread-safe.

    parts: the releases, the base first; one without increments. header: of the newest release.
    decoder: which readings are accepted as members', and the predicted error rates of the answers below.
    offline: why Redis could not be asked, if the release is the newest of the cache folder instead; else None.

    Elements come as any collection: a list, an iterator, a numpy array, a pandas or polars Series, an Arrow array. Answers
    are in their order. A null among them is refused, with its position.
    """

    offline: VeilsetError | None = None

    def __init__(self, parts: tuple[CheckedRelease, ...], decoder: Decoder, key: bytes | None) -> None:
        self.parts = parts
        self.header = header = parts[-1].header
        self.decoder = decoder
        self._key = key
        self._age = ReleaseAge(header.created_at_us)
        self._vectors = generation_vectors(parts)
        (self._encoding, self._vector), *others = self._vectors
        self._accepts: tuple[bool, ...] = () if others else tuple(decoder.accepts.tolist())
        self._plain = header.normalization is Normalization.NONE

    def __contains__(self, element: Element) -> bool:
        """Whether one element is answered yes; several times as fast as `contains_many` of one."""
        header = self.header
        try:
            if self._plain and type(element) is str:
                data = element.encode()
                if not 1 <= len(data) <= MAX_ELEMENT_BYTES:
                    return super().__contains__(element)  # which says what is wrong
            else:
                (data,) = normalize([element], header.normalization)
        except (InvalidInput, UnicodeEncodeError):
            return super().__contains__(element)
        digest = digest_one(data, header.hashing.scheme, header.hashing.seed, self._key)
        if self._accepts:
            return self._accepts[self._encoding.read_one(self._vector, digest)]
        readings = [[encoding.read_one(vector, digest) for encoding, vector in self._vectors]]
        return bool(self.decoder.decide(readings)[0])

    def deciding(
        self,
        *,
        rule: Rule | str = Rule.BEST,
        max_false_positive_rate: float | None = None,
        min_true_positive_rate: float | None = None,
    ) -> View:
        """The same release with another threshold, chosen as `veilset.open` does; nothing is copied or fetched.

        Raises InvalidInput, and PoorUtility with what is possible and what it would take.
        """
        decoder = decoder_of(
            [part.header for part in self.parts],
            [vector.law for vector in self.decoder.vectors],
            rule=rule,
            max_false_positive_rate=max_false_positive_rate,
            min_true_positive_rate=min_true_positive_rate,
        )
        view = View(self.parts, decoder, self._key)
        view.offline, view._age = self.offline, self._age
        return view

    @overload
    def filter(self, candidates: NDArray[Any], max_false_positive_rate: float | None = None) -> NDArray[Any]: ...

    @overload
    def filter(
        self, candidates: Iterable[Candidate], max_false_positive_rate: float | None = None
    ) -> list[Candidate]: ...

    def filter(self, candidates: Any, max_false_positive_rate: float | None = None) -> Any:
        """The candidates that are answered no, in their order: what an exclusion list leaves.

        candidates: a column or array (numpy, pandas, polars, Arrow), returned as one; any other collection is returned as a list.
        max_false_positive_rate: at most this share of the candidates that are not in the set is lost in this call;
        default: the view's own threshold. The mask of what is lost is `contains_many`. Raises as `deciding` does.
        """
        lost = self._deciding(max_false_positive_rate)
        if columns.is_column(candidates):
            return columns.select(candidates, ~lost.contains_many(candidates))
        return list(lost.filter_stream(candidates))

    def filter_stream(
        self, candidates: Iterable[Candidate], max_false_positive_rate: float | None = None
    ) -> Iterator[Candidate]:
        """`filter`, one by one as they are asked for, in bounded memory."""
        lost = self._deciding(max_false_positive_rate)
        return (
            candidate
            for batch, readings in lost.read_batches(candidates)
            for candidate, member in zip(batch, lost.decoder.decide(readings).tolist(), strict=True)
            if not member
        )

    def read_batches(self, elements: Iterable[Candidate], start: int = 0) -> Iterator[tuple[list[Candidate], Readings]]:
        """Batches of the elements, each with their readings, which `decoder` decides and scores by; integers (n,), or
        (n, vectors) where there are increments.

        start: position of the first element, for errors.
        """
        for batch in columns.batches(elements):
            hashed = digest_batch(batch, start, self.header.hashing, self.header.normalization, self._key)
            yield batch, self._readings(hashed)
            start += len(batch)

    def check(
        self, element: Element, prior: float, cost_false_positive: float = 1.0, cost_false_negative: float = 1.0
    ) -> Check:
        """Posterior and cheapest decision about one element, such as an account that logs in anonymously.

        prior: probability, before asking, that it is in the set, in [0, 1]. The costs are those of treating a non-member as a
        member and a member as a non-member, in any common unit; see `core.estimates.results.decide`. The view's own threshold
        plays no part. Raises InvalidInput.
        """
        readings = next(self._read([element]))
        posterior = float(self.decoder.posteriors(readings, prior)[0])
        least, most = posteriors(self.decoder.extremes(readings[0]), prior).tolist()
        return decide(posterior, (least, most), cost_false_positive, cost_false_negative)

    def overlap(self, elements: Iterable[Element], confidence: float = 0.95) -> Overlap:
        """How many of an own list's elements are in the set, with an interval; repetitions in the list count once.

        elements: any iterable; memory is bounded, with temporary files of digests for more than a million elements
        (`veilset._input.digests`). Raises InvalidInput.
        """
        check_confidence(confidence)
        with DistinctDigests() as distinct:
            for hashed in self._digests(elements):
                distinct.add(hashed)
            return self._overlap(distinct.batches(), confidence)

    def _overlap(self, distinct: Iterable[NDArray[np.uint64]], confidence: float) -> Overlap:
        if isinstance(self.decoder, GenerationDecoder):
            best = decoder_of([part.header for part in self.parts], [vector.law for vector in self.decoder.vectors])
            assert isinstance(best, GenerationDecoder)
            listed, yes = 0, np.zeros(len(self._vectors), dtype=np.int64)
            for hashed in distinct:
                listed += len(hashed)
                for column, (part, readings) in enumerate(zip(best.vectors, self._readings(hashed).T, strict=True)):
                    yes[column] += np.count_nonzero(part.decide(readings))
            return generation_overlap(best, yes.tolist(), listed, confidence)
        law = self.decoder.law
        found = np.zeros(len(law.scores), dtype=np.int64)
        for hashed in distinct:
            found += np.bincount(self._readings(hashed), minlength=len(found))
        return self._encoding.overlap(law, found, confidence)

    def compare(self, other: View, confidence: float = 0.95) -> Comparison:
        """Sizes, union, intersection and Jaccard index of the sets behind this release (left) and another (right).

        All from the vectors alone, each with an interval of its own. Vectors that may be full cannot show how full: an upper
        end is infinite then, and the intersection [0, ∞). Raises NotComparable, naming what differs and each side's value,
        unless encoding, dimensions, scheme, seed, secret (by its check value) and normalization are alike; Unsupported where
        the encoding does not show it; InvalidInput if both are one release, whose noise would pass for agreement.
        """
        if not isinstance(other, View):
            raise InvalidInput("other", f"other is a {type(other).__name__}; give a View, the result of veilset.open")
        for view in (self, other):
            if len(view.parts) > 1:
                base = view.header.generation
                raise Unsupported(
                    f"{name_of(view.header)} has increments, and two generations cannot be compared; open its base release, "
                    f"sequence {base}, and compare that"
                )
        check_comparable(self.header, other.header)
        if None not in (self._key, other._key) and self._key != other._key:
            raise InvalidInput("key", "key differs between the two releases; open both with the same secret")
        return self._encoding.compare((self._vector, other._vector), other.header.encoding, confidence)

    def _deciding(self, max_false_positive_rate: float | None) -> View:
        if max_false_positive_rate is None:
            return self
        return self.deciding(max_false_positive_rate=max_false_positive_rate)

    def _read(self, elements: Iterable[Element]) -> Iterator[Readings]:
        return map(self._readings, self._digests(elements))

    def _readings(self, hashed: NDArray[np.uint64]) -> Readings:
        return read_all(self._vectors, hashed)

    def _digests(self, elements: Iterable[Element]) -> Iterator[NDArray[np.uint64]]:
        """Digests of the normalised elements, batch by batch."""
        return digest_batches(elements, self.header.hashing, self.header.normalization, self._key)

    @property
    def statement(self) -> Statement:
        """The privacy statement of the release: print it, or read its fields."""
        return make_statement(self.header)

    def size(self, confidence: float = 0.95) -> SizeEstimate:
        """How many distinct elements the set of the release has, from its bought count if it has one, else from its bits.

        With increments: the sum over their vectors, less those of removed elements. Raises Unsupported where the encoding does
        not show it.
        """
        if self.header.count is not None:
            return size_from_count(self.header, confidence)
        sizes = [encoding.size(vector, confidence) for encoding, vector in self._vectors]
        return sizes[0] if len(sizes) == 1 else total_size(sizes[: len(self.parts)], sizes[len(self.parts) :])

    @property
    def created_at(self) -> datetime:
        """When the release was made, UTC."""
        return datetime.fromtimestamp(self.header.created_at_us / 1e6, UTC)

    @property
    def age_seconds(self) -> float:
        """Seconds since the release was made, by this machine's clock; 0 where that is behind the service's."""
        return self._age.seconds

    @property
    def manifest(self) -> bytes:
        """The signed header of the newest release as it came; `core.release.signing` reads it."""
        return self.parts[-1].manifest

    @property
    def vector(self) -> NDArray[np.uint8]:
        """The packed noisy bits of the newest release, read-only; bit j is bit 7 - (j mod 8) of byte j // 8."""
        return self.parts[-1].vector

    def save(self, path: str | Path) -> None:
        """Write all releases of the view to a file that `veilset.open` reads."""
        save_releases(Path(path), ((part.manifest, split_chunks(part.vector)) for part in self.parts))


def make_view(parts: Sequence[CheckedRelease], key: bytes | None, **decision: Any) -> View:
    """A view of checked releases, the base first; ``decision``: rule and limits of `make_decoder`.

    Raises WrongKey for a key that is not the releases', and PoorUtility.
    """
    header = parts[-1].header
    key = check_key(header.hashing, key, f"{header.set_name}/{header.sequence}")
    laws = [encoding.law(vector) for encoding, vector in generation_vectors(parts)]
    return View(tuple(parts), decoder_of([part.header for part in parts], laws, **decision), key)
