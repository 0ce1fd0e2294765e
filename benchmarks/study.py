"""A whole study from one release: noise, family-wise coverage, and how near plans come.

    python benchmarks/study.py            # a quarter of an hour on one core
    python benchmarks/study.py --runs 50  # fewer
    python benchmarks/study.py --small    # a quick look, nothing saved

Noise is that of `dp_study` against as many separate calls of `dp_ate`, each with its part of
epsilon and delta: "diff_in_means", which releases the same sums, and the default, which looks for
the spread of the outcome first. Families are covered where all true effects are inside the
intervals that hold for all at once (Bonferroni). Plans get the true means, standard deviations and
shares.
"""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from statistics import NormalDist

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe
from dpeffects.inference.intervals import p_value
from dpeffects.progress import bar

SMALL = "--small" in sys.argv
RUNS = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 200
RUNS = 10 if SMALL else RUNS
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


POPULATIONS = (
    Population("independent"),
    Population("correlated by 0.7", correlation=0.7),
    Population("rare, skewed and normal", mixed=True),
    Population("the same, 10 % treated", mixed=True, treated=0.1),
    Population("by sex", 6, mixed=True),
)
MANY = Population("60 outcomes", 60, mixed=True)


def setting(population: Population, n: int, epsilon: float, delta: float, runs: int) -> dict:
    """Coverage of the family, and widths against the plan, in one population."""
    warnings.simplefilter("ignore")
    planned = population.plan(n, epsilon, delta).tidy()
    planned = planned[planned["subgroup"] == ("sex" if population.by_sex else "")]
    levels = 2 if population.by_sex else 1
    truth, hits, widths = np.tile(population.effects, levels), [], []
    for seed in range(runs):
        asked = population.asked | {"epsilon": epsilon, "delta": delta, "seed": 10_000 + seed}
        fit = dpe.dp_study(population.formula, population.records(n, seed), **asked)
        family = fit.by("sex") if population.by_sex else fit
        level = 0.05 / len(truth)
        pairs = zip(family.effects, truth, strict=True)
        hits.append(all(p_value(effect, x) > level for effect, x in pairs))
        if seed % 10 == 0:
            widths.append(np.diff(family.conf_int(), axis=1)[:, 0] / 2.0)
    ratio = np.median(widths, axis=0) / planned["half_width"].to_numpy()
    return {
        "population": population.name,
        "n": n,
        "epsilon": epsilon,
        "delta": delta,
        "runs": runs,
        "covered": round(100.0 * float(np.mean(hits)), 1),
        "against the plan": f"{ratio.min():.2f} to {ratio.max():.2f}",
    }


def noise_rows() -> list[dict]:
    """Noise of the study against that of separate calls, by the number of outcomes."""
    n, rows, rng = 10_000, [], np.random.default_rng(5)
    kinds = {
        "normal": np.clip(rng.normal(0.5, SD, (n, 100)), 0.0, 1.0),
        "skewed": np.minimum(np.exp(rng.normal(LOG_MEAN, LOG_SD, (n, 100))), 1.0),
        "rare": 1.0 * (rng.random((n, 100)) < RARE),
    }
    for kind, y in kinds.items():
        frame = pd.DataFrame(y, columns=[f"y{j}" for j in range(100)])
        frame["t"] = rng.integers(0, 2, n)
        for k, delta in itertools.product((1, 5, 20, 100), (0.0, 1e-6)):
            rows.append({"kind": kind, "outcomes": k, "delta": delta} | _noise(frame, k, delta))
    return rows


def _noise(frame: pd.DataFrame, k: int, delta: float) -> dict:
    """Noise and standard errors of k outcomes at once, and how many times that of single calls."""
    bounds, asked = {f"y{j}": (0, 1) for j in range(k)}, {"design": "randomised"}
    budget = {"epsilon": 1.0, "delta": delta, "seed": 1}
    fit = dpe.dp_study(f"{' + '.join(bounds)} ~ t", frame, bounds=bounds, **budget, **asked)
    joint = fit.tidy()[["noise_sd", "std_error"]].median()
    row = {name: float(f"{joint[name]:.3g}") for name in joint.index}
    for method in ("diff_in_means", "auto"):
        part = {"epsilon": 1.0 / k, "delta": delta / k, "bounds": {"y0": (0, 1)}, **asked}
        fits = [dpe.dp_ate("y0 ~ t", frame, method, **part, seed=seed) for seed in range(5)]
        noise = np.median([math.sqrt(x.noise_variance) for x in fits])
        error = np.median([float(x.std_error) for x in fits])
        row[f"{method}: noise"] = round(float(noise) / joint["noise_sd"], 2)
        row[f"{method}: std. error"] = round(float(error) / joint["std_error"], 2)
    return row | {"noise is": ", ".join(dict.fromkeys(x.mechanism for x in fit.charges))}


def width_rows() -> list[dict]:
    """Planned half-widths against epsilon: they fall."""
    rows = []
    for k in (1, 5, 20, 100):
        bounds = {f"y{j}": (0, 1) for j in range(k)}
        for delta in (0.0, 1e-6):
            row = {"outcomes": k, "delta": delta}
            for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 10.0):
                sds = dict.fromkeys(bounds, SD)
                asked = {"bounds": bounds, "design": "randomised", "outcome_sd": sds}
                plan = dpe.plan_study(
                    f"{' + '.join(bounds)} ~ t", n=10_000, epsilon=epsilon, delta=delta, **asked
                )
                row[f"epsilon {epsilon:g}"] = float(f"{plan.effects[0].half_width:.3g}")
            rows.append(row)
    return rows


def main() -> None:
    warnings.simplefilter("ignore")
    tables = {"Noise in an effect, epsilon 1": pd.DataFrame(noise_rows())}
    tables["Planned half-widths of simultaneous intervals, n = 10,000"] = pd.DataFrame(width_rows())
    cells = [
        (people, n, epsilon, 0.0, RUNS if n == 2_000 else RUNS // 2)
        for people in POPULATIONS
        for n in (2_000, 10_000)
        for epsilon in EPSILONS
    ]
    # up to about thirty outcomes pure noise is less than Gaussian
    cells += [(MANY, 10_000, epsilon, 1e-6, RUNS // 2) for epsilon in EPSILONS[:2]]
    with ProcessPoolExecutor(2) as pool:
        each = [pool.submit(setting, *cell) for cell in cells]
        rows = [found.result() for found in bar(each, "coverage")]
    tables["Families of 20 outcomes (by sex: of 6 at 2 levels)"] = pd.DataFrame(rows)
    if SMALL:
        print("\n\n".join(table.to_string() for table in tables.values()))
    else:
        save("study", "Studies from one release: noise, coverage and plans", tables, NOTE)


if __name__ == "__main__":
    main()
