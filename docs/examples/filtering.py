"""The rows of a data frame that an exclusion list leaves: the column is asked as it is, and nothing leaves this process.

python docs/examples/filtering.py polars redis://localhost:16379/0 customers campaign.csv email kept.csv
"""

from __future__ import annotations

import sys

import pandas as pd
import polars as pl

import veilset


def without_members_pandas(frame: pd.DataFrame, column: str, view: veilset.View) -> pd.DataFrame:
    """The rows whose value is not taken for a member, with their index. A null in the column is refused."""
    return frame[~view.contains_many(frame[column])]


def without_members_polars(frame: pl.DataFrame, column: str, view: veilset.View) -> pl.DataFrame:
    """The same of a polars frame."""
    return frame.filter(~view.contains_many(frame[column]))


def main() -> None:
    """Read a CSV file, and write the rows that are left."""
    library, url, set_name, source, column, target = sys.argv[1:]
    view = veilset.open(url, set_name)
    print(f"{view.decoder.false_positive_rate:.2%} of the rows of non-members are lost as well")
    if library == "pandas":
        without_members_pandas(pd.read_csv(source), column, view).to_csv(target, index=False)
    else:
        without_members_polars(pl.read_csv(source), column, view).write_csv(target)


if __name__ == "__main__":
    main()
