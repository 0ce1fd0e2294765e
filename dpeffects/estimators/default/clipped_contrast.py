"""Clipped contrast: one weighted sum of clipped residuals. It adjusts for nothing.

1. The number of treated records and the mean outcome of each arm are released.
2. A histogram of residuals by arm, sign and length gives a clip, the one with the least error. What
   it takes off the mean of each arm is added back as far as it is known, and the interval allows
   for the rest. Outcomes with two values are not clipped.
3. ONE sum over all records, of residuals over the share of their arm, with a minus for controls,
   corrects the difference of the means. Whatever the arm of a record, what it adds lies in one
   interval, so the sum costs half of what two sums would. Its squares come with it: who moves the
   sum far moves them little.

More than two arms have one sum each, of residuals and of their squares: a record is in one of them,
so that all of them, and all differences, cost a quarter more than that one sum.

With ``design="randomised"`` this is an effect. Otherwise it is an association, with its own
interval and no test: what an effect's interval allows for confounding is a guess, kept beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from dpeffects.arrays import FloatArray, Interval
from dpeffects.errors import OptionError, refusal
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.default.arm_levels import Spread, arm_means, by_arm, with_means
from dpeffects.estimators.default.arm_summaries import (
    ArmStats,
    between_arms,
    clipped_term,
    release_centres,
    residual,
)
from dpeffects.estimators.default.arm_terms import ArmTerms, combination
from dpeffects.estimators.default.forecast import Forecast, forecast_contrast
from dpeffects.estimators.default.polynomial_terms import LINES, degree, left_out
from dpeffects.estimators.default.posterior import unadjusted_variance
from dpeffects.estimators.default.tails import LengthQuery, combined_variance, uncut
from dpeffects.estimators.option_checks import between, choice
from dpeffects.estimators.spec import Contrasts, MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import Effects, ErrorPart, Influence
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.release import Split

NO_COVARIATES = "there are no covariates to adjust for", 'Write "y ~ t | x1 + x2"'
TOO_LITTLE: tuple[str, str] = (
    "n, epsilon and the number of covariates carry no adjustment",
    "Use more epsilon, more records or fewer covariates, add a delta",
)
"""Why a result is not adjusted, and what to do instead."""


@dataclass(frozen=True)
class StudyOptions(Options):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``on_unadjusted``: "warn", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted.
    """

    design: str = choice("observational", "randomised")
    on_unadjusted: str = choice("warn", "error")
    flexible: int | None = field(default=None, init=False)
    """How far columns bend, None for the public rule; methods that adjust let callers say it."""
    facts: Any = field(default=None, init=False)
    """The `PublicInfo` that choices were made by, None before they are made."""

    def made_for(self, facts: PublicInfo, **choices: Any) -> Self:
        """The options with some choices made, and the facts that they were made by."""
        made = replace(self, **choices)
        object.__setattr__(made, "facts", facts)
        return made

    @property
    def baseline(self) -> Any:
        """The facts of what is adjusted for."""
        return self.facts

    @property
    def degree(self) -> int:
        """How far columns bend: as asked for, or by the public rule; in trials they do not."""
        if self.flexible is not None:
            return self.flexible
        return LINES if self.randomised or self.facts is None else degree(self.baseline)

    @property
    def left_out(self) -> str:
        """What the public rule left out; nothing where that was asked for."""
        silent = self.flexible is not None or self.randomised or self.facts is None
        return "" if silent else left_out(self.baseline, self.degree)

    def has_means(self, facts: PublicInfo) -> bool:
        """Sums by arm are released."""
        return True

    @property
    def randomised(self) -> bool:
        """True where treatment was assigned by chance."""
        return self.design == "randomised"


