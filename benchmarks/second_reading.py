"""Statements of the source papers that did not come back, read a second time.

Every mechanism is written here from the paper's text alone, in plain numpy, and shares no code with
the package or the vignettes. Each row of ``data/papers/*_readings.csv`` is one reading of one
statement: what was assumed where the text is silent, what came out, whether the statement holds
under it, and whether the reading is *plain*: one that the text allows. A reading against the text
(noise that would not be private, for instance) may explain a printed number and excuses nothing.

The usual files of IHDP, ACIC, Lalonde and STAR are not part of the project. Their folder is given:

    python benchmarks/second_reading.py --files FOLDER [000 001 003 004]

with ``ihdp_npci_1-50.npz``, ``lalonde_nsw_original.csv``, ``acic2016_sim1.csv`` and
``star_10331.csv``. Four minutes on one core.
"""

from __future__ import annotations

import datetime
import itertools
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr

import dpeffects as dpe

OUT = Path(__file__).resolve().parents[1] / "data" / "papers"
COLUMNS = ["claim", "item", "reading", "found", "plain", "holds", "cases"]
ROWS: dict[str, list[dict[str, object]]] = {}


def row(paper, claims, reading, found, holds, cases, plain=True, item=""):
    """Note one reading of some statements, by the names of the functions that judge them."""
    for claim in claims.split():
        ROWS.setdefault(paper, []).append(
            dict(zip(COLUMNS, (claim, item, reading, found, plain, holds, cases), strict=True))
        )


def each(values, form="{:.2g}"):
    """Numbers in a row."""
    return ", ".join(form.format(value) for value in values)


def files():
    """The folder of the usual files."""
    return Path(sys.argv[sys.argv.index("--files") + 1])


def largest_epsilon(shift, delta):
    """The epsilon at this delta of two unit Gaussians ``shift`` apart, exactly."""
    return brentq(lambda e: exact_delta(shift, e) - delta, 0, shift**2 + 40 * shift + 40)


def exact_delta(shift, epsilon):
    """The delta of two unit Gaussians ``shift`` apart at an epsilon, exactly."""
    far = log_ndtr(-shift / 2 - epsilon / shift) + epsilon
    return math.exp(log_ndtr(shift / 2 - epsilon / shift)) - math.exp(min(far, 0.0))


# --- paper 000: matching --------------------------------------------------------------------------


def logit(x, t, penalty):
    """Penalised logistic regression, treatments coded -1 and 1 (equation 5)."""
    w = np.zeros(x.shape[1])
    for _ in range(200):
        p = 1 / (1 + np.exp(-x @ w))
        gradient = x.T @ (p - t) / len(t) + penalty * w
        if np.abs(gradient).max() < 1e-9:
            break
        curvature = (x * (p * (1 - p))[:, None]).T @ x / len(t) + penalty * np.eye(len(w))
        w = w - np.linalg.solve(curvature, gradient)
    return w


def by_distance(scores, t):
    """Algorithm 2: for each record, those of the other arm, nearest first."""
    arms = {arm: np.flatnonzero(t == arm) for arm in (0, 1)}
    found = []
    for score, arm in zip(scores, t, strict=True):
        others = arms[1 - arm]
        found.append(others[np.argsort(np.abs(scores[others] - score), kind="stable")])
    return found


def taken(near, t, neighbours, limits=None):
    """Algorithm 3, lines 13 to 15: the neighbours of each record under limits (k1, k2)."""
    if limits is None:
        return [others[:neighbours] for others in near]
    room = np.where(t == 1, *limits) * neighbours
    found = []
    for others in near:
        chosen = others[room[others] > 0][:neighbours]
        room[chosen] -= 1
        found.append(chosen)
    return found


def weights(chosen, n, divide_by=None):
    """What each record's outcome counts for in counterfactuals (equation 4)."""
    total = np.zeros(n)
    for near in chosen:
        total[near] += 1 / (divide_by or max(len(near), 1))
    return total


def limit(n_t, n_c, most, neighbours, epsilon, coefficient, capped=True, fixed=None):
    """Equations 9 to 12 and lines 6 to 12 of Algorithm 3: (k1, k2)."""
    m1, r = most / neighbours, n_t / n_c
    k = fixed or max(round(math.sqrt(epsilon * coefficient * max(n_t, n_c) * m1 / 2)), 1)
    k = max(1, min(k, math.ceil(m1))) if capped else k
    return (k, max(1, round(k * r))) if r <= 1 else (max(1, round(k / r)), k)


