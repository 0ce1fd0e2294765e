"""Time to read and to combine what many sites send: documents in memory, and files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import Part, Table, grid

import dpeffects as dpe
from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.privacy.charges import Charge
from dpeffects.services.sites import (
    SiteRelease,
    StudyRelease,
    combine,
    combine_studies,
    combine_tables,
)

RULES = ("mvagg", "ivw", "all", "largest", "random")
BOUNDS = {"y": (0, 1), "x": (0, 1)}
KINDS = {
    "an effect alone": (10, 1000, 100_000),
    "difference in means": (1000, 10_000),
    "the default": (1000, 10_000),
}
"""What is in a release, and how many are read: the estimate and its error; with means by arm, as
difference in means sends them; with all parts of the error too, as the default does."""


def documents(kind: str, count: int) -> list[str]:
    """Releases at epsilon = 1, in JSON."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1000, 10_000, count).tolist()
    if kind == "an effect alone":
        return [alone(f"site {j}", n, rng).to_json() for j, n in enumerate(sizes)]
    method = "diff_in_means" if kind == "difference in means" else "auto"
    sent = dpe.site_release(
        "y ~ t | x" if method == "auto" else "y ~ t",
        records(5000, rng),
        site="first",
        method=method,
        epsilon=1,
        bounds=BOUNDS,
    )
    return [varied(sent, f"site {j}", n, rng).to_json() for j, n in enumerate(sizes)]


