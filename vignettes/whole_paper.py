"""
A whole paper from one budget
=============================

An applied paper has a Table 1, a primary and several secondary outcomes, subgroups, and perhaps an
instrument or a comparison before and after. This page releases all of it with one budget. You will
learn

- how to declare a study once, plan its widths, and release it with ``dp_study``;
- how to read the results for a family of outcomes, subgroups and Table 1;
- how several hospitals run the same protocol and put their releases together;
- how to keep moments, and run regressions on them later;
- how to use an instrument (``dp_late``), and how to compare changes (``dp_did``).

All people below are made up, and seeds make the page the same each time. A seed makes a release not
private: never use one on data that matter.
"""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import dpeffects as dpe

pd.options.display.width = 100
SHOWN = ["term", "estimate", "conf_low", "conf_high", "p_value"]

# %%
# A trial with several outcomes
# -----------------------------
# The drug lowers pain and days in hospital, and people fall a little more often.
rng = np.random.default_rng(1)
n, drug, age = 20_000, rng.integers(0, 2, 20_000), rng.uniform(18, 90, 20_000)
people = pd.DataFrame({"drug": drug, "age": age, "sex": rng.choice(["f", "m"], n)})
people["pain"] = np.clip(rng.normal(5 - 0.4 * drug, 2), 0, 10)
people["days"] = np.clip(rng.gamma(2, 3 - 0.3 * drug), 0, 60)
people["fell"] = (rng.random(n) < 0.08 + age / 1000 + 0.02 * drug).astype(int)
known = {"age": (18, 90), "sex": ["f", "m"], "pain": (0, 10), "days": (0, 60), "fell": [0, 1]}

# %%
# Everything is declared once: outcomes, treatment, baseline variables, subgroups. The plan needs no
# data. It says how wide every interval will be, and what goes where.
asked = {"subgroups": ["sex", "cut(age, [18, 65, 90])"], "bounds": known, "design": "randomised"}
formula = "pain + days + fell ~ drug | age + sex"
expected = {"outcome_sd": {"pain": 2, "days": 4}, "outcome_mean": {"fell": 0.14}}
plan = dpe.plan_study(formula, n=n, **asked, **expected, epsilon=1)
print(plan.tidy().head(3).round(3).to_string(index=False))

# %%
# One call releases the study. Intervals hold for all three outcomes at once.
paper = dpe.dp_study(formula, people, **asked, epsilon=1, seed=1)
print(paper.tidy()[SHOWN].round(4).to_string(index=False))

# %%
# The summary has everything that goes into a paper: results, subgroups with a test of interaction,
# Table 1, the budget. ``paper.table()`` is the table of results for the manuscript and
# ``paper.table("table1")`` Table 1; each has ``as_docx("table.docx")``, ``as_latex()`` and
# ``as_html()``. ``paper.report("paper.docx")`` writes the release record for a review board.
print(paper.summary())

# %%
# Outcomes have different units. The forest plot divides them by their standard deviations, which
# were released too.
paper.plot()

# %%
# Each outcome is a result like that of :func:`dp_ate`: on another scale, or tested on one side.
print(paper.effect_on("fell").effect("ratio"))
print(paper.effect_on("pain").test(alternative="less").conclusion)

# %%
# Subgroups add up to the whole, whatever the noise was:
print(paper.by("sex").tidy()[SHOWN].round(3).to_string(index=False))

# %%
# Many outcomes
# -------------
# A record moves all columns at once, and noise that has the shape of this move is small. Twenty
# outcomes from one call, against twenty calls with a twentieth of epsilon each:
many = people.assign(**{f"y{j}": rng.normal(5, 1.5, n).clip(0, 10) for j in range(20)})
ranges = known | {f"y{j}": (0, 10) for j in range(20)}
names = " + ".join(f"y{j}" for j in range(20))
once = dpe.dp_study(f"{names} ~ drug", many, bounds=ranges, epsilon=1, design="randomised", seed=2)
alone = dpe.dp_ate("y0 ~ drug", many, bounds=ranges, epsilon=1 / 20, design="randomised", seed=2)
print(f"noise sd in one study {once.tidy()['noise_sd'][0]:.4f}")
print(f"noise sd in one of twenty calls {alone.released.noise_variance**0.5:.4f}")

# %%
# The same protocol at several hospitals
# --------------------------------------
# A protocol is a file: it says what is released, and its fingerprint is in every release. Hospitals
# run it on their own records, by a call, by ``dpeffects study --protocol``, or as nodes of a
# federation, and send a signed file.
protocol = dpe.Protocol(
    formula=formula, subgroups="sex", bounds=known, epsilon=1, design="randomised"
)
print(protocol.to_toml())

# %%
sites = [
    dpe.study_release(protocol, people[k::2], site=name, seed=3 + k)
    for k, name in enumerate(("North", "South"))
]
together = dpe.combine_studies(sites, protocol=protocol)
print(together.tidy()[SHOWN].round(4).to_string(index=False))

# %%
# Outcomes that come later
# ------------------------
# ``allot`` keeps a part of a ledger for later: no other call can spend it.
ledger = dpe.Ledger(epsilon=2)
secondary = ledger.allot("secondary", 0.25)
dpe.dp_study(formula, people, **asked, epsilon=1.5, seed=4, ledger=ledger)
later = dpe.dp_ate(
    "days ~ drug", people, bounds=known, epsilon=0.5, design="randomised", seed=5, ledger=secondary
)
print(later.estimate, ledger)

# %%
# Regressions from moments
# ------------------------
# One noisy matrix of products gives any linear analysis of its columns. Standard errors have the
# noise in them, and ``precision`` says from which number of records on noise is no more than half
# of the sampling error.
kept = dpe.dp_moments(
    "pain ~ drug | age + sex",
    people,
    bounds=known,
    subgroups="sex",
    epsilon=2,
    design="randomised",
    seed=6,
)
print(kept.regression("pain ~ drug + age").tidy().round(4).to_string(index=False))
print(kept.precision)

# %%
# An instrument
# -------------
# A letter is sent by lot, and 40 % go to the course because of it. Those who would not go anyway
# say nothing about its effect; the estimate is for the others.
letter = rng.integers(0, 2, n)
goes = letter * (rng.random(n) < 0.4)
visits = pd.DataFrame({"letter": letter, "goes": goes, "score": rng.normal(50 + 4 * goes, 10)})
late = dpe.dp_late(
    "score ~ goes",
    visits,
    instrument="letter",
    bounds={"score": (0, 100)},
    design="randomised",
    epsilon=1,
    seed=7,
)
print(late.tidy()[SHOWN].round(3).to_string(index=False))

# %%
# Before and after
# ----------------
# A law changes in half of the regions in 2021. Each person has a row a year; everything about a
# person is protected. Before 2021 there should be no effect.
years, units = [2018, 2019, 2020, 2021, 2022], 5_000
law = np.repeat(rng.integers(0, 2, units), 5)
year, person = np.tile(years, units), np.repeat(np.arange(units), 5)
level = np.repeat(rng.normal(50, 8, units), 5)
score = level + 0.5 * (year - 2018) + 3 * law * (year >= 2021) + rng.normal(0, 4, 5 * units)
panel = pd.DataFrame({"id": person, "year": year, "law": law, "score": score.clip(0, 100)})
event = dpe.dp_did(
    "score ~ law",
    panel,
    time="year",
    unit="id",
    periods=years,
    start=2021,
    bounds={"score": (0, 100)},
    epsilon=2,
    seed=8,
)
print(event.tidy()[SHOWN].round(3).to_string(index=False))
event.plot()
plt.show()