class Matching:
    """PrivATE on one table: covariates in [0, 1] by their smallest and largest value."""

    def __init__(self, x, t, y, nobody="0", seed=None):
        order = np.arange(len(t)) if seed is None else np.random.default_rng(seed).permutation(len(t))
        x, self.t, self.y = x[order], t[order].astype(int), y[order]
        x = (x - x.min(axis=0)) / np.maximum(np.ptp(x, axis=0), 1e-12)
        self.x = np.column_stack([np.ones(len(x)), x])
        self.n, self.width, self.nobody = len(t), float(np.ptp(y)), nobody
        self.near = by_distance(1 / (1 + np.exp(-self.x @ logit(self.x, self.t, 1e-6))), self.t)
        self.truth = {}

    def effect(self, t, chosen, divide_by=None):
        """The two sums over n, without noise."""
        signs = np.where(t == 1, 1, -1)
        value = signs @ ((1 + weights(chosen, self.n, divide_by)) * self.y)
        if self.nobody == "own":  # whose counterfactual is the own outcome: an effect of 0
            alone = np.array([len(near) == 0 for near in chosen])
            value -= signs[alone] @ self.y[alone]
        return value / self.n

    def free(self, neighbours=5):
        """Non-private matching."""
        if neighbours not in self.truth:
            self.truth[neighbours] = self.effect(self.t, taken(self.near, self.t, neighbours))
        return self.truth[neighbours]

    @cache
    def limited(self, limits, neighbours, divide_by=None):
        """The estimate without noise under limits."""
        return self.effect(self.t, taken(self.near, self.t, neighbours, limits), divide_by)

    def label(self, epsilon, rng, neighbours=5, coefficient=0.01, fixed=None, capped=True, runs=4000):
        """Relative errors at label level."""
        used = np.bincount(np.concatenate(taken(self.near, self.t, neighbours)), minlength=self.n)
        sizes = int(self.t.sum()), int((1 - self.t).sum())
        more = (neighbours, epsilon, coefficient, capped, fixed)
        limits = limit(*sizes, int(used.max()), *more)
        noise = (np.array(limits) + 1) * self.width / epsilon / self.n
        drawn = rng.laplace(size=(runs, 2)) @ (noise * [1, -1])
        value = self.limited(limits, neighbours) + drawn
        return np.abs(value / self.free(neighbours) - 1)

    def sample(self, epsilon, rng, shares=(0.1, 0.7, 0.2), coefficient=0.001, fixed=None, cut=False):
        """One relative error at sample level."""
        first, flips, last = (epsilon * share for share in shares)
        d = self.x.shape[1]
        w = logit(self.x, self.t, 1 / self.n) + rng.laplace(0, 2 * d / (first / 2), d)
        scores = 1 / (1 + np.exp(-np.clip(self.x @ w, -500, 500)))
        scores = scores + rng.laplace(0, 2 / first, self.n)
        scores = np.clip(scores, 0, 1) if cut else scores
        t = self.t ^ (rng.random(self.n) < 1 / (1 + math.exp(flips)))
        near = by_distance(scores, t)
        most = int(np.bincount(np.concatenate(taken(near, t, 5)), minlength=self.n).max())
        limits = limit(int(t.sum()), int((1 - t).sum()), most, 5, last, coefficient, False, fixed)
        value = self.effect(t, taken(near, t, 5, limits))
        noise = (np.array(limits) + 1) * self.width / last / self.n
        value += rng.laplace(size=2) @ (noise * [1, -1])
        return abs(value / self.free() - 1)


@cache
def studies(nobody):
    """The usual files, and Synth drawn by appendix F with the coefficients of its source."""
    z = np.load(files() / "ihdp_npci_1-50.npz")
    nsw = dpe.load_data("lalonde").frame
    acic = pd.read_csv(files() / "acic2016_sim1.csv")
    rng = np.random.default_rng(0)
    x = rng.random((1000, 20))
    t = rng.random(1000) < 1 / (1 + np.exp(-(2 * x - 1) @ rng.uniform(-1, 1, 20)))
    y = x @ rng.uniform(0, 0.4, 20) + 0.5 * t + rng.uniform(0, 0.1, 1000)
    others = ["treatment", "outcome", "y0", "y1", "mu0", "mu1"]
    tables = {
        "IHDP": (z["x"], z["t"], z["yf"][:, 0]),
        "Lalonde": (
            nsw.drop(columns=["treatment", "earnings_1978"]),
            nsw["treatment"],
            nsw["earnings_1978"],
        ),
        "ACIC": (pd.get_dummies(acic.drop(columns=others)), acic["treatment"], acic["outcome"]),
        "Synth": (x, t, y),
    }
    return {
        name: Matching(*(np.asarray(part, dtype=float) for part in parts), nobody)
        for name, parts in tables.items()
    }


WORDS = {
    "0": "the usual files, observed ranges, a counterfactual of 0 for who finds nobody",
    "own": "the usual files, observed ranges, an effect of 0 for who finds nobody",
}
FEW = (0.5, 1.0, 2.0, 4.0)
TEN = 10  # the paper's repeats


