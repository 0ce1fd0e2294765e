"""A small site for the tests: data, policy, question."""

from __future__ import annotations

import contextlib

import numpy as np
import pandas as pd

from dpeffects.errors import LedgerError
from dpeffects.ledgers import create_ledger
from dpeffects.services.gate import Policy, Question

N = 400
ENTRIES = {
    "site": "north",
    "data": "data.csv",
    "ledger": "ledger.sqlite",
    "max_epsilon": 1.0,
    "total_epsilon": 2.0,
    "methods": ["diff_in_means", "auto", "smooth_matching"],
    "columns": {"outcome": ["y"], "treatment": ["t"], "covariates": ["x", "region"]},
    "bounds": {
        "y": {"range": [0, 1]},
        "x": {"range": [0, 10]},
        "region": {"levels": ["N", "S"]},
    },
}


def frame(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.random(n),
            "t": np.arange(n) % 2,
            "x": rng.random(n) * 10,
            "region": rng.choice(["N", "S"], n),
        }
    )


def policy(folder, data=None, **changes):
    path = folder / "data.csv"
    if data is not None or not path.exists():
        (frame() if data is None else data).to_csv(path, index=False)
    made = Policy.from_dict({**ENTRIES, **changes}, folder)
    if not (folder / ENTRIES["ledger"]).exists() and made.ledger == folder / ENTRIES["ledger"]:
        with contextlib.suppress(LedgerError):  # another thread was first
            totals = {"epsilon": made.total_epsilon, "delta": made.total_delta}
            create_ledger(made.ledger, "hospital", **totals)
    return made


def question(request="q1", **changes):
    asked = {"formula": "y ~ t", "epsilon": 0.5, "method": "diff_in_means", **changes}
    return Question(request, **asked)
