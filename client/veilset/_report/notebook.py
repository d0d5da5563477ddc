"""What a result shows of itself: a line as its repr, and in a notebook a table with a sentence that says what it means.

Only public facts: parameters, rates, sums and names. Elements, keys and passwords are in none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from veilset.core.estimates.intervals import Estimate, confidence_text
from veilset.core.params import PrivacyParameters
from veilset.core.privacy.budget import NANO, amount_text
from veilset.core.privacy.statement import accuracy_text, make_statement
from veilset.errors import StaleRelease

if TYPE_CHECKING:
    from veilset._reader.follower import Follower
    from veilset._reader.remote_view import RemoteView
    from veilset._reader.view import View
    from veilset._service.records import Budget, Release, SetInfo
    from veilset._service.spec import Spec
    from veilset._service.upload import UploadResult
    from veilset.core.encodings.decoder import Decoder
    from veilset.core.encodings.planning import Plan
    from veilset.core.estimates.results import Check, Comparison, Overlap, SizeEstimate
    from veilset.core.privacy.statement import Statement
    from veilset.core.release.header import ReleaseHeader


@dataclass(frozen=True, slots=True)
class Shown:
    """title: the result in a phrase. rows: name → value. meaning: what follows from it, in a sentence or two."""

    title: str
    rows: Mapping[str, str]
    meaning: str


def short_text(result: object) -> str:
    """The repr of a result: its type and its title."""
    return f"<{type(result).__name__}: {_shown(result).title}>"


def html_table(result: object) -> str:
    """A result for a notebook: title, table and meaning. Every text is escaped."""
    shown = _shown(result)
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in shown.rows.items()
    )
    return (
        f"<div><p><strong>{escape(type(result).__name__)}</strong>: {escape(shown.title)}</p>"
        f"<table><tbody>{rows}</tbody></table><p>{escape(shown.meaning)}</p></div>"
    )


def share_text(value: float) -> str:
    """A share in per cent; near 0 and 1 with as many digits as it takes to tell it from them."""
    missing = min(value, 1.0 - value)
    digits = 1 if missing <= 0.0 or missing >= 0.01 else math.ceil(-math.log10(missing)) - 1
    return f"{value:.0%}" if missing <= 0.0 else f"{value:.{digits}%}"


def of_1000(share: float) -> str:
    """How many of 1,000, with two digits where they are few."""
    number = 1000.0 * share
    return f"{number:.0f}" if number >= 10 or number == 0 else f"{number:.2g}"


def worth_text(true_positive_rate: float, false_positive_rate: float) -> str:
    """What the two rates mean."""
    return (
        f"Of 1,000 members about {of_1000(true_positive_rate)} are answered yes, of 1,000 others about "
        f"{of_1000(false_positive_rate)}."
    )


def interval_text(found: Estimate | SizeEstimate, number: Callable[[float], str] = "{:,.0f}".format) -> str:
    """An interval with its confidence."""
    sure = confidence_text(found.confidence)
    if math.isinf(found.high):
        return f"at least {number(found.low)} at {sure} confidence"
    return f"{number(found.low)} to {number(found.high)} at {sure} confidence"


def promise_text(promise: PrivacyParameters | Statement) -> str:
    """ε and δ."""
    return f"ε = {amount_text(promise.epsilon)}, δ = {amount_text(promise.delta)}"


def guess_text(epsilon: float, delta: float) -> str:
    """What (ε, δ) means to a person in the data."""
    return (
        "Anyone who guesses whether one user is in, holding both equally likely beforehand, is right at most "
        f"{accuracy_text(epsilon, delta)} of the time"
    )


def _rates(true_positive_rate: float, false_positive_rate: float) -> dict[str, str]:
    return {
        "members answered yes (TPR)": share_text(true_positive_rate),
        "others answered yes (FPR)": share_text(false_positive_rate),
    }


def _privacy(privacy: PrivacyParameters, statement: Statement | None = None) -> dict[str, str]:
    """statement: of a release, whose ε and δ have everything in them that was charged for it."""
    return {
        "promise": promise_text(statement or privacy),
        "relation": str(privacy.adjacency),
        "elements per user": f"{privacy.elements_per_user:,}",
    }


def _view(view: View | RemoteView) -> Shown:
    header, decoder = view.header, view.decoder
    part = f", increment {len(header.earlier)}" if header.earlier else ""
    meaning = worth_text(decoder.true_positive_rate, decoder.false_positive_rate)
    if decoder.saturated_parts:
        meaning += " A vector is saturated: it holds more elements than it was made for, and shows nothing."
    rates = _rates(decoder.true_positive_rate, decoder.false_positive_rate)
    return Shown(
        f"release {header.set_name}/{header.sequence}{part}, {header.encoding.encoding}, "
        f"{promise_text(make_statement(header))}; "
        f"TPR {share_text(decoder.true_positive_rate)}, FPR {share_text(decoder.false_positive_rate)}",
        rates | _header_rows(header),
        meaning,
    )


def _header_rows(header: ReleaseHeader) -> dict[str, str]:
    return _privacy(header.privacy, make_statement(header)) | {
        "encoding": f"{header.encoding.encoding}, {header.encoding}",
        "made for": f"{header.capacity:,} elements",
        "length": f"{header.vector_bytes:,} bytes",
        "normalization": header.normalization.versioned,
        "hash": f"{header.hashing.scheme}{', needs a secret' if header.hashing.key_check else ''}",
    }


def _header(header: ReleaseHeader) -> Shown:
    statement = make_statement(header)
    return Shown(
        f"release {header.set_name}/{header.sequence}, {header.encoding.encoding}, {promise_text(statement)}",
        _header_rows(header),
        f"{guess_text(statement.epsilon, statement.delta)} from {_covered(statement)}.",
    )


def _covered(statement: Statement) -> str:
    """What a statement's ε and δ are of."""
    return "this generation" if statement.increments else "this release"


