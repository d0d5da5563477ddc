"""The statement says unit, relation, both ε and δ, calibration with its assumption, and the attacker's limit."""

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.params import Adjacency, Calibration, HashParameters, Normalization, PrivacyParameters
from veilset.core.privacy.budget import NANO, amount_text, charge_delta, format_delta, to_nano_epsilon
from veilset.core.privacy.statement import accuracy_text, make_statement
from veilset.core.release.header import NoisyCount, ReleaseHeader

HEADER = ReleaseHeader(
    set_name="s",
    sequence=2,
    hashing=HashParameters(),
    encoding=BloomParameters(64, 1, 1 << 62, 1),
    privacy=PrivacyParameters(1.0, 1e-9, Adjacency.ADD_REMOVE),
    normalization=Normalization.NONE,
    capacity=1,
    created_at_us=0,
    chunk_sha256=(b"\0" * 32,),
    total_nano_epsilon=2_000_000_000,
    total_delta="2e-9",
    limit_nano_epsilon=5_000_000_000,
    limit_delta="5e-9",
)


def test_all_parts_are_said() -> None:
    text = str(make_statement(HEADER))
    for part in (
        "one element",
        "add-remove",
        "ε = 1,",
        "δ = 1e-09",
        "w-quantile",
        "random oracle",
        "ε = 2,",
        "δ = 2e-09; the account's limit was then ε = 5, δ = 5e-09.",
        "computational",
        "AES-CTR",
        "73.11%",
        "88.08%",
    ):
        assert part in text


@pytest.mark.parametrize(("adjacency", "arrival"), [(Adjacency.ADD_REMOVE, 22), (Adjacency.REPLACE_ONE, 11)])
def test_a_generation_is_stated_as_a_whole(adjacency: Adjacency, arrival: int) -> None:
    """Base, increments and removals together, and what they tell of the time of an arrival."""
    privacy = PrivacyParameters(8.0, 0.0, adjacency, Calibration.WORST_CASE)
    found = make_statement(replace(HEADER, privacy=privacy, planned_increments=30, removals_epsilon=3.0))
    assert (found.epsilon, found.increments, found.arrival_epsilon) == (11.0, 30, arrival)
    for part in ("up to 30 increments", "(ε = 11, δ = 0)", f"covered at ε = {arrival}.", "from this generation"):
        assert part in str(found)


def test_user_level_units_and_promised_sizes_are_said() -> None:
    privacy = PrivacyParameters(1.0, 1e-9, Adjacency.REPLACE_ONE, Calibration.EXACT, elements_per_user=5, min_size=1000)
    found = make_statement(replace(HEADER, privacy=privacy))
    assert found.unit == "one user's at most 5 elements"
    assert "size of the set is public" in found.relation
    assert "at least 1000 distinct elements" in found.relation


def test_worst_case_assumes_nothing_and_has_no_delta() -> None:
    found = make_statement(
        replace(HEADER, privacy=PrivacyParameters(1.0, 1e-3, Adjacency.ADD_REMOVE, Calibration.WORST_CASE))
    )
    assert found.delta == 0
    assert "nothing about the hash" in str(found)


def test_a_bought_count_adds_to_what_the_release_promises() -> None:
    found = make_statement(replace(HEADER, count=NoisyCount(5, "laplace", 2.0, 1, 0.5, 1e-9)))
    assert found.epsilon == pytest.approx(1.5)
    assert found.delta == pytest.approx(2e-9)


