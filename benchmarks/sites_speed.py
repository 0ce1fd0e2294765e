"""Time to read and to combine the releases of many sites: documents in memory, and files.

python benchmarks/sites_speed.py            # up to 100,000 sites
python benchmarks/sites_speed.py --small    # up to 1,000
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from report import save

from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.privacy.charges import Spend
from dpeffects.sites import SiteRelease, combine

RULES = ("mvagg", "ivw", "all", "largest", "random")


def documents(count: int) -> list[str]:
    """Releases as difference in means makes them at epsilon = 1, in JSON."""
    rng = np.random.default_rng(0)
    return [
        document(f"site {j}", int(n), rng) for j, n in enumerate(rng.integers(100, 10_000, count))
    ]


def document(site: str, n: int, rng) -> str:
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
        spends=tuple(
            Spend(label, label, 1 / 3, 0.0, "Laplace", (1.0,), (3.0,), 7)
            for label in ("counts", "estimate", "variance")
        ),
        bounds=(("y", "[0, 1]", "declared"),),
    ).to_json()


def seconds(call, repeats: int = 3) -> float:
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def from_files(texts: list[str]) -> float:
    """Seconds to combine the files of all sites, with the interval: what a centre waits for."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{j}.json" for j in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return seconds(lambda: combine(paths).conf_int(), 1)


def main() -> None:
    counts = (10, 1000) if "--small" in sys.argv else (10, 1000, 100_000)
    rows = []
    for count in counts:
        texts = documents(count)
        reading = seconds(lambda texts=texts: [SiteRelease.from_json(t) for t in texts], 1)
        sites = [SiteRelease.from_json(text) for text in texts]
        row = {"sites": count, "files, in all": from_files(texts), "reading": reading}
        for rule in RULES:
            row[rule] = seconds(lambda sites=sites, rule=rule: combine(sites, rule).conf_int())
        row["summary"] = seconds(lambda sites=sites: str(combine(sites).summary())) - row["ivw"]
        rows.append({k: v if k == "sites" else f"{v:.3f}" for k, v in row.items()})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    notes = (
        "Seconds of processor time: to read the files of all sites, check and combine them, with "
        "the interval (the bar is 20 s for 100,000); to read and check all documents from memory, "
        "then for each rule to "
        "combine them with the interval (best of three), then to print the summary. "
        f"Peak memory {peak:.1f} GiB with all documents held. Load of the machine while this ran: "
        f"{os.getloadavg()[0]:.0f} processes on {os.cpu_count()} cores."
    )
    save("sites_speed", "Combining many sites", {"": pd.DataFrame(rows)}, notes)


if __name__ == "__main__":
    main()