@dataclass(frozen=True)
class ClippedContrastOptions(StudyOptions):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``on_unadjusted``: "warn", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted. ``first_stage``: proportion of the budget for the
    number of treated records, the means and the lengths of residuals, or None to choose it.
    """

    first_stage: float | None = between(None, 0.05, 0.8)

    def resolve(self, facts: PublicInfo) -> ClippedContrastOptions:
        """Refuse an unadjusted result where that was asked for."""
        refuse_unadjusted(self)
        return planned(self, facts)[0]

    @property
    def clips(self) -> bool:
        """Whether residuals are clipped, so that their lengths are released: not of two values."""
        return self.facts is None or not self.facts.two_valued


def refuse_unadjusted(
    options: Any,
    why: str = "clipped_contrast adjusts for nothing",
    instead: str = 'Use method="one_step" with covariates',
) -> None:
    """Refuse, before the charge, what would be an association."""
    if options.on_unadjusted == "error" and not options.randomised:
        raise OptionError(refusal("unadjusted", why=why, instead=instead))


@lru_cache(maxsize=256)
def planned(
    options: ClippedContrastOptions, facts: PublicInfo
) -> tuple[ClippedContrastOptions, Forecast]:
    """The options with every choice made, and what to expect of them."""
    plans = []
    for first in (options.first_stage,) if options.first_stage else hand.SHARES[1:6]:
        each = options.made_for(facts, first_stage=first)
        split = Split.of(facts.budget, budget_split(facts.level, each))
        plans.append((each, forecast_contrast(facts, split, options.randomised)))
    return min(plans, key=lambda plan: plan[1].error)


def budget_split(level: str, options: ClippedContrastOptions) -> dict[str, float]:
    """Split of the budget: a count only where the arms are private."""
    first = options.first_stage or hand.SHARES[1:6][0]
    parts = {"count": 0.4 * first, "means": 0.4 * first, "lengths": 0.2 * first}
    if "treatment" in options.public(level):
        del parts["count"]
    if not options.clips:
        del parts["lengths"]
    return {**parts, "estimate": 1.0 - first}


def fit_arms(curator: Curator, options: Any, estimand: str, contrasts: Contrasts) -> Effects:
    """Release counts, means, lengths and the sums; the rest is post-processing."""
    centres = release_centres(curator)
    arms, pi, unit = curator.arms, centres.shares, curator.noise_sd("estimate") / curator.n
    public = curator.is_public("treatment")
    unit *= 1.0 if arms == 2 or public else hand.BY_ARM
    cut, squares = uncut(centres), (centres.most_variance,) * 2
    if curator.has("lengths"):
        about = LengthQuery(residual(centres.means), cut.length, centres, unseen=hand.UNSEEN)
        lengths = about.read(curator.several(about.asked)[0])
        widths = 2.0 / (pi if arms > 2 else pi.min(keepdims=True))
        squared = [combination(pair, arms) ** 2 @ widths**2 for pair in contrasts]
        cut = lengths.clip(unit * math.sqrt(float(np.mean(squared))), centres)
        squares = lengths.mean_square(cut.length)
    clip, (middle, moves) = cut.length, _middles(centres, cut.length, unit)
    terms = replace(_terms(centres, middle, clip), public=public)
    found = terms.read(*curator.several(terms.asked(curator)))
    between, between_sd = _between(centres, moves)
    seen = found.records * pi if arms > 2 else np.array([centres.n * pi[0] * pi[1]])
    spread_sd = math.hypot(*(seen * np.hypot(found.sampling_sd, between_sd)))
    spread = combined_variance(float(seen @ (found.sampling - between)), spread_sd, squares)
    corrections = found.means + (moves if arms > 2 else moves[:1] - moves[1:])
    levels = middle + cut.lost
    unadjusted = "" if options.randomised else "NOT ADJUSTED: covariates were not used"
    estimates = []
    for pair in contrasts:
        # residuals from the centres add up to their moves, but for what the sums correct
        parts = [ErrorPart("winsorisation bias", float((cut.unknown[list(pair)] ** 2).sum()))]
        parts.append(centres.noise_part(pair, corrections, moves=moves, beyond=cut.beyond))
        if not options.randomised:
            parts.append(
                ErrorPart(
                    "confounding of the usual strength (a guess)", spread * unadjusted_variance()
                )
            )
        estimate = found.estimate(
            pair,
            float(levels[pair[0]] - levels[pair[1]] + combination(pair, arms) @ found.means),
            parts,
            found.variance(pair, between, between_sd),
            identification="randomised" if options.randomised else "unadjusted",
            warnings=centres.with_warnings(unadjusted),
            influence=arm_influence(
                centres.means, pi, centres.outcome_range, centres.n, pair, clip
            ),
        )
        if arms == 2:
            known = Spread(spread, centres.sizes, known=True)
            estimates.append(with_means(estimate, centres, estimand, known, unadjusted=True))
            continue
        sampling = by_arm(pair, found.sampling, found.sampling_sd, found.largest)
        noise = found.scales, found.release.gaussian, centres.sizes
        made = arm_means(pair, levels + found.means, centres, estimate, sampling, *noise)
        estimates.append(replace(estimate, means=made))
    return Effects(tuple(estimates), details=details(centres, clip, math.sqrt(spread)))


def arm_influence(
    means: FloatArray,
    shares: FloatArray,
    outcome_range: Interval,
    n: int,
    pair: Sequence[int],
    clip: float = math.inf,
) -> Influence:
    """What rows add to a difference of means: residuals from the means of their arms."""
    signs = between_arms(pair, 1.0 / shares)
    term = clipped_term(residual(means), ArmLookup(signs), clip)
    low, high = _ends(outcome_range, means, clip, signs)
    known = tuple(shares[list(pair)].tolist())
    return Influence(term, float(low.min()), float(high.max()), 0.0, float(n), known)


def _ends(
    outcome_range: Interval, middle: FloatArray, clip: float, signs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The interval that a record's term lies in, by arm."""
    low, high = outcome_range
    ends = signs * np.stack([np.maximum(-clip, low - middle), np.minimum(clip, high - middle)])
    return ends.min(axis=0), ends.max(axis=0)