def _follower(follower: Follower) -> Shown:
    try:
        shown = _view(follower.view)
    except StaleRelease as stale:
        shown = Shown(str(stale), {}, "Its questions raise StaleRelease until a newer release comes.")
    error = follower.last_error
    state = {
        "age": f"{follower.age_seconds:,.0f} s",
        "last look at Redis": f"failed: {error}" if error else "went well",
    }
    return Shown(shown.title, state | dict(shown.rows), shown.meaning)


def _decoder(decoder: Decoder) -> Shown:
    detected, mistaken = decoder.true_positive_rate, decoder.false_positive_rate
    return Shown(
        f"TPR {share_text(detected)}, FPR {share_text(mistaken)}",
        _rates(detected, mistaken) | {"advantage, TPR - FPR": f"{decoder.advantage:.3f}"},
        worth_text(detected, mistaken),
    )


def _plan(plan: Plan) -> Shown:
    rows = _rates(plan.true_positive_rate, plan.false_positive_rate) | {
        "advantage, TPR - FPR": f"{plan.advantage:.3f}, of at most {plan.advantage_limit:.3f}",
        **_privacy(plan.privacy),
        "encoding": f"{plan.parameters.encoding}, {plan.parameters}",
        "capacity": f"{plan.capacity:,} elements",
        "length": f"{plan.bytes:,} bytes, {plan.bits_per_element:.2f} bits an element",
    }
    for rates in plan.milestones:
        rows[f"after {rates.increments} increment{'s' * (rates.increments > 1)}"] = (
            f"TPR {share_text(rates.true_positive_rate)}, FPR {share_text(rates.false_positive_rate)}"
        )
    return Shown(
        f"{plan.parameters.encoding} for {plan.size:,} elements, {promise_text(plan.privacy)}; "
        f"TPR {share_text(plan.true_positive_rate)}, FPR {share_text(plan.false_positive_rate)}",
        rows,
        f"{worth_text(plan.true_positive_rate, plan.false_positive_rate)} "
        f"{guess_text(plan.privacy.epsilon, plan.privacy.delta)}.",
    )


def _statement(statement: Statement) -> Shown:
    promise, release = promise_text(statement), _covered(statement)
    rows = {
        "unit": statement.unit,
        "relation": statement.relation,
        release: promise,
        "calibration": statement.calibration,
        "assumes": statement.assumption,
        "spent on the account": f"ε = {amount_text(statement.total_epsilon)}, δ = {amount_text(statement.total_delta)}",
        "limit of the account": f"ε = {amount_text(statement.limit_epsilon)}, δ = {amount_text(statement.limit_delta)}",
    }
    if statement.increments:
        rows["when an element arrived"] = f"ε = {amount_text(statement.arrival_epsilon)}"
    large = " This δ is large: it allows that some elements are exposed outright." if statement.large_delta else ""
    return Shown(
        f"{promise} for {statement.unit}",
        rows,
        f"{guess_text(statement.epsilon, statement.delta)} from {release}, and at most "
        f"{accuracy_text(statement.total_epsilon, statement.total_delta)} from everything spent on the account.{large}",
    )


def _overlap(overlap: Overlap) -> Shown:
    size = overlap.own_size
    shares = [value / size for value in (overlap.estimate, overlap.low, overlap.high)] if size else [0.0] * 3
    return Shown(
        f"about {overlap.estimate:,.0f} of {size:,} listed elements are in the set, {interval_text(overlap)}",
        {
            "listed elements in the set": f"about {overlap.estimate:,.0f}",
            "interval": interval_text(overlap),
            "distinct elements of the list": f"{size:,}",
            "share of the list": f"{shares[0]:.1%}, {shares[1]:.1%} to {shares[2]:.1%}",
        },
        "The noise of the release makes the estimate uncertain; the interval holds the true number as often as it says.",
    )


def _size(size: SizeEstimate) -> Shown:
    return Shown(
        f"about {size.estimate:,.0f} distinct elements, {interval_text(size)}",
        {"estimate": f"{size.estimate:,.0f}", "interval": interval_text(size), "source": size.source},
        "Estimated from the noisy release; the interval holds the true number as often as it says.",
    )


