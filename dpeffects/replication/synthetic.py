"""Synthetic data: private records by AIM or MST, then any estimator without noise.

The covariates, the treatment and the outcome are cut to cells at points that follow from the
declared bounds. A generator chooses a few tables of counts, releases them with Gaussian noise, and
fits a distribution of all columns to them; as many records as the data has are drawn from it. The
estimator then runs on those as if they were data: it costs nothing more.

- "aim": rounds; in each, the table that the present fit gets most wrong is released. It is asked to
  get right the tables of treatment, outcome and one covariate, so that confounding by each can
  survive, and (``workload="pairs"``) the tables of two covariates.
- "mst": all columns by themselves, then the pairs of a tree that holds most dependence. Treatment,
  outcome and a confounder are three columns: a tree has at most two of their three pairs.

Generators and noise are those of dpmm, in its own environment (``dpeffects synthetic-setup``). The
fit to released tables is ours, because the library's takes minutes, and is post-processing.
The library means datasets that differ in the presence of one record; replacing one costs 2.2 times
its rho by AIM and 2.7 times by MST, and that much less is given (unproved/CLAIMS.md).

There is no interval: the error of cells, tables left out and noise together is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.errors import EstimationError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators.option_checks import check_clip, checked, choice, whole
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.replication.block_learner import ESTIMATOR_NAMES, BlockLearner, models_of
from dpeffects.replication.unproved.generators import environment
from dpeffects.replication.unproved.sklearn_models import wrap_models
from dpeffects.replication.unproved.synthetic_release import synthetic_records

_FEW = 30
"""Encoded covariates up to which AIM is asked for their pairs too: beyond, that takes minutes."""
_NO_INTERVAL = Unavailable("the error of synthetic data is not known")


@dataclass(frozen=True)
class SyntheticOptions(Options):
    """Options of synthetic data.

    ``generator``: "aim" or "mst". ``estimator``: "aipw", "ipw" or "regression", on the synthetic
    records. ``outcome``, ``propensity``: scikit-learn models for it, by default light ridge models.
    ``cells``: the most cells of a covariate. ``outcome_cells``: those of the outcome. ``workload``:
    tables that AIM is asked for, "effect" or "pairs"; by default "pairs" up to 30 columns.
    ``clip``: propensities are kept within [clip, 1 - clip].
    """

    generator: str = choice("aim", "mst")
    estimator: str = choice(*ESTIMATOR_NAMES)
    outcome: Any = None
    propensity: Any = None
    cells: int = whole(4, 2, 64)
    outcome_cells: int = whole(8, 2, 64)
    workload: str | None = choice(None, "effect", "pairs")
    clip: float = checked(0.05, check_clip)

    def needs_memory(self) -> str:
        """The library gets all rows."""
        return "the library gets all rows at once"

    def __post_init__(self) -> None:
        super().__post_init__()
        wrap_models(self)

    def resolve(self, facts: PublicInfo) -> SyntheticOptions:
        """Refuse a missing environment, and choose the tables."""
        environment.require()
        few = facts.width <= _FEW
        return replace(self, workload=self.workload or ("pairs" if few else "effect"))

    def learner(self, estimand: str) -> BlockLearner:
        """What is computed from the synthetic records."""
        made = BlockLearner(*models_of(self), self.estimator, estimand, self.clip)
        return replace(made, crossfit=made.flexible)


def budget_split(level: str, options: SyntheticOptions) -> dict[str, float]:
    """Everything goes to the synthetic records."""
    return {"records": 1.0}


def fit(curator: Curator, options: SyntheticOptions, estimand: str) -> Estimate:
    """Release synthetic records and estimate from them."""
    cells = options.cells, options.outcome_cells
    workload = options.workload or "effect"
    found = synthetic_records(curator, options.generator, workload, cells, "records")
    (rows, treated, outcome), measured = found
    try:
        value = float(options.learner(estimand)(rows, treated, outcome)[0])
    except EstimationError:
        raise EstimationError(
            "the synthetic records have one arm only; the budget is spent"
        ) from None
    lower, upper = curator.outcome_range
    return Estimate(
        value=float(np.clip(value, lower - upper, upper - lower)),
        sampling=_NO_INTERVAL,
        gaussian=float("nan"),
        details={
            "synthetic records": len(outcome),
            "treated among them": int(treated.sum()),
            "tables measured": measured,
        },
        notes=(
            f"The outcome is known by {options.outcome_cells} cells or fewer, a covariate by "
            f"{options.cells} or fewer; what happens within cells is lost.",
        ),
    )


SPEC = MethodSpec(
    name="synthetic",
    title="synthetic data",
    about="private synthetic records by AIM or MST (dpmm), then any estimator",
    assumes=f"{NO_CONFOUNDER}; synthetic records preserve the joint distribution of its columns",
    estimands=AVERAGES,
    levels=("sample",),
    options=SyntheticOptions,
    budget_split=budget_split,
    uses_delta=lambda options, facts: dict.fromkeys(budget_split(facts.level, options)),
    fit=fit,
    citation=(
        "McKenna, Mullins, Sheldon and Miklau (2022), AIM: an adaptive and iterative mechanism for "
        "differentially private synthetic data; McKenna, Miklau and Sheldon (2021), Winning the "
        "NIST contest."
    ),
    guarantee="library",
    needs_delta=True,
)