def near_best(errors, chosen):
    """Cells in which a choice is not clearly worse than the best at ten repeats; ratios."""
    near, ratios = [], []
    for cell in errors:
        best = min(cell, key=lambda name: cell[name][0])
        gap = cell[chosen][0] - cell[best][0]
        near.append(gap <= 2 * math.hypot(cell[chosen][1], cell[best][1]) / math.sqrt(TEN))
        ratios.append(cell[chosen][0] / cell[best][0])
    said = f"not clearly worse than the best in {sum(near)} of {len(near)} cells at ten repeats "
    said += f"(median {np.median(ratios):.2g} times the best, at most {max(ratios):.2g})"
    return said, float(np.mean(near))


def mean_and_sd(values):
    """Mean and standard deviation."""
    return float(np.mean(values)), float(np.std(values))


def label_level():
    """Figures 2 to 4, 8 and 9."""
    for nobody, words in WORDS.items():
        tables, rng = studies(nobody), np.random.default_rng(1)
        at = {name: m.label(0.5, rng).mean() for name, m in tables.items()}
        said = ", ".join(f"{name} {error:.2g}" for name, error in at.items())
        holds = sum(error < 0.2 for error in at.values()) >= 2
        row("000", "label_at_a_half", words, said, holds, 4000)
        for item, counts, enough in (("Figure 3", (5,), 0.8), ("Figure 8", (1, 3, 7), 0.5)):
            cells = []
            for m, e, neighbours in itertools.product(tables.values(), FEW, counts):
                ways = {"adaptive": None, "k = 1": 1, "k = 10": 10, "k = 50": 50}
                cell = {
                    way: mean_and_sd(m.label(e, rng, neighbours, fixed=k, capped=not k))
                    for way, k in ways.items()
                }
                cells.append(cell)
            said, share = near_best(cells, "adaptive")
            row("000", "adaptive_at_label_level", words, said, share >= enough, 4000, item=item)
            worse = {k: 1 - near_best(cells, k)[1] for k in ways if k != "adaptive"}
            said = ", ".join(f"{k} {share:.0%}" for k, share in worse.items())
            said = f"cells in which a limit is clearly worse than the best: {said}"
            row("000", "no_fixed", words, said, min(worse.values()) > 0.1, 4000, item=item)
        last = [m.label(4.0, rng, fixed=50, capped=False).mean() for m in tables.values()]
        small = [[m.label(e, rng, fixed=1, capped=False).mean() for e in (0.5, 4.0)] for m in tables.values()]
        ratio = np.array(last) / np.array(small)[:, 1]
        said = f"error at k = 50 over k = 1, epsilon 4: {each(ratio)} (IHDP, Lalonde, ACIC, Synth)"
        row("000", "large_last", words, said, bool((ratio < 1).mean() >= 0.5), 4000)
        flat = np.array(small)[:, 1] / np.array(small)[:, 0]
        said = f"k = 1, error at 4 over that at 0.5: {each(flat)}"
        row("000", "small_is_flat", words, said, bool((flat > 0.5).mean() > 0.5), 4000)
        for item, counts in (("Figure 4", (5,)), ("Figure 9", (1, 3, 7))):
            cells = [
                {c: mean_and_sd(m.label(e, rng, neighbours, c)) for c in (1e-4, 1e-3, 0.01, 0.1, 1)}
                for m, e, neighbours in itertools.product(tables.values(), FEW, counts)
            ]
            said, share = near_best(cells, 0.01)
            row("000", "coefficient", words, f"c = 0.01: {said}", share > 0.8, 4000, item=item)