def _terms(centres: ArmStats, middle: FloatArray, clip: float) -> ArmTerms:
    """Residuals over the share of their arm; with a minus for the second of two arms."""
    two = len(middle) == 2
    signs = (np.array([1.0, -1.0]) if two else 1.0) / centres.shares
    low, high = _ends(centres.outcome_range, middle, clip, signs)
    if two:
        low, high = np.full(2, low.min()), np.full(2, high.max())
    else:  # measured from 0, sizes of the arms do not matter
        high = np.maximum(-low, high)
        low = -high
    term = clipped_term(residual(middle), ArmLookup(signs), clip)
    return ArmTerms(centres, term, low, high, centres.sizes)


def _middles(centres: ArmStats, clip: float, unit: float) -> tuple[FloatArray, FloatArray]:
    """Centres of the residuals: the means, or closer to the middle of the range; and their moves.

    Where nothing is clipped, that makes the interval of a term, and so the noise, smaller.
    ``unit`` is the noise in a mean that a record moves by 1.
    """
    if clip < 0.999 * centres.longest:
        return centres.means, np.zeros_like(centres.means)
    far = sum(centres.outcome_range) / 2.0 - centres.means
    tried = [(centres.means + part * far, part * far) for part in np.linspace(0.0, 1.0, 9)]
    errors = [
        (unit * _terms(centres, middle, clip).widths) ** 2 + centres.by_moves(moves)
        for middle, moves in tried
    ]
    best, arms = np.argmin(errors, axis=0), np.arange(len(centres.shares))
    middle, moves = (np.stack(each)[best, arms] for each in zip(*tried, strict=True))
    return middle, moves


def _between(centres: ArmStats, moves: FloatArray) -> tuple[float, float]:
    """The part of the sampling variance of one sum that is known to be between its two arms.

    The arms have the sizes that they have, so it is no error. Also what is not known of it.
    """
    if len(moves) > 2:
        return 0.0, 0.0
    pi, n = centres.shares, centres.n
    apart, unknown = float((moves / pi).sum()), math.hypot(*(centres.unknown / pi))
    half = float(pi[0] * pi[1])
    return half * apart**2 / n, 2.0 * half * abs(apart) * unknown / n


def details(centres: ArmStats, clip: float, outcome_sd: float) -> dict[str, Any]:
    """What is worth showing of the first stage."""
    low, high = centres.outcome_range
    whose = "treated, control records" if len(centres.shares) == 2 else "records by arm"
    shown: dict[str, Any] = {
        f"{whose} (noisy)": ", ".join(f"{x:.0f}" for x in centres.sizes),
        "standard deviation of the outcome": outcome_sd,
    }
    if clip < (high - low) / 2.0:
        shown["residuals clipped at"] = f"{clip:.4g}"
    return shown


SPEC = MethodSpec(
    name="clipped_contrast",
    title="difference in means, winsorised",
    about="one weighted sum of clipped residuals; unadjusted, sharper than a difference in means",
    assumes="treatment was randomised",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=ClippedContrastOptions,
    budget_split=budget_split,
    fit_arms=fit_arms,
    variance_shares=(),
    uses_covariates=False,
    citation="dpeffects (software): clipped contrast.",
)
