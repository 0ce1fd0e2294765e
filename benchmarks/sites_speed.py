"""Time to read and to combine what many sites send: documents in memory, and files.

python benchmarks/sites_speed.py            # up to 100,000 sites
python benchmarks/sites_speed.py --small    # up to 1,000
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from report import save

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


def effects(most: int) -> Iterator[dict[str, Any]]:
    """Releases of one effect."""
    for kind, counts in KINDS.items():
        for count in (x for x in counts if x <= most):
            texts = documents(kind, count)
            SiteRelease.from_json(texts[0])
            reading = seconds(lambda texts=texts: [SiteRelease.from_json(t) for t in texts], 1)
            sites = [SiteRelease.from_json(text) for text in texts]
            row = {"a release has": kind, "sites": count, "bytes": len(texts[0])}
            whole = from_files(texts, _interval)
            row |= {"files, in all": whole, "reading": reading}
            for rule in RULES:
                call = partial(_interval, sites, rule)
                row[rule] = seconds(call, 1 if count == most else 3)
            yield row


def _interval(sites: Any, rule: str = "ivw") -> Any:
    return combine(sites, rule).conf_int()


def studies_and_tables() -> Iterator[dict[str, Any]]:
    """Releases of studies with a subgroup, and tables of survival by arm."""
    rng = np.random.default_rng(0)
    groups = ("cut(x, [0, 0.5, 1])",)
    protocol = dpe.Protocol("y ~ t | x", epsilon=1, subgroups=groups, bounds=BOUNDS)
    sent = dpe.study_release(protocol, records(5000, rng), site="first")
    sums = sent.sums
    texts = []
    for j in range(1000):
        whole = replace(sums.whole, sums=sums.whole.sums + rng.normal(size=sums.whole.sums.shape))
        own = replace(sums, whole=whole)
        texts.append(replace(sent, site=f"site {j}", sums=own).to_json())
    for count in (10, 100, 1000):
        some = texts[:count]
        reading = seconds(lambda some=some: [StudyRelease.from_json(text) for text in some], 1)
        read = [StudyRelease.from_json(text) for text in some]
        yield {
            "what is combined": "studies",
            "sites": count,
            "bytes": len(some[0]),
            "files, in all": from_files(some, combine_studies),
            "reading": reading,
            "combining": seconds(lambda read=read: combine_studies(read)),
        }
    times = pd.DataFrame({"t": [0, 1] * 500, "time": range(1000), "died": [1, 1, 0, 1] * 250})
    asked = {"horizon": 365, "epsilon": 1, "design": "randomised"}
    fit = dpe.dp_survival("Surv(time, died) ~ t", times, **asked)
    for count in (10, 30):
        tables = [replace(fit.arm_table, counts=fit.arm_table.counts + j) for j in range(count)]
        sites = {f"site {j}": replace(fit, arm_table=table) for j, table in enumerate(tables)}
        some = [site.to_json() for site in sites.values()]
        whole = from_files(some, lambda paths: combine_tables({path.stem: path for path in paths}))
        reading = seconds(lambda some=some: [type(fit).from_json(text) for text in some], 1)
        yield {
            "what is combined": "tables",
            "sites": count,
            "bytes": len(some[0]),
            "files, in all": whole,
            "reading": reading,
            "combining": seconds(lambda sites=sites: combine_tables(sites)),
        }


def shown(row: dict[str, Any]) -> dict[str, Any]:
    return {k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()}


def main() -> None:
    tables = {
        "One effect": effects(1000 if "--small" in sys.argv else 100_000),
        "Studies and tables": studies_and_tables(),
    }
    frames = {}
    for title, rows in tables.items():
        made = []
        for row in rows:
            made.append(shown(row))
            print(made[-1], flush=True)
        frames[title] = pd.DataFrame(made)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    notes = (
        "Seconds of processor time: to read the files of all sites, check and combine them, with "
        "the interval (the bar is 20 s for 100,000 releases of one effect); to read and check all "
        "documents from memory; then to combine what was read, for each rule with the interval. "
        "A release is an effect and its error alone, or has means by arm, as "
        "difference in means sends them, or all parts of the error too, as the default does. "
        "What releases have in common is checked once; numbers of their own take the rest: about "
        "a third each to parse them, to check them, and to write them again for the checksum. "
        "A table is shown once when its file is read, as every result is, which takes nearly all "
        "of its time. "
        f"Peak memory {peak:.1f} GiB with all documents held. Load of the machine while this ran: "
        f"{os.getloadavg()[0]:.0f} processes on {os.cpu_count()} cores."
    )
    save("sites_speed", "Combining many sites", frames, notes)


if __name__ == "__main__":
    main()
