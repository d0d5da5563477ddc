"""A set that an earlier version wrote into the ledger is read by this one: optional parameters are what they were then."""

from __future__ import annotations

import json

from veilset.core.params import Adjacency, FilterParameters, HashScheme, Normalization, PrivacyParameters
from veilset_server.records import SetDescription
from veilset_server.state.ledger.seals import seal
from veilset_server.state.ledger.sets import set_from_row

WRITTEN = {
    "account": "old",
    "created_at_us": 1_700_000_000_000_000,
    "declared_size": 100,
    "filter": {"bits": 1000, "hashes": 2, "scheme": "blake2b-1", "seed": 3},
    "name": "old",
    "normalization": "email",
    "privacy": {
        "adjacency": "add-remove",
        "calibration": "w-quantile",
        "delta": 0.0,
        "elements_per_user": 1,
        "epsilon": 1.0,
        "min_size": 1,
    },
    "shared_seed": False,
}
"""As version 0.1.0's first ledgers have it: without a check value of the secret."""


def test_a_set_without_a_check_value() -> None:
    """Has none, and so takes any secret."""
    row = (7, "old", "old", json.dumps(WRITTEN, sort_keys=True), 12, 0)
    stored = set_from_row((*row, seal(*row)))
    assert stored.description == SetDescription(
        name="old",
        filter=FilterParameters(1000, 2, HashScheme.BLAKE2B, 3),
        privacy=PrivacyParameters(1.0, 0.0, Adjacency.ADD_REMOVE),
        normalization=Normalization.EMAIL,
        account="old",
        created_at_us=1_700_000_000_000_000,
        declared_size=100,
        shared_seed=False,
    )
    assert stored.description.filter.key_check == ""
    assert (stored.set_id, stored.proven_size) == (7, 12)
