"""Replay and audit where rows do not count alike: whole units replaced, weights, subsets, gaps.

    python benchmarks/units.py            # some ten minutes on one core
    python benchmarks/units.py --small    # every seventh pair, audits of 200 runs

Every method that adds up rows is replayed on every pair of neighbours (`tests/counted.py`): all
rows of one person are replaced, by others and by more or fewer, or a record changes its weight, its
village or its place in a subset, or loses a value. Releases are frozen: no true value may move by
more than is declared, and nothing else that leaves the call may differ. Then methods are attacked
on such neighbours. Ends with an error if anything was violated, or if a bound is above epsilon.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import pandas as pd
from report import save

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dpeffects.evidence.auditing import audit
from dpeffects.progress import bar
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


def replays(every: int) -> pd.DataFrame:
    """All replays, or every so many of them."""
    pairs = [(m, s, name) for m, s in CASES for name in PAIRS[s]][::every]
    rows = []
    for k, (method, sample, name) in enumerate(bar(pairs, "replays")):
        found = replayed(method, sample, name, seed=k)
        about = {"call": method, "who counts": sample, "violated": bool(found.violations)}
        rows.append(about | {"refused": bool(found.refused), "largest": found.largest})
    return pd.DataFrame(rows)


def totals(found: pd.DataFrame, by: str) -> pd.DataFrame:
    groups = found.groupby(by, sort=False)
    counts = {"replays": groups.size(), "refused": groups["refused"].sum()}
    counts |= {"violations": groups["violated"].sum()}
    largest = groups["largest"].max().round(4)
    return pd.DataFrame(counts | {"largest moved / declared": largest}).reset_index()


def attacks(runs: int) -> pd.DataFrame:
    """Lower bounds on the true epsilon, with 95 % confidence, for a promised epsilon of 1."""
    rows = []
    for name, (sample, more) in bar(list(AUDITS.items()), "audits"):
        found = audit(name.partition(",")[0], epsilon=1, runs=runs, seed=1, **sample, **more)
        bound, loss = found.lower, max(p.largest_loss for p in found.pairs if not p.skipped)
        row = {"method": name, "protects": found.unit, "runs": runs, "bound": round(bound, 3)}
        rows.append(row | {"largest loss of a run": round(loss, 4)})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    warnings.simplefilter("ignore")
    found, attacked = replays(7 if small else 1), attacks(200 if small else 2000)
    save(
        "units",
        f"Whole units replaced: {len(found)} replays, {len(attacked)} audits at epsilon 1",
        {"By who counts": totals(found, "who counts"), "By call": totals(found, "call")}
        | {"Audits": attacked},
        "A ratio of 1 says that a pair attains a declared sensitivity. A bound is a lower bound on "
        "the true epsilon, with 95 % confidence; the largest loss is that of one run, in epsilons.",
    )
    sys.exit(1 if found["violated"].any() or (attacked["bound"] > 1.0).any() else 0)


if __name__ == "__main__":
    main()
