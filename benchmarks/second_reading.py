"""Statements of the papers: verdicts by the tables on file, and every second reading.

`python -m tests.second_reading --files FOLDER` makes the readings anew, in a quarter of an hour.
"""

from __future__ import annotations

import pandas as pd
from harness import Part, Table, grid

from dpeffects.replication.papers import papers, table, verdicts

READ = ("000", "001", "003", "004")


def judged(people: int, noise: int, paper: str):
    rows = verdicts(paper).rows
    now = [row.verdict for row in rows]
    again = sum("Read again" in row.measured for row in rows)
    found = {"statements": len(rows), "come back": now.count("comes back") - again}
    found |= {"come back by a second reading": again, "do not": now.count("does not")}
    return found | {"cannot be checked": now.count("cannot be checked")}


def page(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    readings = {f"Paper {paper}": table(f"{paper}_readings").fillna("") for paper in READ}
    return {"Verdicts": found, **readings}


TABLE = Table(
    "Statements of the papers, read a second time",
    (Part("", grid(paper=papers()), judged),),
    lead="*plain*: the text allows the reading; *holds*: the statement does under it. What each "
    "statement says is in docs/replication.md.",
    page=page,
    minutes=0.5,
)