def records(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Records of one site."""
    x = rng.random(n)
    t = (rng.random(n) < 0.3 + 0.4 * x).astype(int)
    return pd.DataFrame({"y": 0.3 * x + 0.1 * t + 0.4 * rng.random(n), "t": t, "x": x})


def alone(site: str, n: int, rng: np.random.Generator) -> SiteRelease:
    """An effect and its error."""
    variance, scale = 0.36 / n, 3.6 / n
    noise = 75 / n * variance
    sampling = SamplingVariance(variance + noise * rng.laplace(), noise, 1 / n)
    value = 0.1 + rng.normal() * variance**0.5 + scale * (rng.laplace() + rng.laplace())
    return SiteRelease(
        site=site,
        released=Estimate(value, sampling, (scale, scale, scale / 3)),
        estimand="ATE",
        formula="y ~ t | age_group + sex",
        outcome="y",
        treatment="t",
        method="diff_in_means",
        level="sample",
        n=n,
        guarantee=Guarantee(1.0),
        charges=tuple(
            Charge(label, label, 1 / 3, 0.0, "discrete Laplace", (1.0,), (3.0,), 7)
            for label in ("counts", "estimate", "variance")
        ),
        bounds=(("y", "[0, 1]", "declared"),),
    )


def varied(sent: SiteRelease, site: str, n: int, rng: np.random.Generator) -> SiteRelease:
    """What another site might send: no number of its estimate is the same."""
    shift, times = 0.01 * float(rng.normal()), float(rng.uniform(1.0, 2.0))
    told, means = sent.released, sent.released.means
    made = replace(
        told,
        value=told.value + shift,
        sampling=scaled(told.sampling, times),
        laplace=tuple(times * scale for scale in told.laplace),
        parts=tuple(replace(part, variance=times * part.variance) for part in told.parts),
        means=replace(
            means,
            treated=means.treated + shift,
            sampling=tuple(replace(x, variance=scaled(x.variance, times)) for x in means.sampling),
            laplace=tuple((times * a, times * b) for a, b in means.laplace),
        ),
    )
    return replace(sent, site=site, n=n, released=made)


def scaled(sampling: Any, times: float) -> SamplingVariance:
    return SamplingVariance(times * sampling.value, times * sampling.noise_scale, sampling.largest)


def seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def from_files(texts: list[str], combined: Callable[[list[Path]], Any]) -> float:
    """Seconds to combine the files of all sites: what a centre waits for."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{j}.json" for j in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return seconds(lambda: combined(paths), 1)


def effects(people: int, noise: int, kind: str, sites: int):
    """Releases of one effect."""
    texts = documents(kind, sites)
    SiteRelease.from_json(texts[0])
    reading = seconds(lambda: [SiteRelease.from_json(text) for text in texts], 1)
    read = [SiteRelease.from_json(text) for text in texts]
    row = {"bytes": len(texts[0]), "files, in all": from_files(texts, _interval)}
    row |= {"reading": reading}
    return row | {rule: seconds(partial(_interval, read, rule), 1) for rule in RULES}


def _interval(sites: Any, rule: str = "ivw") -> Any:
    return combine(sites, rule).conf_int()


def studies(people: int, noise: int, sites: int):
    """Releases of studies with a subgroup."""
    rng, groups = np.random.default_rng(0), ("cut(x, [0, 0.5, 1])",)
    protocol = dpe.Protocol("y ~ t | x", epsilon=1, subgroups=groups, bounds=BOUNDS)
    sent = dpe.study_release(protocol, records(5000, rng), site="first")
    sums, texts = sent.sums, []
    for j in range(sites):
        whole = replace(
            sums.whole, sums=sums.whole.sums + 0.001 * rng.normal(size=sums.whole.sums.shape)
        )
        own = replace(sums, whole=whole)
        texts.append(replace(sent, site=f"site {j}", sums=own).to_json())
    reading = seconds(lambda: [StudyRelease.from_json(text) for text in texts], 1)
    read = [StudyRelease.from_json(text) for text in texts]
    row = {"bytes": len(texts[0]), "files, in all": from_files(texts, combine_studies)}
    return row | {"reading": reading, "combining": seconds(lambda: combine_studies(read))}


def tables(people: int, noise: int, sites: int):
    """Tables of survival by arm."""
    times = pd.DataFrame({"t": [0, 1] * 500, "time": range(1000), "died": [1, 1, 0, 1] * 250})
    asked = {"horizon": 365, "epsilon": 1, "design": "randomised"}
    fit = dpe.dp_survival("Surv(time, died) ~ t", times, **asked)
    counts, made = fit.arm_table.counts, []
    for j in range(sites):
        own = np.round(counts * (1 - j / 999))
        np.put(own, range(7), own.ravel()[:7] + np.unravel_index(j, (7,) * 7))  # none like another
        made.append(replace(fit.arm_table, counts=own))
    by_name = {f"site {j}": replace(fit, arm_table=table) for j, table in enumerate(made)}
    texts = [site.to_json() for site in by_name.values()]
    whole = from_files(texts, lambda paths: combine_tables({path.stem: path for path in paths}))
    reading = seconds(lambda: [type(fit).from_json(text) for text in texts], 1)
    row = {"bytes": len(texts[0]), "files, in all": whole, "reading": reading}
    return row | {"combining": seconds(lambda: combine_tables(by_name))}


TABLE = Table(
    "Combining many sites",
    (
        Part(
            "One effect",
            [cell for kind, counts in KINDS.items() for cell in grid(kind=[kind], sites=counts)],
            effects,
        ),
        Part("Studies", grid(sites=(10, 100, 1000)), studies),
        Part("Tables", grid(sites=(10, 30)), tables, small=grid(sites=[2])),
    ),
    "Seconds of processor time: to read the files of all sites, check and combine them, with "
    "the interval (the bar is 20 s for 100,000 releases of one effect); to read and check all "
    "documents from memory; then to combine what was read, for each rule with the interval. "
    "A release is an effect and its error alone, or has means by arm, as "
    "difference in means sends them, or all parts of the error too, as the default does. "
    "What releases have in common is checked once; numbers of their own take the rest: about "
    "a third each to parse them, to check them, and to write them again for the checksum. "
    "A table is shown once when its file is read, as every result is, which takes nearly all "
    "of its time.",
    page=lambda *made: {
        part.title: rows.round(3) for part, rows in zip(TABLE.parts, made, strict=True)
    },
    alone=True,
    minutes=3,
)