def sample_level(runs=40):
    """Figures 2, 5 and 12: protecting everything."""
    for nobody, words in WORDS.items():
        tables = {name: m for name, m in studies(nobody).items() if name != "ACIC"}
        rng = np.random.default_rng(2)
        found = {
            (name, e): [m.sample(e, rng) for _ in range(runs)]
            for (name, m), e in itertools.product(tables.items(), (1.0, 3.0, 4.0))
        }
        mean = {key: float(np.mean(values)) for key, values in found.items()}
        label = {name: float(m.label(4.0, rng).mean()) for name, m in tables.items()}
        said = ", ".join(f"{name} {mean[name, 4.0]:.2g} and {label[name]:.2g}" for name in tables)
        close = max(abs(mean[name, 4.0] - label[name]) for name in tables) < 0.1
        row("000", "similar_at_4", words, f"sample and label level at epsilon 4: {said}", close, runs)
        said = f"sample level at epsilon 3 on Lalonde: {mean['Lalonde', 3.0]:.2g}"
        row("000", "lalonde_at_3", words, said, mean["Lalonde", 3.0] < 0.2, runs)
        said = ", ".join(f"{name} {mean[name, 1.0]:.2g}" for name in tables)
        below = all(mean[name, 1.0] < 1 for name in tables)
        row("000", "below_one", words, f"sample level at epsilon 1: {said}", below, runs)
        noisy = [mean[name, 1.0] for name in tables]
        rivals = pd.read_csv(OUT / "000_figure_2_rivals.csv", comment="#").query("epsilon == 1")
        best = [rivals[rivals["data"] == name]["error"].min() for name in tables]
        said = f"sample level at epsilon 1 {each(noisy)}, the best rival {each(best)} (IHDP, Lalonde, Synth)"
        row("000", "sample_beats", words, said, all(np.array(noisy) < best), runs)
        cells = [
            {
                k: mean_and_sd([m.sample(e, rng, fixed=k) for _ in range(runs)])
                for k in (1, 2, 5, 10)
            }
            for m, e in itertools.product(tables.values(), (3.0, 4.0))
        ]
        said, share = near_best(cells, 1)
        row("000", "smallest_not_best", words, f"k = 1 at epsilon 3 and 4: {said}", share < 0.9, runs)
        thirds = [(0.1, 0.1), (0.1, 0.3), (0.1, 0.5), (0.1, 0.7), (0.3, 0.3), (0.3, 0.5), (0.5, 0.3)]
        cells = [
            {
                s: mean_and_sd([m.sample(e, rng, (*s, 1 - sum(s))) for _ in range(runs // 2)])
                for s in thirds
            }
            for m, e in itertools.product(tables.values(), (1.5, 3.0))
        ]
        said, share = near_best(cells, (0.1, 0.7))
        row("000", "chosen_division", words, said, share > 0.8, runs // 2)
    m, rng = studies("own")["Lalonde"], np.random.default_rng(3)
    for claims, e, bar in (("lalonde_at_3", 3.0, 0.2), ("below_one", 1.0, 1.0)):
        value = np.mean([m.sample(e, rng, cut=True) for _ in range(runs)])
        words = "noisy scores cut to [0, 1]"
        row("000", claims, words, f"Lalonde {value:.2g} at epsilon {e:g}", value < bar, runs)


def ipw_rival(threshold, epsilon=0.5, runs=400):
    """IPW-PP with half of the records for each step and a threshold on propensities."""
    errors, rng = {}, np.random.default_rng(4)
    for name, m in studies("own").items():
        half, size = m.n // 2, np.abs(m.y).max()
        x = m.x[:, 1:] / np.linalg.norm(m.x[:, 1:], axis=1).max()
        sd = math.sqrt(2 * math.log(1.25e5)) / epsilon
        found = []
        for _ in range(runs if name != "ACIC" else runs // 10):
            one, two = np.split(rng.permutation(m.n), [half])
            w = logit(x[one], m.t[one], 0.1)
            w = w + rng.normal(0, sd * 2 / (half * 0.1), len(w))
            e = np.clip(1 / (1 + np.exp(-x[two] @ w)), threshold, 1 - threshold)
            value = np.mean(np.where(m.t[two] == 1, 1 / e, -1 / (1 - e)) * m.y[two])
            value += rng.normal(0, sd * 2 * size / threshold / len(two))
            found.append(abs(value / m.free() - 1))
        errors[name] = float(np.mean(found))
    return errors


def poorest():
    """Figure 2: IPW-PP against the others."""
    rivals = pd.read_csv(OUT / "000_figure_2_rivals.csv", comment="#").query("epsilon == 0.5")
    rivals = rivals[rivals["setting"] != "IPW-PP"].groupby("data")["error"].max()
    for threshold in (0.1, 0.01):
        errors = ipw_rival(threshold)
        worst = sum(errors[name] > rivals[name] for name in errors)
        said = ", ".join(f"{n} {error:.2g} ({rivals[n]:.2g})" for n, error in errors.items())
        words = f"the usual files, its fixed threshold at {threshold}"
        said = f"error at epsilon 0.5 (worst of the others): {said}"
        row("000", "ipw_is_poorest", words, said, worst > 2, 400)


def statements_000(tries=200):
    """Equations and theorems of paper 000."""
    for nobody, words in WORDS.items():
        ratios = []
        for name, m in studies(nobody).items():
            if name == "ACIC":
                continue
            sizes = int(m.t.sum()), int((1 - m.t).sum())
            most = np.bincount(np.concatenate(taken(m.near, m.t, 5)), minlength=m.n).max()
            for k in (1, 2, 5):
                limits = limit(*sizes, int(most), 5, 1, 1, False, k)
                bias = abs(m.limited(limits, 5) - m.free()) * m.n
                ratios.append(bias / (0.01 * m.width * max(sizes) * most / 5 / k))
        said = f"the bias is {min(ratios):.2g} to {max(ratios):.2g} times the guess in {len(ratios)} cases"
        holds = all(0.5 < r < 2 for r in ratios)
        row("000", "equation_7", words, said, holds, len(ratios))
    row("000", "equation_8", "large limits", f"true over printed {(21 / 20) ** 2:.2f} at k = 20, {(51 / 50) ** 2:.2f} at k = 50", True, 2, plain=False)
    rng, both = np.random.default_rng(5), []
    for _ in range(tries):
        epsilon, guess = rng.uniform(0.1, 4), 10 ** rng.uniform(0, 4)
        best = minimize_scalar(lambda u, e=epsilon, g=guess: 4 * math.exp(2 * u) / e**2 + (g / math.exp(u)) ** 2, (-2, 6))
        both.append(math.exp(best.x) / math.sqrt(epsilon * guess / 2))
    row("000", "equation_9", "the noise of both sums, 4 k^2 B^2 / epsilon^2", f"the minimiser is {min(both):.3f} to {max(both):.3f} times the printed k: the equation is right for this, and equation 8 has the noise of one sum", True, tries, plain=False)
    row("000", "equation_9", "noise of k + 1 in place of k", "the minimiser is another one for every epsilon", False, 1)
    # theorems 1 and 2: what one outcome weighs, over k + 1
    ways = {
        "equation 4 with N in place of the number found": dict(divide_by=5),
        "records that find fewer than N neighbours left out": dict(whole=True),
    }
    for level, claims in (("label", "theorem_1"), ("sample", "theorem_2")):
        for words, way in ways.items():
            worst = 0.0
            for m, e in itertools.product((studies("own")[n] for n in ("IHDP", "Lalonde", "Synth")), (0.1, 0.5, 1.0, 4.0)):
                near, t = m.near, m.t
                if level == "sample":
                    t = m.t ^ (rng.random(m.n) < 1 / (1 + math.exp(0.7 * e)))
                    near = by_distance(rng.laplace(0.5, 20 / e, m.n), t)
                most = np.bincount(np.concatenate(taken(near, t, 5)), minlength=m.n).max()
                e3, c = (e, 0.01) if level == "label" else (0.2 * e, 0.001)
                k = limit(int(t.sum()), int((1 - t).sum()), int(most), 5, e3, c, level == "label")
                chosen = taken(near, t, 5, k)
                if way.get("whole"):
                    chosen = [c if len(c) == 5 else c[:0] for c in chosen]
                weight = 1 + weights(chosen, m.n, way.get("divide_by"))
                worst = max(worst, (weight / (1 + np.where(t == 1, *k))).max())
            said = f"largest weight of an outcome {worst:.2f} times k + 1 in 12 settings"
            row("000", claims, words, said, worst <= 1 + 1e-9, 12, plain=False)
    # definition 6: one record more
    changes = []
    for _ in range(tries):
        n, k = 40, 2
        scores, t, y = rng.random(n + 1), (rng.random(n + 1) < 0.5).astype(int), rng.integers(0, 2, n + 1)
        sums = []
        for size in (n, n + 1):
            chosen = taken(by_distance(scores[:size], t[:size]), t[:size], 3, (k, k))
            part = (1 + weights(chosen, size)) * y[:size]
            sums.append([part[t[:size] == arm].sum() for arm in (0, 1)])
        changes.append(np.abs(np.subtract(*sums)) / (k + 1))
    changes = np.array(changes)
    said = f"one record more moves both sums, together up to {changes.sum(axis=1).max():.2f} times (k + 1) B"
    row("000", "definition_6", "presence of a record with its score and its flip counted as post-processing", said, bool(changes.sum(axis=1).max() <= 1), tries)
    row("000", "definition_6", "one record replaced, n public, as in the proofs", "the reading under which the rest of the paper is consistent, and that of the package", True, 1, plain=False)
    row("000", "theorem_3_count", "N = 1, so that k N is k", "both counts of R are the same", True, 1, plain=False)
    row("000", "theorem_3_count", "u counted in units of N uses", "the printed R is right after division by N, which the bound already has", False, 1)
    row("000", "equation_5", "treatments coded -1 and 1, as in the usual logistic loss", "the ordinary logistic fit, which is what all runs here have", True, 1, plain=False)
    row("000", "table_iii", "the sorted lists of Algorithm 2 kept as printed", f"{858 * 3944 * 2:,} entries on ACIC, n^2 log n steps", False, 1)
    row("000", "table_iii", "all scores sorted once, neighbours found by walking outwards", "n log n, but then there is no matrix H", True, 1, plain=False)
    printed = {"SmoothDPM": (469.13, 468.92, 477.31, 470.81), "sample": (470.60, 469.97, 484.55, 470.92), "label": (468.19, 467.46, 479.83, 468.29)}
    less = {level: sum(np.array(printed[level]) < printed["SmoothDPM"]) for level in ("label", "sample")}
    row("000", "table_v_least", "the paper's own Table V", f"below SmoothDPM on {less['label']} of 4 data sets at label level, on {less['sample']} at sample level", False, 8)


# --- papers 002 and 003: many sites ---------------------------------------------------------------

ALPHAS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
SPLITS = ((1, 1, 1), (3, 2, 1), (9, 9, 2), (18, 1, 1))
DELTA = 1e-5


def exact_matching(x, w, y):
    """Algorithm 1: the estimate, and how often each record is used, itself included."""
    value, uses = 0.0, np.ones(len(y))
    for stratum in np.unique(x):
        arms = [np.flatnonzero((x == stratum) & (w == arm)) for arm in (0, 1)]
        if len(arms[0]) and len(arms[1]):
            for own, other, sign in ((1, 0, 1), (0, 1, -1)):
                match = arms[other][np.arange(len(arms[own])) % len(arms[other])]
                value += sign * (y[arms[own]] - y[match]).sum()
                np.add.at(uses, match, 1)
    return value / len(y), uses


def smooth_bound(treated, control, beta):
    """Equation (1) for outcomes in [0, 1]."""
    n = int(treated.sum() + control.sum())
    large, small = np.maximum(treated, control)[:, None], np.minimum(treated, control)[:, None]
    k = np.arange(min(n, int(16 / beta)) + 1)  # exp(-16) of n is below the first term
    ratio = -(-(large + k + 1) // np.maximum(small - k, 1))
    r = np.where(small <= k, large + k, ratio)
    return float((np.exp(-beta * k) * 4 / n * (1 + r.max(axis=0))).max())


def smooth_and_global(x, w, first, splits, seed=0, draws=200, share=2):
    """Mean errors of MVAgg by smooth and by global noise, by split and alpha.

    Noise alone is simulated, and MVAgg knows its variance: the two methods differ in nothing else.
    ``share`` is the number of parts into which the global method divides its budget.
    """
    rng = np.random.default_rng(seed)
    order, strata = rng.permutation(len(x)), int(x.max()) + 1
    noise, rows = rng.laplace(size=(draws, 3)), []
    for split in splits:
        ends = np.rint(np.cumsum(split)[:-1] / sum(split) * len(x)).astype(int)
        parts = np.split(order, ends)
        n = np.array([len(part) for part in parts])
        counts = [[np.bincount(x[p][w[p] == arm], minlength=strata) for arm in (1, 0)] for p in parts]
        for alpha in ALPHAS:
            epsilon = first * alpha ** (np.arange(len(n)) / (len(n) - 1))
            betas = epsilon / 3 / (2 * math.log(6 / DELTA))
            s = np.array([smooth_bound(*c, b) for c, b in zip(counts, betas, strict=True)])
            found = []
            for scale in (2 * s / (epsilon / 3), (1 + 1 / n) / (epsilon / share)):
                weight = fewest(n, 2 * scale**2)
                found.append(np.abs(noise[:, : len(n)] @ (weight * scale)).mean())
            rows.append((split, alpha, *found))
    return pd.DataFrame(rows, columns=["split", "alpha", "smooth", "global"])


def fewest(n, variance):
    """Algorithm 3: the weights with the least variance over all sets of sites."""
    sets = [np.array(s) for s in itertools.product((0, 1), repeat=len(n))][1:]
    best = min(sets, key=lambda s: (s * n) ** 2 @ variance / (s @ n) ** 2)
    return best * n / (best @ n)


def judged(found):
    """Share of settings in which smooth is better, median ratio, and the error at alpha 8."""
    ratio = found["global"] / found["smooth"]
    last = found[found["alpha"] == 8]["smooth"].max()
    return float((ratio > 1).mean()), float(ratio.median()), float(last)


def triples():
    """Figures 8, 10 and 11: every choice of three covariates of IHDP, ages of Lalonde in bands."""
    z = np.load(files() / "ihdp_npci_1-50.npz")
    nsw = pd.read_csv(files() / "lalonde_nsw_original.csv")
    rng, columns = np.random.default_rng(8), []
    for column in z["x"].T:
        levels, coded = np.unique(column, return_inverse=True)
        if len(levels) <= 4:
            columns.append((coded, len(levels)))
    choices = [
        np.unique((a * p + b) * q + c, return_inverse=True)[1]
        for (a, _), (b, p), (c, q) in itertools.combinations(columns, 3)
    ]
    x = rng.integers(0, 100, 10_000)
    drawn = rng.random(10_000) < 1 / (1 + np.exp(-rng.uniform(-1, 1) * (2 * x / 99 - 1)))
    nsw_arms, t = nsw["treatment"].to_numpy(), z["t"].astype(int)
    shares = {2: "half the budget for the global noise", 3: "a third for the global noise, too"}
    for share, words in shares.items():
        synth = smooth_and_global(x, drawn.astype(int), 1, ((1, 1),), share=share)
        ages = {
            years: np.unique(nsw["age"].to_numpy() // years, return_inverse=True)[1]
            for years in (1, 5, 10)
        }
        for item, splits in (("Figure 8", ((1, 1),)), ("Figure 10", SPLITS)):
            found, alone = [], item == "Figure 10"
            rest = [synth, smooth_and_global(ages[5], nsw_arms, 5, splits, share=share)]
            for choice in choices:
                own = smooth_and_global(choice, t, 5, splits, draws=100, share=share)
                found.append(judged(own if alone else pd.concat([own, *rest])))
            better, median, last = np.array(found).T
            much = (better >= 0.75) & (median >= 2)
            said = f"of {len(found):,} choices of three discrete covariates smooth is better in three "
            said += f"of four settings for {np.mean(better >= 0.75):.0%} and twice as good for "
            said += f"{much.mean():.0%}; median ratio {np.median(median):.2g}, at best "
            said += f"{median.max():.2g}"
            more = "" if alone else ", with Synth and Lalonde's ages in bands of 5 years"
            more = f"every choice on IHDP{more}, {words}"
            holds = bool(much.mean() > 0.5)
            row("003", "smooth_below_global", more, said, holds, len(found), item=item)
            if alone and share == 2:
                said = f"0.1 or less at alpha 8 for {np.mean(last <= 0.1):.0%} of {len(found):,} "
                said += f"choices, median {np.median(last):.2g}, at best {last.min():.2g}"
                holds = bool(np.mean(last <= 0.1) > 0.5)
                row("003", "smooth_is_small", more, said, holds, len(found), item=item)
        for years in (1, 5, 10):
            own = smooth_and_global(ages[years], nsw_arms, 5, SPLITS, share=share)
            better, median, last = judged(own)
            more = f"ages in bands of {years} years" if years > 1 else "ages in years"
            more, holds = f"{more}, {words}", better >= 0.75 and median >= 2
            said = f"smooth is better in {better:.0%} of the settings, in the median {median:.2g} times"
            row("003", "smooth_below_global", more, said, holds, 200, item="Figure 11")
            if share == 2 and years > 1:
                said, holds = f"{last:.2g} at alpha 8", last <= 0.1
                row("003", "smooth_is_small", more, said, holds, 200, item="Figure 11")


def trial_sites(n, epsilon, rates, rng, runs, floor=True, per_record=True):
    """Algorithm 4 at sites of a trial with a 0/1 outcome: estimates and variances, the estimate of
    all records without noise, and floors that bind."""
    e = epsilon / 2
    values, variances, raw, bound = [], [], 0.0, 0
    for size, share in zip(n, e, strict=True):
        arm, value, noise, sampling = size // 2, 0.0, 0.0, 0.0
        for rate, sign in zip(rates, (1, -1), strict=True):
            mean = (rng.binomial(arm, rate, runs) + 0.0) / arm
            shown = mean + rng.laplace(0, 1 / share / arm, runs)
            square = mean + rng.laplace(0, 1 / share / (arm if per_record else 1), runs)
            raw = raw + sign * mean * size / n.sum()
            value, noise = value + sign * shown, noise + 2 / (share * arm) ** 2
            sampling = sampling + (square - shown**2) / arm
        bound += int((sampling < 0).sum())
        variances.append(noise + (np.maximum(sampling, 0) if floor else sampling))
        values.append(value)
    return np.array(values).T, np.array(variances).T, raw, bound


def rules(values, variances, n, truth):
    """Mean errors of MVAgg and IVW against a truth, and their difference in standard errors."""
    own = np.array([fewest(n, v) for v in variances])
    inverse = 1 / variances
    inverse = inverse / inverse.sum(axis=1, keepdims=True)
    errors = [np.abs((w * values).sum(axis=1) - truth) for w in (own, inverse)]
    gap = errors[1] - errors[0]
    return errors[0].mean(), errors[1].mean(), gap.mean() / (gap.std() / math.sqrt(len(gap)))


def trials(runs=4000):
    """Figures 3 and 4: MVAgg and inverse variances on IST."""
    rates, total, rng = (161 / 9705, 252 / 9703), 19_408, np.random.default_rng(6)
    effect = rates[0] - rates[1]
    ways = {
        "variances as they come out, no floor": dict(floor=False),
        "variances floored at their noise part": {},
        "the noise of the variance not divided by the records": dict(per_record=False),
    }
    for words, way in ways.items():
        found, bound, plain = [], 0, way.get("per_record", True)
        for alpha in ALPHAS:
            n, e = np.array([total // 2] * 2), np.array([1, alpha])
            values, variances, raw, hit = trial_sites(n, e, rates, rng, runs, **way)
            bound += hit
            found.append(rules(values, variances, n, raw))
        a, b, z = np.array(found).T
        said = f"IVW over MVAgg by alpha, 1/8 to 8: {each(b / a)}; a floor would bind in {bound:,} of {2 * 7 * runs:,} variances"
        best = bool((z > -2).mean() >= 0.75)
        row("003", "generally_best", words, said, best, runs, plain, item="Figure 3")
        row("003", "inverse_variance_at_small_alpha", words, said, bool(z[0] > 2), runs, plain)
        counts = {"the estimate of all records": [0, 0], "the true effect": [0, 0]}
        for alpha, split in itertools.product(ALPHAS, SPLITS):
            n = np.array([total * s // sum(split) for s in split])
            e = alpha ** (np.arange(3) / 2)
            values, variances, raw, _ = trial_sites(n, e, rates, rng, runs, **way)
            for count, truth in zip(counts.values(), (raw, effect), strict=True):
                z = rules(values, variances, n, truth)[2]
                count[0] += int(z < -2)
                count[1] += int(z > 2)
        for against, (better, worse) in counts.items():
            said = f"{runs:,} repeats: better beyond two standard errors in {better} of 28, worse in {worse}"
            more = f"{words}; errors against {against}"
            plain = plain and against != "the true effect"
            row("003", "inverse_variance_at_three_sites", more, said, better > worse, runs, plain)


def statements_003(tries=400):
    """Counts, theorems and lemmas of papers 002 and 003."""
    star = pd.read_csv(files() / "star_10331.csv")
    arms = int(star["treatment"].sum()), int((star["treatment"] == 0).sum())
    said = f"{len(star):,}: {arms[0]:,} treated and {arms[1]:,} controls"
    words = "the archive's file, pupils with a mathematics score in the grade of entry"
    row("003", "sizes:STAR", words, said, (len(star), *arms) == (10_331, 2_643, 7_688), len(star))
    row("003", "sizes:IST", "all patients of the two aspirin arms but those with an event", f"{19_408 - 161 - 252:,}", False, 1)
    row("003", "sizes:IST", "the sum of the printed arms", f"{9_705 + 9_703:,}", False, 1)
    rng, beta = np.random.default_rng(7), 1 / (2 * math.log(2 / DELTA))

    def reachable(t, c, largest):
        """The largest bound of Theorem 1 over strata at most k replacements away, by k."""
        a, b = np.meshgrid(np.arange(t + c + largest + 1), np.arange(t + c + largest + 1))
        big, low = np.maximum(a, b), np.minimum(a, b)
        local = np.where(low > 0, -(-(1 + big) // np.maximum(low, 1)), big)
        far = np.maximum(np.maximum(a - t, 0) + np.maximum(b - c, 0), np.maximum(t - a, 0) + np.maximum(c - b, 0))
        return max((1 + local[far <= k].max()) * math.exp(-beta * k) for k in range(largest + 1))

    moved = {"printed": [], "reached": []}
    for t, c in itertools.product(range(1, 13), repeat=2):
        pairs = [(np.array([t, 200]), np.array([d, 201 + c - d])) for d in (c, c + 1)]
        moved["printed"].append(abs(math.log(smooth_bound(*pairs[0], beta) / smooth_bound(*pairs[1], beta))) / beta)
        if t <= 6 and c <= 6:
            moved["reached"].append(abs(math.log(reachable(t, c, 30) / reachable(t, c + 1, 30))) / beta)
    words = "equation (1) written anew"
    said = f"ln S moves by up to {max(moved['printed']):.2f} beta"
    row("003", "bound_is_smooth", words, said, max(moved["printed"]) <= 1, len(moved["printed"]))
    words = "the bound of Theorem 1 maximised over every stratum that k replacements reach"
    said = f"moves by at most {max(moved['reached']):.2f} beta: this maximum is smooth, equation (1) misses some of it"
    row("003", "bound_is_smooth", words, said, max(moved["reached"]) <= 1 + 1e-9, len(moved["reached"]), plain=False)
    for share, words in ((8 / 3, "the budgets of IST, STAR and Synth, up to 8 / 3"), (40 / 3, "those of IHDP and Lalonde, up to 40 / 3")):
        delta = DELTA / 3
        need = exact_delta(share / math.sqrt(2 * math.log(1.25 / delta)), share) / delta
        row("003", "gaussian_noise_is_private", words, f"needs {need:.2g} times its delta", need <= 1, 1, plain=share > 3)
    for delta, words in ((DELTA, "the whole of delta for S"), (DELTA / 3, "a third of delta for S")):
        sigma = math.sqrt(2 * math.log(1.25 / delta)) / (2 * math.log(2 / delta))
        row("003", "released_square", words, f"the square is {math.exp(sigma**2):.3f} times too large for every epsilon", False, 1)
    printed, centred = [], []
    for _ in range(tries // 20):
        x, a, b = rng.integers(0, 100, 10_000), rng.uniform(-1, 1), rng.uniform(0, 0.4)
        w = (rng.random(10_000) < 1 / (1 + np.exp(-a * (2 * x / 99 - 1)))).astype(int)
        y = b * x / 99 + 0.5 * w + rng.uniform(0, 0.1, 10_000)
        value, uses = exact_matching(x, w, y)
        match = y - np.where(w == 1, 0.5, 0)  # a matched difference is 0.5 and two errors
        true = uses**2 @ np.full(10_000, 0.01 / 12)
        e = match - b * x / 99
        printed.append(uses**2 @ (0.25 + 2 * 0.01 / 12 * np.ones(10_000)) / 2 / true)
        centred.append(uses**2 @ (e - e.mean()) ** 2 / true)
    row("003", "printed_variance", "its expectation on Synth, written out", f"{np.mean(printed):.0f} times the true variance", False, len(printed))
    row("003", "printed_variance", "the effect taken off the matched differences", f"{np.mean(centred):.2f} times", True, len(centred), plain=False)
