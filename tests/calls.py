"""The public calls that are replayed: every method, level and estimand, conditional effects,
balance and sites, with options that lead to other releases."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.estimators import proved, table_methods
from dpeffects.ledgers import open_ledger
from dpeffects.services.gate import Question, answer
from dpeffects.services.gate.answers import result_of
from dpeffects.services.gate.question import CALLS as QUESTIONS
from tests.federation.sites import policy, question
from tests.neighbours import PAIRS, SITES, Pair, pair, places, undefined
from tests.replay import Frozen, Replayed, replay

SPECS = proved()
PLAIN, STRATA = "y ~ t | x1 + x2 + g", "y ~ t | g + cut(x1, [0, 0.5, 1])"
SPLINE = "bs(x2, knots=[0], degree=2, lower_bound=-1, upper_bound=1)"
RICH = f"log(y + 1) ~ t | sqrt(x1) + I(x2**2) + g:x1 + {SPLINE}"
THREE = "y ~ g | x1 + x2 + t"
"""A treatment of three levels."""
AT = {"x1": [0.1, 0.9, 0.5], "x2": [-1.0, 0.0, 1.0], "g": ["a", "b", "c"]}
GROUPS = "g + cut(x1, [0, 0.5, 1])"
ALL = ("y", "x1", "x2", "g", "z")
TABLED = {
    "dp_late": "late",
    "dp_moments": "moments",
    "dp_ordinal": "ordinal_table",
    "dp_qte": "quantile_table",
    "dp_rate": "rate",
    "dp_study": "study",
    "dp_survival": "life_table",
}
"""Methods that have a function of their own."""


@dataclass(frozen=True)
class Call:
    """A public function with its options; ``declared`` are the columns whose bounds are given."""

    function: str
    method: str = ""
    formula: str = ""
    n: int = 60
    declared: tuple[str, ...] = ALL
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def public(self) -> frozenset[str]:
        """What neighbours have in common."""
        function = str(self.given.get("call", self.function))
        spec = table_methods().get(TABLED.get(function, "")) or SPECS.get(self.method)
        if spec is None or function in ("dp_cate", "dp_balance"):
            return frozenset()
        options = {k: v for k, v in self.given.items() if k == "arms"}
        return spec.make_options(options).public(spec.check_level(self.given.get("level")))

    @property
    def estimand(self) -> str:
        """What is estimated."""
        return str(self.given.get("estimand", self.function.removeprefix("dp_").upper()))

    def text(self, pair: Pair) -> str:
        """The formula, as the pair needs it."""
        needs_strata = self.method in SPECS and SPECS[self.method].needs_strata
        left, right = (self.formula or (STRATA if needs_strata else PLAIN)).split(" ~ ")
        term = f"cut({pair.term}, [0, 0.5, 1])" if needs_strata and pair.term else pair.term
        return f"{pair.outcome or left} ~ {right}" + (f" + {term}" if term else "")

    def run(self, data: Any, noise: Frozen, pair: Pair, word: str = "complete") -> Any:
        """Call the function; where the pair has missing values, with a word for them."""
        given = {"epsilon": 1.0, **self.given, "ledger": noise.ledger(), "seed": noise}
        given["bounds"] = {c: b for c, b in pair.bounds.items() if c in (*self.declared, "d", "t")}
        if self.method:
            given["method"] = self.method
        if pair.missing and self.function != "dp_randomisation_test":
            given.setdefault("missing", word)
        if self.function in ("site_release", "study_release"):
            given["site"] = "north"
        if self.function == "study_release":
            who = {name: given.pop(name) for name in ("site", "ledger", "seed")}
            return dpe.study_release(dpe.Protocol(self.text(pair), **given), data, **who)
        if self.function == "dp_multisite":
            given |= {"site": "site", "sites": SITES, "seed": 0}
            given["ledger"] = {name: noise.ledger() for name in SITES}
        if "at" in given and pair.term:
            given["at"] = {
                **AT,
                "z": [0.0, 0.5, 1.0],
                "d": ["2020-01-01", "2020-01-09", "2020-01-31"],
            }
        if self.function in ("answer", "asked"):
            return _answer(self.text(pair), data, {**self.given, "method": self.method}, pair)
        return getattr(dpe, self.function)(self.text(pair), data, **given)

    def replay(
        self,
        name: str,
        engine: str = "",
        unordered: bool = False,
        seed: int = 0,
        word: str = "complete",
    ) -> Replayed:
        """Replay on a pair by its name, in memory or on an engine."""
        nasty = pair(name, self.n, self.public, seed)
        one, other = nasty.unordered() if unordered else nasty.ordered()
        orders = [places(one, other)]
        if self.function == "dp_multisite":
            orders = [places(one[one["site"] == s], other[other["site"] == s]) for s in SITES]
        with undefined():
            return replay(
                lambda data, noise: self.run(data, noise, nasty, word),
                *(KINDS[engine](table.reset_index(drop=True)) for table in (one, other)),
                seed=seed,
                orders=orders,
                never_refuses=self.function in ("answer", "asked"),
            )


def _answer(formula: str, data: Any, asked: Mapping[str, Any], pair: Pair) -> Any:
    """What a federated site or an office answers, and what is left of its budget."""
    if not isinstance(data, pd.DataFrame):
        raise OptionError("a site of these tests has its data in a file")
    bounds = {
        name: {"levels" if isinstance(bound, list) else "range": list(bound)}
        for name, bound in pair.bounds.items()
    }
    covariates = [name for name in ALL if name != "y"]
    columns = {"outcome": ["y"], "treatment": ["t"], "covariates": covariates}
    if "call" in asked:
        arms = ["t", "g", "z"]
        columns = {"outcome": [*ALL], "treatment": arms, "covariates": [*covariates, "t"]}
    with TemporaryDirectory() as folder, mock.patch("dpeffects.services.gate.answers.rehearse"):
        treated = [None if pd.isna(t) else int(t) for t in data["t"]]
        data.assign(t=treated).to_csv(Path(folder, "data.csv"), index=False)
        methods = [*SPECS, "study", *({*QUESTIONS} - {"dp_ate", "dp_study"})]
        own = {"level": asked.get("level", "sample"), "estimands": ["ATE", "ATT", "ATC"]}
        most = {"max_epsilon": 99.0, "total_epsilon": 99.0, "max_delta": 0.1, "total_delta": 0.1}
        of_policy = {"columns": columns, "bounds": bounds, "methods": methods, "minimum_n": 4}
        made = policy(Path(folder), data=None, **of_policy, **own, **most)
        if "call" in asked:
            options = {name: x for name, x in asked.items() if name not in ("call", "method")}
            if asked["method"]:
                options["method"] = asked["method"]
            asks = Question.of_call(
                "q1", asked["call"], {"epsilon": 1.0, **options, "formula": formula}
            )
            return result_of(asks, made), open_ledger(made.ledger, "hospital").remaining
        if asked["method"] == "study":
            asks = Question.of_study(dpe.Protocol(formula, **asked["options"]), "q1")
        else:
            asks = question(formula=formula, **asked)
        reply = answer(asks, made)
        return reply, open_ledger(made.ledger, "hospital").remaining


def _polars(data: Any) -> Any:
    import polars as pl

    return pl.from_pandas(data).lazy()


def _duckdb(data: Any) -> Any:
    import duckdb

    return duckdb.from_df(data)


def _pyarrow(data: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_pandas(data)


_FOLDER = TemporaryDirectory()


def _file(data: Any) -> str:
    path = Path(_FOLDER.name, f"{len(list(Path(_FOLDER.name).iterdir()))}.csv")
    data.to_csv(path, index=False)
    return str(path)


class Jumping:
    """A model that answers with either end of the range, by the last digits of what it saw."""

    def __repr__(self) -> str:
        return "Jumping()"

    def fit(self, x: Any, y: Any) -> Jumping:
        self.answer = int(y.sum() * 1e6) % 2
        return self

    def predict(self, x: Any) -> Any:
        return np.full(len(x), float(self.answer))


ANY = {"estimator": "regression", "outcome": Jumping()}
ENGINES = {"": lambda data: data, "polars": _polars, "duckdb": _duckdb}
KINDS = {
    **ENGINES,
    "nullable": lambda data: data.convert_dtypes(),
    "pandas on pyarrow": lambda data: data.convert_dtypes(dtype_backend="pyarrow"),
    "polars in memory": lambda data: _polars(data).collect(),
    "pyarrow": _pyarrow,
    "file": _file,
}
"""Kinds of frames, each with the types that it makes of the values of a frame of pandas."""
DELTA, PRINTED = {"delta": 1e-5}, {"as_printed": True}


def ate(
    method: str, n: int = 60, formula: str = "", declared: tuple[str, ...] = ALL, **given: Any
) -> Call:
    return Call("dp_ate", method, formula, n, declared, given)


def att(method: str, n: int = 60, **given: Any) -> Call:
    return Call("dp_att", method, n=n, given=given)


def atc(method: str, n: int = 60, **given: Any) -> Call:
    return Call("dp_atc", method, n=n, given=given)


EFFECTS = {
    "diff_in_means": ate("diff_in_means"),
    "diff_in_means, public arms": ate("diff_in_means", arms="public"),
    "diff_in_means, label": ate("diff_in_means", level="label"),
    "diff_in_means, no variance": ate("diff_in_means", variance=False),
    "diff_in_means, shares": ate("diff_in_means", budget_split={"counts": 0.6}),
    "diff_in_means, found bounds": ate("diff_in_means", n=1500, declared=(), epsilon=4.0),
    "diff_in_means, checked bounds": ate("diff_in_means", n=400, epsilon=4.0, check_bounds=True),
    "diff_in_means, checked bounds of a subset": ate(
        "diff_in_means", n=400, epsilon=8.0, check_bounds=True, subset="x1 > 0.2"
    ),
    "one_step, disjoint groups": ate("one_step", n=400, epsilon=12.0, by="g"),
    "one_step, subsets": ate("one_step", n=400, epsilon=12.0, by=["x1 < 0.7", "g != 'a'"]),
    "private_psm": ate("private_psm"),
    "private_psm, rich": ate("private_psm", n=400, formula=RICH),
    "private_psm, ATT": att("private_psm", n=3000, groups=5),
    "private_psm, ATC": atc("private_psm", n=3000, epsilon=4.0),
    "private_psm, Gaussian": ate("private_psm", n=3000, epsilon=4.0, **DELTA),
    "private_psm, three arms": ate("private_psm", n=400, formula=THREE, contrasts="pairwise"),
    "private_psm, printed": ate("private_psm", **PRINTED),
    "private_psm, printed, rich": ate("private_psm", formula=RICH, **PRINTED),
    "private_psm, one neighbour": ate("private_psm", neighbors=1, match_limit=1, **PRINTED),
    "private_psm, uneven limits": ate("private_psm", match_limit=(1, 3), penalty=0.5, **PRINTED),
    "private_psm, tiny penalty": ate("private_psm", penalty=1e-12, **PRINTED),
    "private_psm, not debiased": ate("private_psm", debias=False, **PRINTED),
    "private_psm, label": ate("private_psm", level="label"),
    "private_psm, label, ATT": att("private_psm", level="label"),
    "private_psm, label, exhausted": ate("private_psm", level="label", match_limit=1),
    "private_psm, label, rich": ate("private_psm", level="label", formula=RICH),
    "private_psm, label, public ranges": ate("private_psm", level="label", declared=("y",)),
    "private_psm, three arms, printed": ate("private_psm", formula=THREE, **PRINTED),
    "private_psm, three arms, printed, pairwise": ate(
        "private_psm",
        formula=THREE,
        contrasts="pairwise",
        neighbors=2,
        match_limit=1,
        epsilon=4.0,
        **PRINTED,
    ),
    "private_psm, three arms, not debiased": ate(
        "private_psm", formula=THREE, debias=False, **PRINTED
    ),
    "private_psm, three arms, label": ate("private_psm", formula=THREE, level="label"),
    "private_psm, three arms, label, exhausted": ate(
        "private_psm", formula=THREE, level="label", contrasts="pairwise", match_limit=1
    ),
    "diff_in_means, three arms": ate("diff_in_means", formula=THREE, contrasts="pairwise"),
    "private_ipw, three arms": ate("private_ipw", formula=THREE),
    "private_ipw, three arms, output": ate(
        "private_ipw", formula=THREE, propensity="output", clip=0.2, **DELTA
    ),
    "private_ipw, three arms, Gaussian": ate(
        "private_ipw", formula=THREE, noise="gaussian", centre="middle", **DELTA
    ),
    "private_ipw, three arms, label": ate(
        "private_ipw", formula=THREE, level="label", contrasts="pairwise"
    ),
    "private_ipw": ate("private_ipw"),
    "private_ipw, rich": ate("private_ipw", formula=RICH),
    "private_ipw, no variance": ate("private_ipw", variance=False),
    "private_ipw, label": ate("private_ipw", level="label"),
    "private_ipw, label, ATT": att("private_ipw", level="label"),
    "private_ipw, ATT": att("private_ipw"),
    "private_ipw, ATC": atc("private_ipw"),
    "private_ipw, split": ate("private_ipw", split=True),
    "private_ipw, output": ate("private_ipw", propensity="output", penalty=0.1),
    "private_ipw, output, Gaussian": ate("private_ipw", propensity="output", **DELTA),
    "private_ipw, Gaussian": ate("private_ipw", noise="gaussian", **DELTA),
    "private_ipw, Laplace": ate("private_ipw", noise="laplace", **DELTA),
    "private_ipw, the paper's": ate(
        "private_ipw", propensity="output", split=True, centre="none", noise="gaussian", **DELTA
    ),
    "private_ipw, as printed": ate("private_ipw", as_printed=True, **DELTA),
    "private_ipw, as printed, ATT": att("private_ipw", as_printed=True, clip=0.2, **DELTA),
    "private_ipw, split, ATT": att("private_ipw", split=True, epsilon=2.0),
    "private_ipw, output, ATC": atc("private_ipw", propensity="output", split=True, **DELTA),
    "private_ipw, small penalty": atc(
        "private_ipw", centre="none", model_share=0.5, penalty=1e-3, epsilon=2.0
    ),
    "private_ipw, label, middle": att("private_ipw", level="label", centre="middle"),
    "private_ipw, middle": ate("private_ipw", centre="middle", clip=0.3),
    "private_ipw, found bounds": ate("private_ipw", n=4000, declared=("g", "z"), epsilon=8.0),
    "auto": ate("auto"),
    "auto, many records": ate("auto", n=3000, epsilon=8.0),
    "auto, regression given up": ate(
        "auto", n=3000, formula="y ~ t | x1 + I(x1 / 2)", epsilon=20.0, flexible=0, **DELTA
    ),
    "auto, trial": ate("auto", n=3000, design="randomised"),
    "auto, label": ate("auto", level="label"),
    "auto, found bounds": ate("auto", n=4000, declared=("g", "z"), epsilon=8.0),
    "auto, three arms": ate("auto", formula=THREE),
    "auto, three arms, subset": ate(
        "auto", n=400, formula=THREE, epsilon=8.0, contrasts="pairwise", subset="x1 > 0.2"
    ),
    "diff_in_means, three arms, clusters": ate("diff_in_means", formula=THREE, cluster="site"),
    "private_ipw, three arms, weights": ate(
        "private_ipw", n=400, formula=THREE, epsilon=8.0, weights="x1"
    ),
    "one_step, three arms": ate("one_step", n=400, formula=THREE, contrasts="pairwise"),
    "one_step, three arms, trial": ate(
        "one_step", n=400, formula=THREE, design="randomised", epsilon=4.0
    ),
    "one_step, three arms, Gaussian": ate("one_step", n=3000, formula=THREE, pool="all", **DELTA),
    "one_step, three arms, label": ate("one_step", n=400, formula=THREE, level="label"),
    "clipped_contrast, three arms": ate("clipped_contrast", formula=THREE),
    "clipped_contrast, three arms, label": ate(
        "clipped_contrast", formula=THREE, level="label", contrasts="pairwise"
    ),
    "regression, treated": att("regression", n=400, epsilon=60.0),
    "regression, controls": atc("regression", n=400, epsilon=60.0),
    "regression, not carried": ate("regression"),
    "one_step": ate("one_step"),
    "one_step, Gaussian": ate("one_step", n=3000, pool="all", **DELTA),
    "one_step, Gaussian models": ate("one_step", n=3000, pool="models", model_share=0.4, **DELTA),
    "one_step, checked bounds": ate("one_step", n=400, epsilon=8.0, check_bounds=True),
    "one_step, label, checked bounds": ate(
        "one_step", n=400, epsilon=4.0, level="label", check_bounds=True
    ),
    "one_step, label": ate("one_step", n=400, level="label"),
    "one_step, trial": ate("one_step", n=400, design="randomised"),
    "one_step, ATT": att("one_step", n=3000, clip=0.1),
    "one_step, ATC": atc("one_step", n=3000, epsilon=4.0),
    "regression": ate("regression", n=3000, epsilon=8.0, flexible=0),
    "regression, ATT": att("regression", n=3000, epsilon=8.0, flexible=0),
    "regression, three arms": ate("regression", n=4000, formula=THREE, epsilon=20.0, flexible=0),
    "regression, few records": ate("regression", n=400),
    "clipped_contrast": ate("clipped_contrast"),
    "clipped_contrast, trial": att("clipped_contrast", design="randomised"),
    "clipped_contrast, label": atc("clipped_contrast", level="label"),
    "global_matching": ate("global_matching"),
    "global_matching, round robin": ate("global_matching", matching="round_robin"),
    "smooth_matching": ate("smooth_matching", **DELTA),
    "smooth_matching, round robin": ate("smooth_matching", matching="round_robin", **DELTA),
    "smooth_matching, the paper's": ate("smooth_matching", paper_constants=True, **DELTA),
    "smooth_matching, smooth variance": ate(
        "smooth_matching", variance_noise="smooth", n=300, **DELTA
    ),
    "smooth_matching, no variance": ate("smooth_matching", variance=False, **DELTA),
    "smooth_matching, Algorithm 2": ate(
        "smooth_matching",
        variance=False,
        matching="round_robin",
        paper_constants=True,
        **DELTA,
    ),
    "smooth_matching, Lemma 1": ate("smooth_matching", sensitivity_noise="gaussian", **DELTA),
    "smooth_matching, Lemma 1 twice": ate(
        "smooth_matching", sensitivity_noise="gaussian", variance_noise="smooth", n=300, **DELTA
    ),
    "sample_aggregate": ate("sample_aggregate", blocks=3),
    "sample_aggregate, any model": ate("sample_aggregate", blocks=12, **ANY),
    "sample_aggregate, rich": ate("sample_aggregate", formula=RICH, n=200),
    "sample_aggregate, ATT": att("sample_aggregate", estimator="ipw"),
    "sample_aggregate, ATC": atc("sample_aggregate", estimator="regression"),
    "sample_aggregate, Gaussian": ate("sample_aggregate", effect_range=(-0.2, 0.2), **DELTA),
    "model_folds": ate("model_folds", folds=4),
    "model_folds, means": ate("model_folds", folds=4, means=True),
    "private_psm, label, means": ate("private_psm", level="label", means=True),
    "global_matching, means": ate("global_matching", formula=STRATA, means=True),
    "model_folds, any model": ate("model_folds", folds=12, **ANY),
    "model_folds, any model's predictions": ate(
        "model_folds", folds=12, average="predictions", **ANY
    ),
    "model_folds, rich": ate("model_folds", formula=RICH, n=200, effect_range=(-0.2, 0.3)),
    "model_folds, regression": ate("model_folds", estimator="regression", **DELTA),
    "model_folds, the paper's": ate(
        "model_folds", average="predictions", estimator="regression", folds=15
    ),
    "model_folds, the paper's IPW": ate("model_folds", average="predictions", estimator="ipw"),
    "model_folds, no variance": ate("model_folds", variance=False, estimator="ipw"),
}


def survival(right: str = "t | x1 + x2 + g", **given: Any) -> Call:
    formula = f"Surv(y, z == 0.5) ~ {right}"
    return Call("dp_survival", formula=formula, n=400, given={"horizon": 1.0, **given})


TABLES = {
    "survival": survival("t"),
    "survival, adjusted": survival(epsilon=8.0),
    "survival, adjusted, ATT": survival(epsilon=8.0, estimand="ATT", **DELTA),
    "survival, label": survival(level="label"),
}


def cate(method: str = "r_learner", n: int = 60, **given: Any) -> Call:
    return Call("dp_cate", method, n=n, given={**DELTA, **given})


RELEASES: dict[str, dict[str, Any]] = {
    "function": {},
    "kernel noise": {"noise": "kernel"},
    "linear": {"second_stage": "linear"},
    "linear, kernel noise": {"second_stage": "linear", "noise": "kernel"},
    "joint kernel": {"kernel": "gaussian"},
    "trial": {"design": "randomised"},
    "the paper's choices": {
        "kernel": "gaussian",
        "noise": "kernel",
        "penalty": 1.0,
        "n_features": 50,
        "lipschitz": 0.5,
    },
    "points": {"release": "points", "at": AT},
    "points, linear": {"release": "points", "at": AT, "second_stage": "linear"},
    "groups": {"release": "groups", "by": GROUPS},
}
CONDITIONAL = {
    f"{learner}, {name}{', no delta' if delta == 0.0 else ''}": cate(learner, delta=delta, **given)
    for name, given in RELEASES.items()
    for learner, delta in itertools.product(("r_learner", "dr_learner"), (1e-5, 0.0))
    if name not in ("joint kernel", "trial", "the paper's choices") or delta > 0.0
} | {
    "r_learner, found bounds": Call(
        "dp_cate", "r_learner", n=2000, declared=("g", "z"), given={"epsilon": 8.0, **DELTA}
    ),
    "sample_aggregate, points": cate("sample_aggregate", release="points", at=AT, blocks=3),
    "one_step, groups": cate("one_step", delta=0.0, **RELEASES["groups"]),
    "one_step, groups, Gaussian": cate("one_step", pool="all", **RELEASES["groups"]),
    "one_step, groups, trial": cate(
        "one_step", delta=0.0, design="randomised", **RELEASES["groups"]
    ),
}

ENOUGH = {"epsilon": 20.0}
BALANCE = {
    "balance": Call("dp_balance", n=300, given={"overlap": True, "adjusted": False, **ENOUGH}),
    "balance, differences": Call("dp_balance", n=300),
    "balance, ATE": Call("dp_balance", n=300, given={"adjusted": True, **ENOUGH}),
    "balance, ATT": Call(
        "dp_balance", n=300, given={"adjusted": True, "estimand": "ATT", "bins": 10, **ENOUGH}
    ),
    "balance, ATC, Gaussian": Call(
        "dp_balance", n=300, given={"adjusted": True, "estimand": "ATC", **DELTA, **ENOUGH}
    ),
    "balance, rich": Call("dp_balance", formula=RICH, n=300, given=ENOUGH),
    "balance, found bounds": Call(
        "dp_balance", n=2000, declared=("g", "z"), given={"epsilon": 8.0}
    ),
}

DISTRIBUTIONS = {
    "quantiles": Call("dp_qte", n=200),
    "quantiles, trial": Call("dp_qte", n=120, given={"design": "randomised", "quantiles": 0.5}),
    "quantiles, label": Call("dp_qte", n=120, given={"level": "label"}),
    "quantiles, Gaussian, ATT": Call("dp_qte", n=200, given={"estimand": "ATT", **DELTA}),
    "quantiles, given bins": Call("dp_qte", given={"bins": (0.25, 0.5, 0.75), "adjust": False}),
    "quantiles, rich": Call("dp_qte", formula=RICH, n=200, given={"epsilon": 8.0}),
    "ordered levels": Call("dp_ordinal", formula="g ~ t | x1 + x2", n=200),
    "ordered levels, trial": Call(
        "dp_ordinal", formula="g ~ t", given={"design": "randomised", **DELTA}
    ),
}
BINARY = "I(y > 0.5) ~ t | x1"
RANDOMISATION = {
    f"randomisation test, {name}": Call("dp_randomisation_test", formula=BINARY, given=given)
    for name, given in {
        "chance": {"treated_share": 0.5},
        "small chance": {"treated_share": 0.2, "epsilon": 20.0},
        "number": {"treated": 25, "alternative": "greater"},
    }.items()
}
RATES = {
    name: Call("dp_rate", "", "y ~ t | x2 + g", n=n, given={"offset": "x1", **given})
    for name, n, given in (
        ("rates", 400, {"epsilon": 4.0}),
        ("rates, trial", 60, {"design": "randomised"}),
        ("rates, Gaussian", 400, {"adjust": True, **DELTA}),
        ("rates, label", 60, {"level": "label"}),
        ("rates, ATT, subset", 400, {"estimand": "ATT", "subset": "x2 > -0.8", "epsilon": 8.0}),
        ("rates, weights", 400, {"weights": "z", "epsilon": 8.0, "design": "randomised"}),
    )
}
STUDIES = {
    name: Call("dp_study", "", formula, n=n, given=given)
    for name, formula, n, given in (
        ("study, trial", "y + z ~ t | x1", 60, {"design": "randomised"}),
        ("study, Gaussian", "y + z ~ t", 200, {"design": "randomised", **DELTA}),
        ("study, subgroups", "y ~ t | x2", 60, {"subgroups": GROUPS, "adjust": False}),
        ("study, observational", "y + x2 ~ t | x1 + g", 400, {"epsilon": 4.0}),
        ("study, Gaussian, ATT", "y ~ t | x1", 400, {"adjust": True, "estimand": "ATT", **DELTA}),
        ("study, three arms", "y + x1 ~ g | x2", 60, {"contrasts": "pairwise"}),
        ("study, slopes", "y + I(x2 > 0) ~ t | x1 + g", 1500, {"epsilon": 30.0}),
        (
            "study, slopes, Gaussian, ATC, weights",
            "y + I(x2 > 0) ~ t | x1",
            1500,
            {"epsilon": 30.0, "estimand": "ATC", "weights": "z", "subgroups": "g", **DELTA},
        ),
        (
            "study, slopes, missing, subset",
            "y + z ~ t | x1",
            1500,
            {"epsilon": 30.0, "missing": "available", "subset": "x2 > -0.8", "estimand": "ATT"},
        ),
        (
            "study, checked bounds",
            "y + z ~ t | x1",
            400,
            {"check_bounds": True, "epsilon": 8.0, "subset": "g != 'b'", **DELTA},
        ),
        (
            "study, three arms, Gaussian, missing, weights",
            "y + x1 ~ g | x2",
            200,
            {"missing": "available", "subgroups": "cut(x2, [-1, 0, 1])", "weights": "z", **DELTA},
        ),
        (
            "study, missing",
            "y + x1 ~ t | x2",
            400,
            {"missing": "available", "subgroups": "g", "epsilon": 8.0, "weights": "z"},
        ),
    )
}

MOMENTS = {
    name: Call("dp_moments", "", formula, n=n, given=given)
    for name, n, formula, given in (
        ("moments", 60, "y + I(y**2) ~ t | x1 + g", {}),
        ("moments by level", 60, "y ~ t | x1", {"subgroups": "g"}),
        ("moments, Gaussian", 60, "y ~ t | x1 + x2 + g", DELTA),
        ("moments, arms", 60, "y ~ g | x1 + t", {"subgroups": "t", "design": "randomised"}),
        ("moments by level, Gaussian", 60, "y + z ~ t | x1", {"subgroups": GROUPS, **DELTA}),
        ("moments, subset, weights", 400, "y ~ t | x1", {"subset": "x2 > -0.8", "weights": "z"}),
    )
}

LATES = {
    name: Call("dp_late", "", f"y ~ I(z > 0.2){right}", n=n, given={"instrument": "t", **given})
    for name, n, right, given in (
        ("compliers", 60, "", {}),
        ("compliers, adjusted", 400, " | x1 + x2", {"epsilon": 40.0}),
        ("compliers, Gaussian", 400, " | x1 + x2", {"epsilon": 20.0, **DELTA}),
        ("compliers, trial, subset", 60, " | g", {"design": "randomised", "subset": "x2 > -0.8"}),
        ("compliers, weights", 60, "", {"weights": "x1"}),
        ("compliers, adjusted, weights", 600, " | x2 + g", {"weights": "x1", "epsilon": 60.0}),
        ("compliers, missing", 400, " | x2", {"missing": "complete", "epsilon": 8.0, **DELTA}),
    )
}

CHANGES = {
    "changes": Call("dp_did", formula="y ~ t", given={"before": "x1"}),
    "changes, adjusted": Call(
        "dp_did", formula="y ~ t | x2 + g", n=400, given={"before": "x1", "epsilon": 8.0}
    ),
    "changes, ATE, by a difference in means": Call(
        "dp_did", "diff_in_means", "y ~ t", given={"before": "x1", "estimand": "ATE"}
    ),
    "changes, several periods": Call(
        "dp_did", formula="y ~ t", given={"before": ["x1", "x2"], "change": (-0.5, 0.5)}
    ),
    "changes, several periods, adjusted": Call(
        "dp_did", formula="y ~ t | g", n=1500, given={"before": ["x1", "x2"], "epsilon": 30.0}
    ),
    "changes, several periods, Gaussian": Call(
        "dp_did", formula="y + x1 ~ t", given={"before": "x2", **DELTA}
    ),
}

AT_SITES = {
    f"{function}, {method}": Call(function, method, given=given, n=n)
    for function, n in (("site_release", 60), ("dp_multisite", 120))
    for method, given in {
        "diff_in_means": {},
        "private_psm": {"penalty": 1e-12, **PRINTED},
        "private_ipw": {"estimand": "ATT"},
        "auto": {},
        "smooth_matching": DELTA,
    }.items()
} | {
    "study_release": Call("study_release", "", "y + z ~ t | x1", given={"design": "randomised"}),
    "study_release, adjusted": Call(
        "study_release", "", "y ~ t | x1 + g", n=400, given={"epsilon": 4.0, "subgroups": ["g"]}
    ),
}

FEDERATED = {
    f"federated, {method}": Call("answer", method, n=120, given=given)
    for method, given in {
        "diff_in_means": {},
        "private_psm": {"options": {"penalty": 1e-12, **PRINTED}},
        "private_ipw": {},
        "auto": {},
        "study": {"options": {"epsilon": 1.0, "design": "randomised"}},
        "sample_aggregate": {},
        "global_matching": {},
    }.items()
}

_NO_QUESTION = (
    "at",
    "budget_split",
    "variance",
    "weights",
    "unit",
    "missing",
    "cluster",
    "clusters",
    "outcome",  # a model
)
ASKED = {
    f"asked, {name}": Call("asked", call.method, call.formula, call.n, call.declared, given)
    for calls in (EFFECTS, CONDITIONAL, BALANCE, RATES, DISTRIBUTIONS, MOMENTS, LATES, CHANGES)
    for name, call in itertools.islice(calls.items(), 0, None, 3)
    if call.function in {*QUESTIONS, "dp_att", "dp_atc"} and not {*call.given} & {*_NO_QUESTION}
    for given in [{"call": call.function, **call.given}]
}
"""Every third of the calls as somebody asks for them who may not see the data."""

ON_SOME = {
    "auto, label, ATT": att("auto", level="label"),
    "auto, ATT": att("auto", n=3000, epsilon=4.0),
    "auto, ATC": atc("auto"),
    "one_step, label, ATT": att("one_step", n=400, level="label"),
    "clipped_contrast, label, ATE": ate("clipped_contrast", level="label"),
    "clipped_contrast, label, ATT": att("clipped_contrast", level="label"),
    "clipped_contrast, ATT": att("clipped_contrast"),
    "clipped_contrast, ATC": atc("clipped_contrast"),
}

CALLS: dict[str, Call] = {
    **{**EFFECTS, **CONDITIONAL, **BALANCE, **RANDOMISATION, **RATES, **DISTRIBUTIONS},
    **{**STUDIES, **MOMENTS, **LATES, **CHANGES},
    **{**TABLES, **AT_SITES, **FEDERATED, **ASKED},
    **ON_SOME,
}
__all__ = ["CALLS", "PAIRS"]
