"""Replay and audit where rows do not count alike: whole units replaced, weights, subsets, gaps.

Every method that adds up rows is replayed on every pair of neighbours (`tests/counted.py`): all
rows of one person are replaced, by others and by more or fewer, or a record changes its weight, its
village or its place in a subset, or loses a value. Releases are frozen: no true value may move by
more than is declared, and nothing else that leaves the call may differ. Then methods are attacked
on such neighbours. Nothing may be violated, and no bound may be above epsilon.
"""

from __future__ import annotations

import pandas as pd
from harness import Bar, Part, Table, grid

from dpeffects.evidence.auditing import audit
from tests.contract.test_counted import CASES, PAIRS, replayed

WHO = {"unit": "patient_id"}
AUDITS = {
    "diff_in_means": (WHO, {}),
    "diff_in_means, max_rows": (WHO | {"max_rows": 3}, {}),
    "clipped_contrast": (WHO, {}),
    "one_step": (WHO, {}),
    "one_step, delta 1e-5": (WHO, {"delta": 1e-5}),
    "private_ipw": (WHO, {}),
    "diff_in_means, cluster": (WHO | {"cluster": "village"}, {}),
}


def replay(people: int, noise: int, call: str, sample: str, pair: str):
    """One replay."""
    found = replayed(call, sample, pair, seed=noise)
    return {
        "violated": bool(found.violations),
        "refused": bool(found.refused),
        "largest": found.largest,
    }


def totals(found: pd.DataFrame, by: str) -> pd.DataFrame:
    groups = found.groupby(by, sort=False)
    counts = {"replays": groups.size(), "refused": groups["refused"].sum()}
    counts |= {"violations": groups["violated"].sum()}
    largest = groups["largest"].max().round(4)
    return pd.DataFrame(counts | {"largest moved / declared": largest}).reset_index()


def attack(people: int, noise: int, method: str, attacks: int):
    """A lower bound on the true epsilon, with 95 % confidence, for a promised epsilon of 1."""
    sample, more = AUDITS[method]
    asked = {"epsilon": 1, "runs": attacks, "seed": noise, **sample, **more}
    found = audit(method.partition(",")[0], **asked)
    loss = max(p.largest_loss for p in found.pairs if not p.skipped)
    return {
        "protects": found.unit,
        "runs": attacks,
        "bound": round(found.lower, 3),
        "largest loss of a run": round(loss, 4),
    }


def page(found: pd.DataFrame, attacked: pd.DataFrame) -> dict[str, pd.DataFrame]:
    found = found.rename(columns={"sample": "who counts"})
    made = {"By who counts": totals(found, "who counts"), "By call": totals(found, "call")}
    return made | {"Audits": attacked.drop(columns="attacks")}


def bars(found: pd.DataFrame, attacked: pd.DataFrame) -> list[Bar]:
    bad, above = found[found["violated"] > 0], attacked[attacked["bound"] > 1.0]
    return [
        Bar("no release moves by more than is declared", f"{len(found)} replays", [*bad["pair"]]),
        Bar("no bound above epsilon", f"{len(attacked)} audits", [*above["method"]]),
    ]


REPLAYS = [{"call": m, "sample": s, "pair": name} for m, s in CASES for name in PAIRS[s]]
TABLE = Table(
    "Whole units replaced: replays, and audits at epsilon 1",
    (
        Part("Replays", REPLAYS, replay),
        Part(
            "Audits",
            grid(method=AUDITS, attacks=[2000]),
            attack,
            small=grid(method=["diff_in_means"], attacks=[200]),
        ),
    ),
    "A ratio of 1 says that a pair attains a declared sensitivity. A bound is a lower bound on "
    "the true epsilon, with 95 % confidence; the largest loss is that of one run, in epsilons.",
    page=page,
    bars=bars,
    minutes=3,
)
