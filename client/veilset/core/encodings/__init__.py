"""The encodings: how digests become a noisy vector. One folder for each family, and the list of them.

A new family is a folder with a subclass of `veilset.core.encodings.interface.Parameters` and a line below.
"""

from __future__ import annotations

from collections.abc import Mapping

from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.generation import check_generation
from veilset.core.encodings.interface import Parameters
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.planning import Plan, PlanRequest, SmallestVector
from veilset.errors import InvalidInput, PoorUtility, must_be

ENCODINGS: dict[str, type[Parameters]] = {family.encoding: family for family in (BloomParameters, LinearParameters)}
"""Name → family, in the order of tables; the first is the default."""

_AS_GOOD = 0.01

DEFAULT_ENCODING = next(iter(ENCODINGS))


def find_encoding(name: str) -> type[Parameters]:
    """The family of that name. Raises InvalidInput with all names."""
    if name not in ENCODINGS:
        raise must_be("encoding", "one of " + ", ".join(ENCODINGS), name)
    return ENCODINGS[name]


def parameters_of(name: str, fields: Mapping[str, int]) -> Parameters:
    """Parameters from the name of their family and all their fields. Raises InvalidInput."""
    family = find_encoding(name)
    try:
        return family(**fields)
    except TypeError:
        raise must_be("encoding", f"with the fields of {name}", ", ".join(fields)) from None


def plan_all(request: PlanRequest) -> dict[str, Plan | PoorUtility]:
    """The best plan of every family, or why it has none: its answers are too poor, or increments would break the promise."""
    found: dict[str, Plan | PoorUtility] = {}
    for name, family in ENCODINGS.items():
        try:
            found[name] = plan = family.plan(request)
        except PoorUtility as refused:
            found[name] = refused
            continue
        try:
            check_increments(plan)
        except InvalidInput as refused:
            found[name] = PoorUtility(str(refused))
    return found


def check_increments(plan: Plan) -> None:
    """Raise InvalidInput for a plan whose increments would break its promise."""
    if plan.increments:
        check_generation(plan.parameters, plan.privacy)


def recommended(found: Mapping[str, Plan | PoorUtility], request: PlanRequest) -> Plan:
    """The plan to take: the shortest within 1% of the best by the objective. Raises PoorUtility if there is none."""
    plans = [plan for plan in found.values() if isinstance(plan, Plan)]
    if not plans:
        raise next(refused for refused in found.values() if isinstance(refused, PoorUtility))
    merits = [request.merit_of(plan) for plan in plans]
    if isinstance(request.objective, SmallestVector):
        merits = [0.0] * len(plans)
    least = max(merits) - _AS_GOOD * abs(max(merits))
    return min((plan for plan, merit in zip(plans, merits, strict=True) if merit >= least), key=lambda plan: plan.bytes)
