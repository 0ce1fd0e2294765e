"""No release has more noise than where its sensitivity was typed by hand.

`files/scales.json` has the standard deviations of the noise of some calls on commit 6b06f53, before
sensitivities were derived: this module was copied to it, with "dpeffects.call.noise_source" as
`NOISE`, and `python -m tests.privacy.test_scales` printed them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import DPEffectsError
from dpeffects.privacy.noise import NoiseSource
from dpeffects.privacy.tight_domains import cube_noise_sd

NOISE = "dpeffects.flow.noise_source"
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"]}
AT = {"x1": [0.1, 0.9, 0.5], "x2": [-1.0, 0.0, 1.0]}
PLAIN, STRATA = "y ~ t | x1 + x2", "y ~ t | g"
CATE = {"method": "r_learner"}
BLOCKS = 211
"""That many there were by default."""
CALLS = {
    "diff_in_means": ("dp_ate", "y ~ t", {"method": "diff_in_means"}),
    "private_psm": ("dp_ate", PLAIN, {"method": "private_psm", "as_printed": True}),
    "private_psm label": ("dp_ate", PLAIN, {"method": "private_psm", "level": "label"}),
    "private_ipw": ("dp_ate", PLAIN, {"method": "private_ipw"}),
    "private_ipw label": ("dp_ate", PLAIN, {"method": "private_ipw", "level": "label"}),
    "private_ipw split": ("dp_att", PLAIN, {"method": "private_ipw", "split": True}),
    "sample_aggregate": ("dp_ate", PLAIN, {"method": "sample_aggregate", "blocks": BLOCKS}),
    "smooth_matching": ("dp_ate", STRATA, {"method": "smooth_matching"}),
    "global_matching": ("dp_ate", STRATA, {"method": "global_matching"}),
    "model_folds": ("dp_ate", PLAIN, {"method": "model_folds", "folds": BLOCKS}),
    "r_learner function": ("dp_cate", PLAIN, CATE),
    "r_learner groups": ("dp_cate", PLAIN, {**CATE, "release": "groups", "by": "g"}),
    "r_learner points": ("dp_cate", PLAIN, {**CATE, "release": "points", "at": AT}),
    "sample_aggregate_cate": (
        "dp_cate",
        PLAIN,
        {"method": "sample_aggregate", "release": "points", "at": AT, "blocks": BLOCKS},
    ),
    "balance": ("dp_balance", "y ~ t | x1 + x2 + g", {"adjusted": True}),
}
PRICES = {"pure": (1.0, 0.0), "delta": (1.0, 1e-6)}
STEEPEST, REST = 5.313891201213607 / 8.459976925405755, 0.9
NOW = {
    "mean over blocks": ("answers of blocks", 2.0 / BLOCKS),
    "block squares": ("answers of blocks", 4.0 / BLOCKS),
    "mean effect": ("mean effect", REST),
    "squares": ("squares", REST),
    "sums by group": ("sums and weights by group", STEEPEST),
    "weights by group": ("sums and weights by group", STEEPEST**2),
}
"""Labels that changed, and what today's numbers are multiplied by.

They are sums of what were means, of answers in units of their range. A tenth of the budget of
methods with blocks or folds goes to the number of treated records; what the rest buys is compared.
"""
FOLLOWS = {"objective": 1.01, "solver": 1.1}
"""The penalty of a model goes by what studies are like, and its noise may follow it; a
ten-thousandth of the noise covers the solver."""


STANDARD = {
    "discrete Laplace": math.sqrt(2.0),
    "Laplace, smooth sensitivity": math.sqrt(2.0),
    "Wishart difference": math.sqrt(10.0),
}
"""Standard deviation of noise of scale 1; matrices are those of three columns and the outcome."""
CUBES = {
    "covariates by arm": 5,
    "squares of covariates by arm": 2,
    "weighted covariates by arm": 5,
    "means of covariates": 3,
    "logarithms of covariate deviations": 3,
}
"""Columns of cubes."""


class NoNoise(NoiseSource):
    """Releases that are what is under the noise: the same scales whatever is drawn."""

    description, void = "none", ("no noise",)

    def laplace(self, values, scale, sensitivity, epsilon):
        return values

    def gaussian(self, values, scale):
        return values

    def matrices(self, values, scale, top):
        return values

    def cubes(self, values, scale, width, epsilon):
        return values

    def flip(self, bits, epsilon):
        return bits

    def respond(self, codes, levels, epsilon):
        return codes

    def permutation(self, n):
        return np.arange(n)


def frame(n=2000):
    rng = np.random.default_rng(1)
    x1, x2 = rng.random(n), rng.uniform(-1, 1, n)
    t = rng.random(n) < 0.3 + 0.4 * x1
    y = np.clip(0.3 * x1 + 0.2 * t + 0.4 * rng.random(n), 0, 1)
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "x2": x2, "g": rng.choice(list("abc"), n)})


def scales(name, price):
    """Standard deviations of the noise of a call's releases, by label."""
    function, formula, options = CALLS[name]
    epsilon, delta = PRICES[price]
    ledger, found = dpe.Ledger(2 * epsilon, 0.1), {}
    with warnings.catch_warnings(), mock.patch(NOISE, return_value=NoNoise()):
        warnings.simplefilter("ignore")
        given = {"epsilon": epsilon, "delta": delta, "bounds": BOUNDS, "ledger": ledger}
        getattr(dpe, function)(formula, frame(), **given, **options)
    for charge in ledger.charges:
        one = STANDARD.get(charge.mechanism, 1.0)
        if charge.mechanism == "cube":
            one = cube_noise_sd(CUBES[charge.label], 1.0, 1.0)
        if charge.scale and charge.mechanism != "randomised response":
            found[charge.label] = one * charge.scale[0]
    return found


BEFORE = json.loads((Path(__file__).parent / "files" / "scales.json").read_text())


@pytest.mark.sampled(7)
@pytest.mark.parametrize("case", BEFORE)
def test_no_release_has_more_noise_than_before(case):
    name, price = case.rsplit(", ", 1)
    today = scales(name, price)
    factors = {"effects at points": REST / BLOCKS} if name == "sample_aggregate_cate" else {}
    for label, before in BEFORE[case].items():
        renamed = label.replace("in the objective", "objective perturbation")
        renamed = renamed.replace(": solver", ": solver tolerance")
        now, factor = NOW.get(label, (renamed, factors.get(label, 1.0)))
        slack = FOLLOWS.get(label.split()[-1], 1.0 + 1e-6)
        assert today[now] * factor <= before * slack, label


def main():
    found = {}
    for name, price in itertools.product(CALLS, PRICES):
        with contextlib.suppress(DPEffectsError):  # one needs a delta
            found[f"{name}, {price}"] = scales(name, price)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
