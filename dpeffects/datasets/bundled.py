"""Data sets that come with the package, with bounds declared from what each variable means.

No bound is the smallest or largest value of its column: a bound read off the data would tell
something about the data. Each is a round figure with its reason beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpeffects.datasets.files import read_bundled
from dpeffects.datasets.info import INDICATOR, DataInfo, Dataset, Entries
from dpeffects.design.bounds import Declared, declare

if TYPE_CHECKING:
    import pandas as pd

# --- Lalonde ----------------------------------------------------------------------------------

LALONDE_BOUNDS: Entries = {
    "treatment": INDICATOR,
    "age": (16, 65),  # working age
    "education": (0, 20),  # years, none to a doctorate
    "black": INDICATOR,
    "hispanic": INDICATOR,
    "married": INDICATOR,
    "no_degree": INDICATOR,
    # About twice the median of men in full-time work, 21,000 in the 1982 dollars of the file.
    "earnings_1974": (0, 40_000),
    "earnings_1975": (0, 40_000),
    "earnings_1978": (0, 40_000),
}

LALONDE_COVARIATES = (
    "age",
    "education",
    "black",
    "hispanic",
    "married",
    "no_degree",
    "earnings_1974",
    "earnings_1975",
)

EARNINGS_NOTE = (
    "Earnings are in 1982 dollars and declared to lie in 0 to 40,000, about twice the median of "
    "men in full-time work; what is above is clipped."
)

LALONDE_CITATION = (
    "LaLonde (1986), Evaluating the econometric evaluations of training programs with "
    "experimental data, American Economic Review 76(4), 604-620; Dehejia and Wahba (1999), Causal "
    "effects in nonexperimental studies, Journal of the American Statistical Association 94(448), "
    "1053-1062."
)


def _lalonde() -> Declared:
    return declare(read_bundled("lalonde_nsw_dw.csv"), LALONDE_BOUNDS)


def _lalonde_cps() -> Declared:
    import pandas as pd

    trial = read_bundled("lalonde_nsw_dw.csv")
    survey = read_bundled("lalonde_cps_controls.csv.gz")
    frame = pd.concat([trial[trial["treatment"] == 1], survey], ignore_index=True)
    return declare(frame, LALONDE_BOUNDS)


_LALONDE_INFO = DataInfo(
    name="lalonde",
    title="Job training and earnings: the NSW trial, Dehejia-Wahba sample",
    kind="bundled",
    rows=445,
    outcome="earnings_1978",
    treatment="treatment",
    covariates=LALONDE_COVARIATES,
    description=(
        "185 men offered the training of the National Supported Work programme and 260 randomised "
        "controls. The difference in mean earnings is 1,794 dollars. "
        + EARNINGS_NOTE
        + " One of the 445 outcomes is above (60,308, treated), so the clipped difference in means "
        "is 1,685."
    ),
    source="PyPI causaldata 0.1.5, nsw_mixtape",
    licence="MIT",
    citation=LALONDE_CITATION,
)

_LALONDE_CPS_INFO = DataInfo(
    name="lalonde_cps",
    title="Job training and earnings: NSW treated against survey controls",
    kind="bundled",
    rows=16_177,
    outcome="earnings_1978",
    treatment="treatment",
    covariates=LALONDE_COVARIATES,
    description=(
        "The 185 treated of the NSW trial with 15,992 men of the Current Population Survey in "
        "place of the randomised controls: the classic test of an observational method. The "
        "difference in mean earnings is -8,498 dollars, while the trial says about +1,794; few "
        "survey men resemble the treated, so the effect on the treated is the sensible question. "
        + EARNINGS_NOTE
        + " Survey earnings were cut at about 25,565 dollars by its producers."
    ),
    source="PyPI causaldata 0.1.5, nsw_mixtape and cps_mixtape",
    licence="MIT",
    citation=LALONDE_CITATION,
)

# --- Birth weight -----------------------------------------------------------------------------

BIRTHWEIGHT_BOUNDS: Entries = {
    "treatment": INDICATOR,
    "outcome": (500, 5_000),  # grams: births are registered from 500; above 5,000 is extreme
    "married": INDICATOR,
    "first_baby": INDICATOR,
    "prenatal_first_trimester": INDICATOR,
    "mage": (12, 50),  # the childbearing years
    "medu": (0, 17),  # the birth certificate's code; 17 is five years of college or more
    "fage": (0, 60),  # 0 where no father is reported
    "fedu": (0, 17),  # as medu
    "mhisp": INDICATOR,
    "fhisp": INDICATOR,
    "mrace": INDICATOR,
    "frace": INDICATOR,
    "foreign": INDICATOR,
    "alcohol": INDICATOR,
    "deadkids": INDICATOR,
    "nprenatal": (0, 40),  # at most a visit in every week of pregnancy
    "monthslb": (0, 240),  # twenty years; 0 for a first birth
    "order": (0, 10),  # ten births
    "birthmonth": (1, 12),
    "lbweight": INDICATOR,
}


def _birthweight() -> Declared:
    return declare(read_bundled("birthweight_smoking.csv"), BIRTHWEIGHT_BOUNDS)


_BIRTHWEIGHT_INFO = DataInfo(
    name="birthweight",
    title="Smoking in pregnancy and birth weight",
    kind="bundled",
    rows=4_642,
    outcome="outcome",
    treatment="treatment",
    covariates=("prenatal_first_trimester", "married", "mage", "first_baby", "medu"),
    description=(
        "Singleton births in Pennsylvania, 1989 to 1991; 864 of 4,642 mothers smoked. Outcome: "
        "birth weight in grams, declared to lie in 500 (the weight from which births are "
        "registered) to 5,000 (extreme macrosomia); 13 of 4,642 are outside and are clipped. The "
        "covariates are those of the Stata manual's examples, where regression adjustment (without "
        "medu) gives -239.6 grams; 13 more columns are in the frame. fage is 0 where no father is "
        "reported (294 rows). lbweight is made from the outcome: never adjust for it."
    ),
    source="PyPI statsmodels 0.15.0, treatment/tests/results/cataneo2.csv",
    licence="BSD-3-Clause",
    citation=(
        "Cattaneo (2010), Efficient semiparametric estimation of multi-valued treatment effects "
        "under ignorability, Journal of Econometrics 155(2), 138-154."
    ),
)

# --- International Stroke Trial ---------------------------------------------------------------

_IST_EVENTS = {1: (161, 9_705), 0: (252, 9_703)}
"""Treatment arm -> (recurrent ischaemic strokes within 14 days, patients)."""


def _ist() -> Declared:
    import pandas as pd

    arms: list[pd.DataFrame] = []
    for arm, (events, patients) in _IST_EVENTS.items():
        stroke = [1] * events + [0] * (patients - events)
        arms.append(pd.DataFrame({"treatment": arm, "stroke_14_days": stroke}))
    frame = pd.concat(arms, ignore_index=True)
    return declare(frame, treatment=INDICATOR, stroke_14_days=INDICATOR)


_IST_INFO = DataInfo(
    name="ist",
    title="Aspirin and recurrent stroke: the International Stroke Trial",
    kind="bundled",
    rows=19_408,
    outcome="stroke_14_days",
    treatment="treatment",
    covariates=(),
    description=(
        "Rebuilt from the published table: recurrent ischaemic stroke within 14 days in 161 of "
        "9,705 patients given aspirin (1.66 %) and 252 of 9,703 without (2.60 %). The rows carry "
        "treatment and outcome only, in sorted order."
    ),
    source="published 2 x 2 table; patient data at doi 10.7488/ds/104",
    licence="ODC-By 1.0",
    citation=(
        "International Stroke Trial Collaborative Group (1997), Lancet 349, 1569-1581; Sandercock, "
        "Niewada and Czlonkowska (2011), The International Stroke Trial database, Trials 12, 101."
    ),
)

DATASETS = (
    Dataset(_LALONDE_INFO, _lalonde),
    Dataset(_LALONDE_CPS_INFO, _lalonde_cps),
    Dataset(_BIRTHWEIGHT_INFO, _birthweight),
    Dataset(_IST_INFO, _ist),
)