@given(
    st.floats(1e-6, 64.0), st.floats(1e-15, 0.1), st.floats(1e-6, 64.0), st.floats(1e-15, 0.1), st.integers(1, 10**18)
)
def test_no_amount_looks_smaller_than_it_is(
    epsilon: float, delta: float, count_epsilon: float, count_delta: float, total: int
) -> None:
    """Rounded up in the sixth digit, also the sum of bits and count, and the account's total."""
    found = make_statement(
        replace(
            HEADER,
            privacy=PrivacyParameters(epsilon, delta, Adjacency.ADD_REMOVE),
            count=NoisyCount(5, "laplace", 2.0, 1, count_epsilon, count_delta),
            total_nano_epsilon=total,
            total_delta=format_delta(charge_delta(delta)),
            limit_nano_epsilon=2 * total,
            limit_delta=format_delta(2 * charge_delta(delta)),
        )
    )
    said = [Fraction(text) for text in re.findall(r"[εδ] = ([0-9.e+-]+)", str(found).replace(".\n", "\n"))]
    true = [
        Fraction(to_nano_epsilon(epsilon) + to_nano_epsilon(count_epsilon), NANO),
        charge_delta(delta) + charge_delta(count_delta),
        Fraction(total, NANO),
        charge_delta(delta),
        Fraction(2 * total, NANO),
        2 * charge_delta(delta),
    ]
    for shown, amount in zip(said, true, strict=True):
        assert amount * (1 - Fraction(1, 10**15)) <= shown <= amount * (1 + Fraction(11, 10**6))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1.0, "1"),
        (1.0000049, "1.00001"),
        (123456.49, "123457"),
        (9.0000049e-9, "9.00001e-09"),
        (0.3, "0.3"),
        (0.0, "0"),
    ],
)
def test_amounts_in_words(amount: float, text: str) -> None:
    assert amount_text(amount) == text


def test_a_declared_size_is_named_as_an_assumption() -> None:
    """The service does not check it (docs/privacy.md, section 7)."""
    promising = PrivacyParameters(1.0, 1e-9, Adjacency.ADD_REMOVE, min_size=1000)
    relation = make_statement(replace(HEADER, privacy=promising)).relation
    assert "at least 1000 distinct elements, which their owner declared and the service does not check" in relation
    assert "declared" not in make_statement(HEADER).relation


def test_a_delta_too_large_for_the_size_is_named() -> None:
    """From a tenth of an element on that it allows to be exposed outright, on average."""
    large = make_statement(replace(HEADER, capacity=10**8))
    assert large.large_delta
    assert "This δ is large for 100000000 elements: it allows that 0.1 of them on average are exposed outright" in str(
        large
    )
    for header in (replace(HEADER, capacity=10**8 - 1), replace(HEADER, privacy=replace(HEADER.privacy, delta=0.0))):
        assert not make_statement(header).large_delta
        assert "exposed" not in str(make_statement(header))


def test_a_seed_that_was_brought_along_is_said_where_it_matters() -> None:
    """The average over seeds means nothing if the elements were chosen with the seed in hand."""
    brought = replace(HEADER, shared_seed=True)
    assert "owner brought the seed" in str(make_statement(brought))
    assert "owner brought the seed" not in str(make_statement(HEADER))
    worst_case = replace(brought, privacy=PrivacyParameters(1.0, 0.0, Adjacency.ADD_REMOVE, Calibration.WORST_CASE))
    assert "owner brought the seed" not in str(make_statement(worst_case))


def test_the_attackers_limit_names_the_prior_it_holds_for() -> None:
    """Without it the sentence is false: who thinks absence nearly certain is right more often."""
    assert "equally likely beforehand" in str(make_statement(HEADER))


@given(st.floats(0, 800), st.one_of(st.just(0.0), st.floats(1e-12, 0.999)))
def test_the_attackers_limit_is_never_understated(epsilon: float, delta: float) -> None:
    """What is printed is at least the limit, and close to it."""
    exact = 100 * (1 - Decimal(delta)) / (1 + Decimal(epsilon).exp())
    missing = 100 - Decimal(accuracy_text(epsilon, delta).removesuffix("%"))
    assert missing <= exact * (1 + Decimal("1e-9"))
    assert exact - missing <= max(Decimal("0.01"), exact / 5) if missing else exact <= Decimal("1.00001e-6")


@pytest.mark.parametrize(
    ("epsilon", "delta", "text"),
    [
        (0, 0, "50.00%"),
        (3, 0, "95.26%"),
        (10, 0, "99.9955%"),
        (18, 0, "99.9999985%"),
        (18.5, 0, "100%"),
        (64, 0, "100%"),
        (744, 0, "100%"),
        (1, 1, "100%"),
    ],
)
def test_the_attackers_limit_in_words(epsilon: float, delta: float, text: str) -> None:
    """1 - 1/(1 + e^10) = 0.9999546; 1/(1 + e^18.5) is less than a millionth of a per cent."""
    assert accuracy_text(epsilon, delta) == text
