"""A whole study from one release: noise, family-wise coverage, and how near plans come.

Noise is that of `dp_study` against as many separate calls of `dp_ate`, each with its part of
epsilon and delta: "diff_in_means", which releases the same sums, and the default, which looks for
the spread of the outcome first. Families are covered where all true effects are inside the
intervals that hold for all at once (Bonferroni). Plans get the true means, standard deviations and
shares.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import numpy as np
import pandas as pd
from harness import Part, Table, grid

import dpeffects as dpe
from dpeffects.inference.intervals import p_value

EPSILONS = (0.5, 1.0, 4.0)
NOTE = (
    "Noise: standard deviation of the noise in an effect and its standard error, in ranges of the "
    "outcome, n = 10,000; of separate calls, how many times as much (medians of five). Normal "
    "outcomes have a standard deviation of 0.15, skewed ones of 0.05, rare ones a risk of 0.03. "
    "Covered: families, in per cent; the standard error of 95 % is 2.2 with "
    "100 runs. Against the plan: median half-widths of a tenth of the runs over planned ones, the "
    "least and the largest over outcomes. Each epsilon has the same people."
)
SD, LOG_MEAN, LOG_SD = 0.15, math.log(0.02), 1.0
RARE = 0.03


def _capped(shift: float) -> tuple[float, float]:
    """Mean and standard deviation of a log-normal variable that is capped at 1."""
    m, s, dist = LOG_MEAN + shift, LOG_SD, NormalDist()

    def moment(power: float) -> float:
        below = math.exp(power * m + power**2 * s**2 / 2.0) * dist.cdf(-(m + power * s**2) / s)
        return below + dist.cdf(m / s)

    return moment(1.0), math.sqrt(moment(2.0) - moment(1.0) ** 2)


class Population:
    """Records of a kind, the true effects, and what a plan is told."""

    def __init__(
        self,
        name: str,
        outcomes: int = 20,
        *,
        correlation: float = 0.0,
        treated: float = 0.5,
        mixed: bool = False,
    ) -> None:
        self.name, self.treated, self.correlation = name, treated, correlation
        kinds = ("rare", "skewed", "normal") if mixed else ("normal",)
        self.by_sex = name == "by sex"
        self.kinds = [kinds[j % len(kinds)] for j in range(outcomes)]
        self.names = [f"y{j}" for j in range(len(self.kinds))]
        self.shifts = [0.3 * (j % 2) for j in range(len(self.kinds))]
        self.formula = f"{' + '.join(self.names)} ~ t"
        self.asked = {
            "bounds": {n: [0, 1] if k == "rare" else (0, 1) for n, k in self._each()}
            | {"sex": ["f", "m"]},
            "subgroups": ["sex"] if self.by_sex else [],
            "design": "randomised",
        }
        if not self.by_sex:
            del self.asked["bounds"]["sex"]

    def _each(self) -> list[tuple[str, str]]:
        return list(zip(self.names, self.kinds, strict=True))

    @property
    def effects(self) -> np.ndarray:
        """True effects: standard deviations, of which 0.3 is the effect, are within the range."""
        sizes = {
            "normal": lambda shift: SD * shift,
            "rare": lambda shift: RARE * shift,
            "skewed": lambda shift: _capped(shift)[0] - _capped(0.0)[0],
        }
        return np.array([sizes[k](x) for k, x in zip(self.kinds, self.shifts, strict=True)])

    def records(self, n: int, seed: int) -> pd.DataFrame:
        """Draw people."""
        rng = np.random.default_rng([seed, 77])
        t = (rng.random(n) < self.treated).astype(int)
        own, common = rng.standard_normal((n, len(self.names))), rng.standard_normal((n, 1))
        z = math.sqrt(self.correlation) * common + math.sqrt(1.0 - self.correlation) * own
        found: dict[str, object] = {"t": t}
        for j, (name, kind) in enumerate(self._each()):
            shift = self.shifts[j] * t
            if kind == "rare":
                chance = RARE * (1.0 + shift)
                cut = np.where(t == 1, *map(NormalDist().inv_cdf, (1.0 - chance.max(), 1.0 - RARE)))
                found[name] = (z[:, j] > cut).astype(int)
            elif kind == "skewed":
                found[name] = np.minimum(np.exp(LOG_MEAN + LOG_SD * z[:, j] + shift), 1.0)
            else:
                bounded = np.clip(z[:, j], -3.0, 3.0)  # the same cut for both arms
                found[name] = 0.47 + SD * (bounded + shift)
        if self.by_sex:
            found["sex"] = np.where(rng.random(n) < 0.3, "f", "m")
        return pd.DataFrame(found)

    def plan(self, n: int, epsilon: float, delta: float) -> dpe.StudyPlan:
        """The plan that knows the truth."""
        skewed = _capped(0.15)
        risk = RARE * 1.15
        means = {"rare": risk, "skewed": skewed[0], "normal": 0.47 + 0.15 * SD}
        sds = {"skewed": skewed[1], "normal": 0.986 * SD}
        known = {
            "outcome_mean": {n: means[k] for n, k in self._each()},
            "outcome_sd": {n: sds[k] for n, k in self._each() if k in sds},
            "treated_share": self.treated,
            "subgroup_shares": {"sex": {"f": 0.3}} if self.by_sex else None,
        }
        return dpe.plan_study(
            self.formula, n=n, epsilon=epsilon, delta=delta, **self.asked, **known
        )


POPULATIONS = {
    people.name: people
    for people in (
        Population("independent"),
        Population("correlated by 0.7", correlation=0.7),
        Population("rare, skewed and normal", mixed=True),
        Population("the same, 10 % treated", mixed=True, treated=0.1),
        Population("by sex", 6, mixed=True),
        Population("60 outcomes", 60, mixed=True),
    )
}


@cache
def planned(population: str, n: int, epsilon: float, delta: float) -> np.ndarray:
    """Half-widths of a plan that knows the truth."""
    people = POPULATIONS[population]
    table = people.plan(n, epsilon, delta).tidy()
    table = table[table["subgroup"] == ("sex" if people.by_sex else "")]
    return table["half_width"].to_numpy()


def run(seed: int, noise: int, population: str, n: int, epsilon: float, delta: float):
    """Whether the family is covered, and in a tenth of the runs widths against the plan."""
    people = POPULATIONS[population]
    asked = people.asked | {"epsilon": epsilon, "delta": delta, "seed": noise}
    fit = dpe.dp_study(people.formula, people.records(n, seed), **asked)
    family = fit.by("sex") if people.by_sex else fit
    truth = np.tile(people.effects, 2 if people.by_sex else 1)
    pairs = zip(family.effects, truth, strict=True)
    found = {"covered": all(p_value(effect, x) > 0.05 / len(truth) for effect, x in pairs)}
    if seed % 10 == 0:
        half = np.diff(family.conf_int(), axis=1)[:, 0] / 2.0
        ratio = half / planned(population, n, epsilon, delta)
        found |= {f"ratio {k}": x for k, x in enumerate(ratio)}
    return found


def summary(runs: pd.DataFrame) -> dict[str, object]:
    ratio = runs.filter(like="ratio").median()
    covered = round(100.0 * runs["covered"].mean(), 1)
    return {"covered": covered, "against the plan": f"{ratio.min():.2f} to {ratio.max():.2f}"}


@cache
def hundred(kind: str) -> pd.DataFrame:
    """A hundred outcomes of a kind."""
    n, rng = 10_000, np.random.default_rng(5)
    y = {
        "normal": lambda: np.clip(rng.normal(0.5, SD, (n, 100)), 0.0, 1.0),
        "skewed": lambda: np.minimum(np.exp(rng.normal(LOG_MEAN, LOG_SD, (n, 100))), 1.0),
        "rare": lambda: 1.0 * (rng.random((n, 100)) < RARE),
    }[kind]()
    return pd.DataFrame(y, columns=[f"y{j}" for j in range(100)]).assign(t=rng.integers(0, 2, n))


def noise_of(people: int, noise: int, kind: str, outcomes: int, delta: float):
    """Noise and standard errors of outcomes at once, and how many times that of single calls."""
    bounds, asked = {f"y{j}": (0, 1) for j in range(outcomes)}, {"design": "randomised"}
    budget, frame = {"epsilon": 1.0, "delta": delta, "seed": noise}, hundred(kind)
    fit = dpe.dp_study(f"{' + '.join(bounds)} ~ t", frame, bounds=bounds, **budget, **asked)
    joint = fit.tidy()[["noise_sd", "std_error"]].median()
    row = {name: float(f"{joint[name]:.3g}") for name in joint.index}
    for method in ("diff_in_means", "auto"):
        part = {"epsilon": 1.0 / outcomes, "delta": delta / outcomes, "bounds": {"y0": (0, 1)}}
        each = range(noise + 1, noise + 6)
        fits = [dpe.dp_ate("y0 ~ t", frame, method, **part, **asked, seed=seed) for seed in each]
        size = np.median([math.sqrt(x.noise_variance) for x in fits])
        error = np.median([float(x.std_error) for x in fits])
        row[f"{method}: noise"] = round(float(size) / joint["noise_sd"], 2)
        row[f"{method}: std. error"] = round(float(error) / joint["std_error"], 2)
    return row | {"noise is": ", ".join(dict.fromkeys(x.mechanism for x in fit.charges))}


def widths(people: int, noise: int, outcomes: int, delta: float):
    """Planned half-widths against epsilon: they fall."""
    bounds, row = {f"y{j}": (0, 1) for j in range(outcomes)}, {}
    asked = {"bounds": bounds, "design": "randomised", "outcome_sd": dict.fromkeys(bounds, SD)}
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 10.0):
        given = {"n": 10_000, "epsilon": epsilon, "delta": delta, **asked}
        plan = dpe.plan_study(f"{' + '.join(bounds)} ~ t", **given)
        row[f"epsilon {epsilon:g}"] = float(f"{plan.effects[0].half_width:.3g}")
    return row


SIZES, DELTAS, NAMES = (1, 5, 20, 100), (0.0, 1e-6), list(POPULATIONS)
FAMILIES = grid(population=NAMES[:-1], n=(2_000, 10_000), epsilon=EPSILONS, delta=[0.0])
# up to about thirty outcomes pure noise is less than Gaussian
FAMILIES += grid(population=NAMES[-1:], n=[10_000], epsilon=EPSILONS[:2], delta=[1e-6])
TABLE = Table(
    "Studies from one release: noise, coverage and plans",
    (
        Part(
            "Noise in an effect, epsilon 1",
            grid(kind=("normal", "skewed", "rare"), outcomes=SIZES, delta=DELTAS),
            noise_of,
        ),
        Part(
            "Planned half-widths of simultaneous intervals, n = 10,000",
            grid(outcomes=SIZES, delta=DELTAS),
            widths,
        ),
        Part(
            "Families of 20 outcomes (by sex: of 6 at 2 levels)", FAMILIES, run, summary, runs=100
        ),
    ),
    NOTE,
    minutes=3,
)
