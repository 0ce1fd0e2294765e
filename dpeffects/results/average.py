"""Result: released values, their privacy guarantee, and the charges. No data, no model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dpeffects.errors import checked_call
from dpeffects.inference import Estimate, Interval, Unavailable, scales
from dpeffects.inference import intervals as inference
from dpeffects.lazy import pd
from dpeffects.results import wording
from dpeffects.results.export import frame_of, or_nan
from dpeffects.results.number_format import number, numbers, to_error, with_ends, with_error
from dpeffects.results.result_base import SingleEstimateResult
from dpeffects.results.scaled import NO_MEANS, ScaledEffect, mean_rows, scaled_effect
from dpeffects.results.wording import percent
from dpeffects.summary import Block, Summary, Table, draw, show

if TYPE_CHECKING:
    from dpeffects.results.hypothesis_test import Test
    from dpeffects.results.sensitivity import SensitivityAnalysis

_SAID = wording.said("average")
_WITH = {"treated": "with treatment", "control": "without"}


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(SingleEstimateResult, picture="report.plots.interval_plots.estimate"):
    """A treatment effect that was estimated under differential privacy.

    ``print(fit)`` shows the main results, ``fit.summary()`` all of them, ``fit.explain()`` says
    them in sentences. ``fit.conf_int()``, ``fit.p_value`` and ``fit.test()`` are for inference,
    ``fit.effect("ratio")`` for risk ratios and other scales, ``fit.means`` for the means by arm,
    ``fit.sensitivity()`` for unmeasured confounding, ``fit.plot()``, ``fit.tidy()`` and
    ``fit.report()`` for figures, tables and text.

    Parameters
    ----------
    released
        What the method released: estimate, sampling variance, noise scales.
    estimand, method, ...
        The fields of `ResultBase`.

    Examples
    --------
    >>> from dpeffects.inference.estimate import SamplingVariance
    >>> from dpeffects.guarantee import Guarantee
    >>> fit = Result.from_estimate(
    ...     Estimate(2.0, SamplingVariance(0.36, 0.0, 9.0), laplace=(0.4, 0.4)),
    ...     estimand="ATE", method="dp_means", method_title="difference in means",
    ...     formula="y ~ t", outcome="y", treatment="t", n=500, guarantee=Guarantee(1.0),
    ... )
    >>> fit
    <dpeffects ATE 2.0 (se 1.0), dp_means, epsilon=1, exact>
    >>> low, high = fit.conf_int()
    >>> round(low, 2), round(high, 2)
    (0.01, 3.99)
    >>> Result.from_json(fit.to_json()) == fit
    True
    """

    _no_means: ClassVar[Unavailable] = NO_MEANS
    _titled = "{0._called}, {0._private}"
    _computed = (
        *("estimate", "std_error", "sampling_variance", "noise_variance", "bias_variance"),
        *("noise_share", "p_value", "warnings"),
    )
    _at_level: ClassVar[Mapping[str, str]] = {"conf_int": "conf_int", "means": "means_at"}

    @classmethod
    def from_estimate(
        cls,
        estimate: Estimate,
        *,
        notes: Iterable[str] = (),
        details: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Result:
        """Build a Result from what a method released.

        ``notes`` and ``details`` are added to those of the estimate; the other keywords are the
        fields of `Result`.
        """
        return cls(
            released=estimate,
            notes=(*estimate.notes, *notes),
            details={**estimate.details, **(details or {})},
            **fields,
        )

    @classmethod
    def _made(cls, released: Estimate, estimation: Any, about: dict[str, Any]) -> Result:
        """The result of an estimation, with what all results say about themselves."""
        return cls.from_estimate(estimation.completed(released), **about)

    @property
    def sampling_variance(self) -> float | Unavailable:
        """Sampling variance: the average of its plausible values, given the noisy release."""
        return inference.sampling_variance(self.released)

    @property
    def noise_variance(self) -> float:
        """Variance of the privacy noise in the estimate, from all of its sources."""
        return self.released.noise_variance

    @property
    def bias_variance(self) -> float:
        """Variance that allows for possible bias, such as that of winsorising."""
        return self.released.bias_variance

    @property
    def std_error(self) -> float | Unavailable:
        """Standard error: sampling error, privacy noise, and the allowance for possible bias."""
        return inference.std_error(self.released)

    @property
    def noise_share(self) -> float | Unavailable:
        """Share of the total variance that is due to privacy noise, between 0 and 1."""
        total = inference.total_variance(self.released)
        if isinstance(total, Unavailable):
            return total
        return min(self.noise_variance / total, 1.0) if total > 0.0 else 0.0

    @checked_call
    def conf_int(self, conf_level: float | None = None) -> Interval | Unavailable:
        """Confidence interval for the effect, by default of 95 %; ``low, high = fit.conf_int()``.

        Where this is an association, the interval is that of the association. Returns
        `Unavailable`, which prints its reason, when the method released no sampling variance.
        """
        return inference.interval(self.released, self._level(conf_level))

    def _level(self, conf_level: float | None) -> float:
        """A level of confidence, by default the one that was asked for."""
        default = getattr(self, "conf_level", 0.95)
        return inference.check_conf_level(default if conf_level is None else conf_level)

    def effect_conf_int(self, conf_level: float = 0.95) -> Interval | Unavailable:
        """Interval for the effect, also where this is an association.

        It then assumes confounding as strong as it usually is in studies, which is a guess.
        """
        return inference.interval(self.released.as_effect(), conf_level)

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of no effect; same distribution as `conf_int`.

        Returns `Unavailable` for an association, which is no test of an effect.
        """
        return inference.p_value(self.released)

    @checked_call
    def test(
        self,
        null: float = 0.0,
        alternative: str = "two-sided",
        *,
        equivalence: tuple[float, float] | None = None,
        margin: float | None = None,
        conf_level: float | None = None,
    ) -> Test:
        """Test the effect, by the distribution of `conf_int`. Nothing is spent.

        Parameters
        ----------
        null
            Value of the effect under the null hypothesis.
        alternative
            The alternative hypothesis: the effect differs from ``null`` ("two-sided"), is
            "greater", or is "less".
        equivalence
            Two limits for an equivalence test, by two one-sided tests (TOST): the alternative
            hypothesis is that the effect lies between them.
        margin
            Equivalence margin around ``null``. With a one-sided alternative it is the margin of a
            non-inferiority test: with ``alternative="greater", margin=0.1`` the alternative
            hypothesis is that the effect is more than -0.1.
        conf_level
            1 minus the significance level.

        Returns
        -------
        Test
            Its p-value is below 1 - conf_level exactly where its confidence interval lies within
            the alternative hypothesis. For an association there is no test.

        Examples
        --------
        >>> import dpeffects as dpe
        >>> nsw = dpe.load_data("lalonde")
        >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
        >>> fit.test().p_value == fit.p_value
        True
        >>> fit.test(margin=20000).conclusion
        'At the 5 % level H0 is rejected in favour of: the effect is between -20000 and 20000.'
        """
        from dpeffects.inference.hypotheses import Hypothesis
        from dpeffects.results.hypothesis_test import Test, facts_tested

        asked = Hypothesis.asked(null, alternative, equivalence, margin)
        about = facts_tested(self, self.method, self.guarantee.status)
        level = getattr(self, "conf_level", 0.95) if conf_level is None else conf_level
        return Test.of(self.released, asked, conf_level=level, **about)

    @property
    def means(self) -> pd.DataFrame | Unavailable:
        """Mean outcomes of treated and control records, with 95 % intervals; see `means_at`.

        They are adjusted where the effect is: their difference is the effect.
        """
        return self.means_at()

    @property
    def _compared(self) -> Estimate:
        """The estimate with the means that it compares, where they are known."""
        return self.released

    def means_at(self, conf_level: float | None = None) -> pd.DataFrame | Unavailable:
        """Mean outcomes by arm: columns arm, mean, std_error, conf_low and conf_high."""
        level, means = self._level(conf_level), self._compared.means
        return self._no_means if means is None else frame_of(mean_rows(means, level))

    def effect(self, scale: str = "difference", conf_level: float | None = None) -> ScaledEffect:
        """Put the effect on a scale. Nothing is spent.

        Parameters
        ----------
        scale
            "difference" (risk difference, for an outcome of 0 and 1); "ratio" (risk ratio, or
            ratio of means) and "lift" (relative change: ratio minus 1), for outcomes that cannot
            be negative; "odds" (odds ratio) and "nnt" (number needed to treat, 1 over the risk
            difference), for outcomes of 0 and 1.
        conf_level
            Level of the interval.

        Returns
        -------
        ScaledEffect
            It has ``estimate``, ``conf_int()``, ``p_value``, ``tidy()`` and ``summary()``, and is
            printed as a sentence. Confidence intervals of ratios and odds ratios are found by
            inverting tests and include the privacy noise. They may end in infinity, where a
            control mean of zero cannot be excluded.

        Examples
        --------
        >>> import dpeffects as dpe
        >>> nsw = dpe.load_data("lalonde")
        >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, design="randomised", epsilon=2)
        >>> fit.effect("ratio").estimate > 0.0
        True
        """
        about = {name: getattr(self, name) for name in ("outcome", "estimand", "method")}
        about |= {"term": self.treatment, "guarantee": self.guarantee.status}
        named: dict[str, Any] = {"std_error": self.std_error, "warnings": self.warnings}
        asked = (self._compared, scale, self._level(conf_level), self.treatment, self.outcome)
        return scaled_effect(*asked, about=about, **named)

    def sensitivity(
        self,
        bias: float | None = None,
        *,
        prevalence_difference: float | None = None,
        confounder_effect: float | None = None,
        outcome_sd: float | None = None,
        control_risk: float | None = None,
        conf_level: float = 0.95,
    ) -> SensitivityAnalysis:
        r"""Analyse how sensitive the effect is to unmeasured confounding. Nothing is spent.

        E-values and tipping points say how strong unmeasured confounding must be to explain the
        estimate away, and to move the interval to zero. For a given strength, the interval under
        that confounding is shown, too.

        Parameters
        ----------
        bias
            Bias of the estimate by confounding, in units of the outcome.
        prevalence_difference, confounder_effect
            Instead of bias, for a binary confounder: by how much its prevalence is higher among the
            treated, and its effect on the outcome.
        outcome_sd
            Standard deviation of the outcome, for approximate E-values. By default the one that the
            method released, or a quarter of the outcome's range.
        control_risk
            For an outcome of 0 and 1: its mean without treatment. By default both risks, and the
            interval of their ratio, are those that the method released. Where it released none,
            E-values are approximate.
        conf_level
            Level of the interval.

        Returns
        -------
        SensitivityAnalysis

        Examples
        --------
        >>> import dpeffects as dpe
        >>> nsw = dpe.load_data("lalonde")
        >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
        >>> stated = fit.sensitivity(prevalence_difference=0.2, confounder_effect=2000)
        >>> stated.stated
        400.0

        In a shell::

            dpeffects sensitivity effect.json
            dpeffects sensitivity effect.json --bias 0.02 --plot bias.png
            dpeffects sensitivity effect.json --prevalence-difference 0.1 \
                --confounder-effect 0.2
        """
        given = {name: x for name, x in locals().items() if name != "self"}
        from dpeffects.results.sensitivity import SensitivityAnalysis

        own = {f.name: getattr(self, f.name) for f in fields(Result)}
        return SensitivityAnalysis(**own | {"released": self._compared}, **given)

    @checked_call
    def summary(self, form: str = "full", *, conf_level: float | None = None) -> Summary:
        """All results as titled tables; the main ones with ``form="short"``.

        Examples
        --------
        >>> import dpeffects as dpe
        >>> ist = dpe.load_data("ist")
        >>> call = {"design": "randomised", "epsilon": 1, "seed": 1}
        >>> fit = dpe.dp_ate("stroke_14_days ~ treatment", ist, **call)
        >>> print(fit.summary("short"))
        Average treatment effect (ATE), differentially private
        ================================================================================
        *** NOT PRIVATE: a seed was set ***
        About          effect of treatment on stroke_14_days (ATE)
        Estimate       -0.0096 (95 % CI -0.0138 to -0.0055), p < 0.0001
        Adjusted for   nothing (no covariates in the formula)
        Assumes        treatment was randomised (declared: design="randomised"); the
                       interval makes no allowance for confounding
        Records        19,408
        Guarantee      NOT PRIVATE: a seed was set
        <BLANKLINE>
        Full results: fit.summary()
        """
        return show(self, form, conf_level=self._level(conf_level))

    def plot(self, conf_level: float | None = None, *, ax: Any = None) -> Any:
        """Draw the estimate and the parts of its interval; return the axes (matplotlib)."""
        return draw(self, conf_level=self._level(conf_level), ax=ax)

    def tidy(self, conf_level: float | None = None, *, scale: str = "difference") -> pd.DataFrame:
        """One row for the effect; rows of several results bind with ``pandas.concat``.

        What is not available is NaN. On another ``scale`` (see `effect`) there is no standard
        error, and a column ``scale`` says which.
        """
        return self.effect(scale, conf_level).tidy()

    def _glance(self) -> dict[str, Any]:
        """The release, and its sources of error."""
        return super()._glance() | {
            "noise_variance": float(self.noise_variance),
            "sampling_variance": or_nan(self.sampling_variance),
            "noise_share": or_nan(self.noise_share),
            "bias_variance": float(self.bias_variance),
            "identification": self.identification,
        }

    def __repr__(self) -> str:
        return self._head(with_error(self.estimate, self.std_error))

    # --- in words ---------------------------------------------------------------------------------

    @property
    def _called(self) -> str:
        return wording.called(self)

    def _row_labels(self, rows: Sequence[Mapping[Any, Any]]) -> list[str]:
        what = "association" if self.associated else "difference"
        means = self._compared.means
        return [f"risk {what}, %" if means is not None and scales.is_risk(means) else what]

    def _blocks(self, conf_level: float) -> Sequence[Block]:
        effect = wording.effect_table(self, conf_level)
        return effect, *wording.means_block(self, conf_level), self._error_parts()

    def _sources(self) -> dict[str, float]:
        """The variance of each part of the error, by its name; NaN where it is not known."""
        released, sampling = self.released, self.sampling_variance
        through = " in the estimate" if any(part.noise for part in released.parts) else ""
        known = {"sampling error": math.nan if isinstance(sampling, Unavailable) else sampling}
        known[f"privacy noise{through}"] = released.final_noise_variance
        for part in released.parts:
            name = f"{'privacy noise in' if part.noise else 'allowance for'} {part.name}"
            known[name] = known.get(name, 0.0) + part.variance
        return known

    def _error_parts(self) -> Table:
        """One line for each part of the error."""
        title, columns = "Standard error", ("source", "std. deviation", "share of variance")
        variances = self._sources()
        total = sum(variances.values())
        if not math.isfinite(total):
            rows = ((name, _sd(variance), "n/a") for name, variance in variances.items())
            return Table(title, columns, tuple(rows), "lrr")
        variances["total"] = total
        sds = to_error([math.sqrt(variance) for variance in variances.values()], math.sqrt(total))
        shares = [percent(x / total if total > 0.0 else 0.0, ".1f") for x in variances.values()]
        shares[-1] = "100.0 %"
        cells = tuple(zip(variances, sds, shares, strict=True))
        return Table(title, columns, cells, "lrr", total=True)

    def _noted(self, conf_level: float) -> Sequence[str]:
        interval, dist = self.conf_int(conf_level), self._dist
        if isinstance(interval, Unavailable):
            missing = f"Standard error, interval and p-value are {interval}."
            dist = [missing, self._noise_alone(conf_level)]
        return *dist, *self._cut(conf_level), *self.notes

    @property
    def _dist(self) -> list[str]:
        """Say where the interval comes from."""
        bias = _SAID["bias"] if self.bias_variance > 0.0 else ""
        kind = "association" if self.associated else "effect"
        return [_SAID["interval"][kind].format(bias=bias), self._hardly_known]

    @property
    def _hardly_known(self) -> str:
        """Say that the sampling variance was released with more noise than it has, if so."""
        sampling = self.released.sampling
        if isinstance(sampling, Unavailable) or sampling.value >= sampling.noise_scale:
            return ""
        value, scale = number(sampling.value, 2), number(sampling.noise_scale, 2)
        return str(_SAID["hardly_known"].format(value=value, scale=scale))

    def _cut(self, conf_level: float) -> list[str]:
        """Say what was cut to the range that an effect can have."""
        released, notes = self.released, []
        if released.possible is None:
            return []
        low, high = numbers(released.possible)
        uncut = replace(released, value=released.point, possible=None)
        if self.conf_int(conf_level) != inference.interval(uncut, conf_level):
            notes.append(_SAID["cut"].format(low=low, high=high))
        if released.point != released.value:
            notes.append(_SAID["moved"].format(value=number(released.value, 4)))
        return notes

    def _noise_alone(self, conf_level: float) -> str:
        """The interval of the privacy noise alone, where there is no confidence interval."""
        noise = inference.noise_interval(self.released, conf_level)
        if isinstance(noise, Unavailable):
            return ""
        _, low, high = with_ends(self.estimate, *noise)
        level = percent(conf_level)
        return str(_SAID["noise_alone"].format(low=low, high=high, level=level))

    def _lacks(self, conf_level: float) -> str:
        return wording.missing_words(self.conf_int(conf_level))

    def _findings(self, conf_level: float) -> Sequence[str]:
        interval, error, noise = self.conf_int(conf_level), self.std_error, self.noise_variance
        sampling = self.sampling_variance
        if isinstance(interval, Unavailable) or isinstance(error, Unavailable):
            what = "association" if self.associated else "effect"
            (value,) = to_error((self.estimate,), math.sqrt(noise))
            known = _SAID["unknown" if math.isnan(noise) else "noise_known"]
            return [known.format(value, what, _sd(noise))]
        found = [wording.effect_sentence(self.estimate, error, interval, self.p_value)]
        if not isinstance(sampling, Unavailable):
            bias = self.bias_variance
            found.append(wording.split(sampling, noise, bias=bias))
            parts = [x for x in self.released.parts if not x.noise and x.variance > 0.0]
            if names := ", ".join(dict.fromkeys(part.name for part in parts)):
                sd = number(math.sqrt(bias), 2)
                found.append(_SAID["allowance"].format(names=names, sd=sd))
        return [*found, self._hardly_known, self._said_of_means(conf_level)]

    def _said_of_means(self, conf_level: float) -> str:
        """The mean outcomes of both arms; of risks also their difference and their ratio."""
        frame, means = self.means_at(conf_level), self._compared.means
        if isinstance(frame, Unavailable) or means is None:
            return ""
        risk, how = scales.is_risk(means), "Adjusted " * (self.identification == "adjusted")

        def said(row: Mapping[Any, Any]) -> str:
            return wording.with_limits(wording.scaled(row, wording.PER_CENT * risk))

        rows = frame.rename(columns={"mean": "estimate"}).to_dict("records")
        told = " and ".join(f"{said(row)} {_WITH[row['arm']]}" for row in rows)
        if not risk:
            return wording.capital(f"{how}mean outcomes were {told}.")
        ratio = self.effect("ratio", conf_level).tidy().to_dict("records")[0]
        gap = said(self.tidy(conf_level).to_dict("records")[0])
        found = _SAID["both_risks"].format(self.outcome, told, gap, wording.with_limits(ratio))
        return wording.capital(f"{how}{found}")


def _sd(variance: float) -> str:
    return "n/a" if math.isnan(variance) else number(math.sqrt(variance), 2)
