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
from dpeffects.evidence.leaderboard.problems import Task, adjusted, unadjusted
from dpeffects.guarantee import KINDS
from dpeffects.plugins import plugins

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
        Arguments of :func:`dp_ate` (``{"method": "auto"}``), or a function ``run(formula,
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

    def release_inconsistency(self, task: Task) -> str:
        """Say why it cannot be run on some data; empty where it can."""
        if self.covariates == "strata" and not task.strata:
            return "needs a few discrete covariates"
        if self.covariates == "needed" and not task.covariates:
            return "needs covariates"
        return ""

    def fit(self, task: Task, data: Any, epsilon: float, seed: int) -> Any:
        """Run once; whatever fails has a reason, and stops nothing else.

        What is the same at every epsilon is asked at 1.
        """
        formula = task.strata if self.covariates == "strata" else task.formula
        price = epsilon if math.isfinite(epsilon) else 1.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if isinstance(self.run, Mapping):
                    return dp_ate(formula, data, **{**self.run, "epsilon": price, "seed": seed})
                return self.run(formula, data, price, seed)
            except DPEffectsError:
                raise
            except Exception as error:
                raise EstimationError(f"{type(error).__name__}: {error}") from error


def _method(name: str, method: str, *, by: str = OURS, **arguments: Any) -> Entry | None:
    """Return an entry for a method, with its capabilities; None where it is not installed."""
    spec = registry().get(method)
    if spec is None:
        return None
    heavy = arguments.pop("heavy", False)
    citation = arguments.pop("citation", spec.citation)
    level = arguments.pop("level", spec.levels[0])
    run: dict[str, Any] = {"method": method, "level": level, **arguments}
    if spec.needs_delta:
        run.setdefault("delta", 1e-5)
    if accept := KINDS[spec.guarantee].accept:
        run[accept] = True
    needed = spec.uses_covariates and spec.needs_covariates
    need = "strata" if spec.needs_strata else "needed" if needed else "any"
    return Entry(name, run, citation, by, spec.guarantee, level, need, heavy)


_GUHA = (
    "Guha and Reiter (2025), Differentially private estimation of weighted average treatment "
    "effects for binary outcomes."
)


def _built_in() -> list[Entry | None]:
    theirs: dict[str, Any] = {"by": BASELINE, "heavy": True}
    plain: dict[str, Any] = {"by": REFERENCE, "guarantee": "none", "level": "none"}
    paper = {"level": "sample", "as_printed": True, "debias": False}
    text = "The same estimator without privacy, for orientation."
    folds = {"folds_g_formula": "regression", "folds_ipw": "ipw", "folds_aipw": "aipw"}
    return [
        _method("diff_in_means", "diff_in_means"),
        _method("auto", "auto"),
        _method("auto_delta", "auto", delta=1e-6),
        _method("regression", "regression"),
        _method("one_step", "one_step"),
        _method("clipped_contrast", "clipped_contrast"),
        _method("private_ipw", "private_ipw"),
        _method("private_psm", "private_psm", level="sample"),
        _method("diff_in_means_label", "diff_in_means", level="label"),
        _method("private_psm_label", "private_psm", level="label"),
        _method("private_ipw_label", "private_ipw", level="label"),
        _method("smooth_matching", "smooth_matching"),
        _method("global_matching", "global_matching"),
        _method("sample_aggregate", "sample_aggregate", heavy=True),
        _method("model_folds", "model_folds", heavy=True),
        _method("private_psm_printed", "private_psm", level="sample", as_printed=True),
        _method("private_psm_paper", "private_psm", by=BASELINE, **paper),
        _method("guha_reiter", "sample_aggregate", estimator="ipw", citation=_GUHA, **theirs),
        *(  # as published: predictions are averaged
            _method(name, "model_folds", estimator=estimator, average="predictions", **theirs)
            for name, estimator in folds.items()
        ),
        _method("dpci", "dpci", **theirs),
        _method("synthetic_aim", "synthetic", generator="aim", **theirs),
        _method("synthetic_mst", "synthetic", generator="mst", **theirs),
        *(
            _method(f"dp_ebm_{learner}", "dp_ebm", learner=learner, **theirs)
            for learner in ("s", "t", "dr", "r")
        ),
        _method("k_anonymous", "k_anonymous", **theirs),
        Entry("plain_means", unadjusted, text, **plain),
        Entry("plain_aipw", adjusted, text, covariates="needed", **plain),
    ]


@cache
def entries() -> dict[str, Entry]:
    """Return all entries by name: ours, the baselines that are installed, and those of plugins.

    Examples
    --------
    >>> entries()["auto"].guarantee
    'exact'
    """
    listed = {entry.name: entry for entry in _built_in() if entry is not None}
    for _, entry in plugins("dpeffects.bench", Entry):
        listed.setdefault(entry.name, entry)
    return listed
