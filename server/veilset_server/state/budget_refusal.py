"""The refusal of a charge that does not fit, with its numbers."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, localcontext

from veilset.core.privacy.budget import format_delta, format_nano_epsilon
from veilset.errors import BudgetExceeded
from veilset_server.records import Account, Charge


def budget_exceeded(account: Account, charge: Charge) -> BudgetExceeded:
    """The error to raise; asked, spent, left and total, each as exact decimal texts of ε and of δ, are its details."""
    asked = _texts("asked", charge.nano_epsilon, format_delta(charge.delta))
    spent = _texts("spent", account.spent_nano_epsilon, format_delta(account.spent_delta))
    left = _texts(
        "left",
        account.total_nano_epsilon - account.spent_nano_epsilon,
        format_delta(account.total_delta - account.spent_delta),
    )
    total = _texts("total", account.total_nano_epsilon, format_delta(account.total_delta))
    details = asked | spent | left | total
    return BudgetExceeded(
        f"budget account {account.name}: asked for epsilon {details['asked_epsilon']} and delta {details['asked_delta']}, "
        f"but of {details['total_epsilon']} and {details['total_delta']} only {details['left_epsilon']} and "
        f"{details['left_delta']} are left; nothing was charged. To go on, raise it: veilset budget --account "
        f"{account.name} {_raise(account, charge)} --reason …",
        account=account.name,
        **details,
    )


def _raise(account: Account, charge: Charge) -> str:
    """The options that raise what is short, δ rounded up to four digits."""
    short = []
    if account.spent_nano_epsilon + charge.nano_epsilon > account.total_nano_epsilon:
        short.append(f"--raise-epsilon {format_nano_epsilon(account.spent_nano_epsilon + charge.nano_epsilon)}")
    needed = account.spent_delta + charge.delta
    if needed > account.total_delta:
        with localcontext(prec=4, rounding=ROUND_CEILING):
            short.append(f"--raise-delta {Decimal(needed.numerator) / Decimal(needed.denominator):g}")
    return " ".join(short)


def _texts(what: str, nano_epsilon: int, delta: str) -> dict[str, str]:
    return {f"{what}_epsilon": format_nano_epsilon(nano_epsilon), f"{what}_delta": delta}