def _comparison(comparison: Comparison) -> Shown:
    def number(found: Estimate) -> str:
        return f"about {found.estimate:,.0f}, {interval_text(found)}"

    jaccard = comparison.jaccard
    return Shown(
        f"about {comparison.intersection.estimate:,.0f} elements in common, {interval_text(comparison.intersection)}",
        {
            "left set": number(comparison.left),
            "right set": number(comparison.right),
            "in either": number(comparison.union),
            "in common": number(comparison.intersection),
            "Jaccard index": f"{jaccard.estimate:.3f}, {interval_text(jaccard, '{:.3f}'.format)}",
        },
        "The Jaccard index is the number in common over the number in either: 0 for sets apart, 1 for equal sets.",
    )


def _check(check: Check) -> Shown:
    verdict = "treat as a member" if check.member else "treat as a non-member"
    return Shown(
        f"{verdict}, probability of membership {share_text(check.posterior)}",
        {
            "cheaper decision": verdict,
            "probability of membership": share_text(check.posterior),
            "member above": share_text(check.cutoff),
            "expected cost": f"{check.expected_cost:.4g}",
        },
        "Prior and costs alone decide here: no answer of this release could change it."
        if check.foregone
        else "The answer of the release decided, at this prior and these costs.",
    )


def _release(release: Release) -> Shown:
    header, wait = release.header, f": {release.delayed_by}" if release.delayed_by else ""
    return Shown(
        f"{release.set_name}/{release.sequence}, {release.state}, {promise_text(make_statement(header))}",
        {"state": release.state + wait, **_header_rows(header)},
        f"After it ε = {amount_text(header.total_nano_epsilon / NANO)} was spent on the account, of at most "
        f"{amount_text(header.limit_nano_epsilon / NANO)}.",
    )


def _budget(budget: Budget) -> Shown:
    return Shown(
        f"{budget.account}: ε = {amount_text(budget.epsilon_spent)} of {amount_text(budget.epsilon_total)} spent",
        {
            "ε": f"{amount_text(budget.epsilon_spent)} spent, {budget.epsilon_left:g} left of "
            f"{amount_text(budget.epsilon_total)}",
            "δ": f"{budget.delta_spent} spent, {budget.delta_left} left of {budget.delta_total}",
            "charges": f"{budget.charges:,}",
            "relation": str(budget.adjacency),
            "elements per user": f"{budget.elements_per_user:,}",
        },
        f"{guess_text(budget.epsilon_spent, float(budget.delta_spent))} from everything spent so far, and at most "
        f"{accuracy_text(budget.epsilon_total, float(budget.delta_total))} once all is spent.",
    )


def _set(info: SetInfo) -> Shown:
    size = f"{info.declared_size:,} elements" if info.declared_size else "not declared; a noisy count is bought"
    expiry = {"elements leave after": f"{info.expire_days} days"} if info.expire_days else {}
    return Shown(
        f"set {info.name}, {info.encoding.encoding}, {promise_text(info.privacy)} a release",
        {
            "account": info.account,
            "declared size": size,
            **_privacy(info.privacy),
            "encoding": f"{info.encoding.encoding}, {info.encoding}",
            "normalization": info.normalization.versioned,
            "hash": str(info.hashing.scheme),
            "increments after a base release": f"{info.increments}",
            "ε for vectors of removed elements": amount_text(info.removals_epsilon),
            **expiry,
        },
        f"{guess_text(info.privacy.epsilon + info.removals_epsilon, info.privacy.delta)} from one base release and its "
        "increments.",
    )


def _spec(spec: Spec) -> Shown:
    return Shown(
        f"{spec.encoding.encoding} for {spec.size:,} elements, {promise_text(spec.privacy)}",
        {
            "planned size": f"{spec.size:,}",
            **_privacy(spec.privacy),
            "encoding": f"{spec.encoding.encoding}, {spec.encoding}",
            "normalization": spec.normalization.versioned,
            "hash": f"{spec.hashing.scheme}, seed {spec.hashing.seed}",
        },
        "Sets that are created from one spec can be compared.",
    )


def _upload(result: UploadResult) -> Shown:
    return Shown(
        f"{result.elements:,} elements held as upload {result.upload_id}",
        {
            "elements, duplicates included": f"{result.elements:,}",
            "sent by an earlier attempt": f"{result.resumed:,}",
            "skipped as no elements": f"{result.invalid:,}",
        },
        "The service holds them durably. They are in the next base release.",
    )


_SHOWN: dict[str, Callable[[Any], Shown]] = {
    "Budget": _budget,
    "Check": _check,
    "Comparison": _comparison,
    "Decoder": _decoder,
    "Follower": _follower,
    "Overlap": _overlap,
    "Plan": _plan,
    "Release": _release,
    "ReleaseHeader": _header,
    "RemoteView": _view,
    "SetInfo": _set,
    "SizeEstimate": _size,
    "Spec": _spec,
    "Statement": _statement,
    "UploadResult": _upload,
    "View": _view,
}


def _shown(result: object) -> Shown:
    """By the name of the class, so that nothing else is imported for it."""
    return next(_SHOWN[kind.__name__](result) for kind in type(result).__mro__ if kind.__name__ in _SHOWN)
