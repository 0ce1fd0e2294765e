"""The entries of the leaderboard: what is run, who it is by, and what it promises.

Other packages add theirs by an entry point of the group "dpeffects.bench" that names an `Entry`::

    [project.entry-points."dpeffects.bench"]
    mine = "my_package.bench:ENTRY"
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dpeffects.effects import dp_ate
from dpeffects.errors import DPEffectsError, EstimationError, OptionError
from dpeffects.estimators import registry
from dpeffects.leaderboard.memory import growth
from dpeffects.leaderboard.tasks import Task
from dpeffects.nonprivate import reference
from dpeffects.plugins import plugins
from dpeffects.privacy.guarantee import KINDS

OURS, BASELINE, REFERENCE = "dpeffects", "baseline", "reference"
LEVELS = ("sample", "label", "none")
COVARIATES = ("any", "needed", "strata")


@dataclass(frozen=True)
class Entry:
    """One entry of the leaderboard.

    Parameters
    ----------
    name
        Its name, without blanks.
    run
        Arguments of :func:`dp_ate` (``{"method": "private_aipw"}``), or a function ``run(formula,
        data, epsilon, seed)`` that returns a result with ``tidy(conf_level)``, or just a number.
        The data is a frame with bounds attached.
    citation
        What to cite.
    by
        Who it is by: "dpeffects", "baseline", "reference" (not private, for orientation), or the
        name of a package.
    guarantee
        "exact" (proved), "asymptotic", "library" (proved by the authors of the code that draws the
        noise) or "none". Those with none are run once, not for each epsilon.
    level
        "sample", "label", or "none".
    covariates
        "any" (works with and without), "needed", or "strata" (few, discrete).
    heavy
        Whether a run takes seconds; each gets a batch of its own.

    Examples
    --------
    >>> Entry("always_zero", lambda formula, data, epsilon, seed: 0.0, "nobody").by
    'other'
    """

    name: str
    run: Mapping[str, Any] | Callable[[str, Any, float, int], Any]
    citation: str
    by: str = "other"
    guarantee: str = "exact"
    level: str = "sample"
    covariates: str = "any"
    heavy: bool = False

    def __post_init__(self) -> None:
        one_of = {"guarantee": tuple(KINDS), "level": LEVELS, "covariates": COVARIATES}
        for name, known in one_of.items():
            if getattr(self, name) not in known:
                raise OptionError(f"entry {self.name!r}: {name} must be one of {', '.join(known)}")
        if not self.name or self.name.split() != [self.name]:
            raise OptionError(f"the name of an entry has no blanks, got {self.name!r}")

    def why_not(self, task: Task) -> str:
        """Say why it cannot be run on some data; empty where it can."""
        if self.covariates == "strata" and not task.strata:
            return "needs a few discrete covariates"
        if self.covariates == "needed" and not task.covariates:
            return "needs covariates"
        return ""


@dataclass(frozen=True)
class Bound:
    """An entry on some data, as a study runs it. Whatever fails has a reason, and stops nothing.

    ``memory`` takes what each call adds to the peak of the process, in MiB.
    """

    entry: Entry
    task: Task
    memory: list[float]

    def __call__(self, data: Any, epsilon: float, seed: int) -> Any:
        """Run once; what is the same at every epsilon is asked at 1."""
        given, strata = self.entry.run, self.entry.covariates == "strata"
        formula = self.task.strata if strata else self.task.formula
        price = epsilon if math.isfinite(epsilon) else 1.0
        with warnings.catch_warnings(), growth(self.memory):
            warnings.simplefilter("ignore")
            try:
                if isinstance(given, Mapping):
                    return dp_ate(formula, data, **{**given, "epsilon": price, "seed": seed})
                return given(formula, data, price, seed)
            except DPEffectsError:
                raise
            except Exception as error:
                raise EstimationError(f"{type(error).__name__}: {error}") from error


def _method(name: str, method: str, *, by: str = OURS, **given: Any) -> Entry | None:
    """Return an entry for a method, with its capabilities; None where it is not installed."""
    spec = registry().get(method)
    if spec is None:
        return None
    shown = {key: given.pop(key) for key in ("heavy", "citation", "level") if key in given}
    level = shown.setdefault("level", spec.levels[0])
    run: dict[str, Any] = {"method": method, "level": level, **given}
    if spec.needs_delta:
        run.setdefault("delta", 1e-5)
    if accept := KINDS[spec.guarantee].accept:
        run[accept] = True
    need = "strata" if spec.needs_strata else "needed" if spec.uses_covariates else "any"
    facts: dict[str, Any] = {
        "citation": spec.citation,
        "guarantee": spec.guarantee,
        "covariates": need,
    }
    return Entry(name, run, by=by, **(facts | shown))


def _means(formula: str, data: Any, epsilon: float, seed: int) -> float:
    return reference(formula, data, "diff_in_means").estimate


def _adjusted(formula: str, data: Any, epsilon: float, seed: int) -> float:
    """AIPW with light ridge models, which a level without rows in a sample does not stop."""
    return reference(formula, data, "sample_aggregate").estimate


_GUHA = (
    "Guha and Reiter (2025), Differentially private estimation of weighted average treatment "
    "effects for binary outcomes."
)


_FOLDS = {"folds_g_formula": "regression", "folds_ipw": "ipw", "folds_aipw": "aipw"}


def _folds(name: str, estimator: str) -> Entry | None:
    """As published: predictions are averaged."""
    given = {"estimator": estimator, "average": "predictions"}
    return _method(name, "model_folds", by=BASELINE, heavy=True, **given)


def _built_in() -> list[Entry | None]:
    plain: dict[str, Any] = {"by": REFERENCE, "guarantee": "none", "level": "none"}
    text = "The same estimator without privacy, for orientation."
    return [
        _method("diff_in_means", "diff_in_means"),
        _method("private_aipw", "private_aipw"),
        _method("private_ipw", "private_ipw"),
        _method("private_psm", "private_psm", level="sample"),
        _method("diff_in_means_label", "diff_in_means", level="label"),
        _method("private_psm_label", "private_psm", level="label"),
        _method("private_ipw_label", "private_ipw", level="label"),
        _method("smooth_matching", "smooth_matching"),
        _method("global_matching", "global_matching"),
        _method("sample_aggregate", "sample_aggregate", heavy=True),
        _method("model_folds", "model_folds", heavy=True),
        _method("private_psm_paper", "private_psm", by=BASELINE, level="sample", debias=False),
        _method(
            "guha_reiter",
            "sample_aggregate",
            by=BASELINE,
            estimator="ipw",
            heavy=True,
            citation=_GUHA,
        ),
        *(_folds(name, estimator) for name, estimator in _FOLDS.items()),
        _method("dpci", "dpci", by=BASELINE, heavy=True),
        _method("synthetic_aim", "synthetic", by=BASELINE, generator="aim", heavy=True),
        _method("synthetic_mst", "synthetic", by=BASELINE, generator="mst", heavy=True),
        *(
            _method(f"dp_ebm_{learner}", "dp_ebm", by=BASELINE, learner=learner, heavy=True)
            for learner in ("s", "t", "dr", "r")
        ),
        _method("k_anonymous", "k_anonymous", by=BASELINE, heavy=True),
        Entry("plain_means", _means, text, **plain),
        Entry("plain_aipw", _adjusted, text, covariates="needed", **plain),
    ]


@cache
def entries() -> dict[str, Entry]:
    """Return all entries by name: ours, the baselines that are installed, and those of plugins.

    Examples
    --------
    >>> entries()["private_aipw"].guarantee
    'exact'
    """
    made = {entry.name: entry for entry in _built_in() if entry is not None}
    for _, entry in plugins("dpeffects.bench", Entry):
        made.setdefault(entry.name, entry)
    return made
