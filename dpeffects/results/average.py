"""Result: released values, what was promised about them, and what was paid. No data, no model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dpeffects.errors import OptionError, checked_call
from dpeffects.inference import Estimate, Interval, Unavailable, scales
from dpeffects.inference import intervals as inference
from dpeffects.lazy import pd
from dpeffects.results import words
from dpeffects.results.export import frame_of, or_nan
from dpeffects.results.numbers import number, numbers, to_error, with_ends, with_error
from dpeffects.results.record import OneEstimate
from dpeffects.results.scaled import NO_MEANS, ScaledEffect, mean_rows, scaled_effect
from dpeffects.results.words import percent
from dpeffects.summary import Block, Summary, Table, draw, show

if TYPE_CHECKING:
    from dpeffects.results.hypothesis_test import Test
    from dpeffects.results.sensitivity import SensitivityAnalysis

_WITH = {"treated": "with treatment", "control": "without"}


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(OneEstimate, picture="report.plots.interval_plots.estimate"):
    """A private treatment effect, ready to print, export or combine.

    Parameters
    ----------
    released
        What the method released: estimate, sampling variance, noise scales.
    estimand, method, ...
        The fields of `Record`.

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
    _titled = "{0._private} {0._called}: {0.method_title} ({0.method})"
    _computed = (
        *("estimate", "std_error", "sampling_variance", "noise_variance", "bias_variance"),
        *("noise_share", "p_value", "caution"),
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
    def basis(self) -> str:
        """What entitles this to be called an effect: one of `BASES`, or empty."""
        return self.released.basis

    @property
    def sampling_variance(self) -> float | Unavailable:
        """Sampling variance that the noisy release leaves plausible, on average; never negative."""
        return inference.sampling_variance(self.released)

    @property
    def noise_variance(self) -> float:
        """Variance of the privacy noise in the estimate, by whatever way it came in."""
        return self.released.noise_variance

    @property
    def bias_variance(self) -> float:
        """What the interval allows for possible biases, such as that of a clip, as a variance."""
        return self.released.bias_variance

    @property
    def std_error(self) -> float | Unavailable:
        """Total standard error: sampling, noise, and what is allowed for possible biases."""
        return inference.std_error(self.released)

    @property
    def noise_share(self) -> float | Unavailable:
        """Part of the total variance that is due to privacy, between 0 and 1."""
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

    def conf_int_of_effect(self, conf_level: float = 0.95) -> Interval | Unavailable:
        """Interval for the effect, also where this is an association.

        Then it allows for confounding as strong as it usually is in studies, which is a guess.
        """
        return inference.interval(self.released.as_effect(), conf_level)

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of the hypothesis that the effect is 0; same law as `conf_int`.

        Returns `Unavailable` for an association, which is no test of an effect.
        """
        return inference.p_value(self.released)

    def test(
        self,
        null: float = 0.0,
        alternative: str = "two-sided",
        *,
        equivalence: tuple[float, float] | None = None,
        margin: float | None = None,
        conf_level: float | None = None,
    ) -> Test:
        """Test the effect, by the law of `conf_int`. Nothing is spent.

        Parameters
        ----------
        null
            The number that the effect is tested against.
        alternative
            What is to be shown: that the effect is not ``null`` ("two-sided"), is "greater", or is
            "less".
        equivalence
            Instead: two numbers that the effect is to be shown to lie between, by two one-sided
            tests.
        margin
            Equivalence within so much of ``null``. With a one-sided alternative non-inferiority:
            ``alternative="greater", margin=0.1`` is to show that the effect is more than -0.1.
        conf_level
            1 less the level of the test.

        Returns
        -------
        Test
            Its p-value is below 1 - conf_level exactly where its interval is on the side, or
            between the numbers, that is to be shown. An association has none.

        Examples
        --------
        >>> import dpeffects as dpe
        >>> nsw = dpe.load_data("lalonde")
        >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
        >>> fit.test().p_value == fit.p_value
        True
        >>> fit.test(margin=20000).conclusion
        'At the 5 % level it is shown: the effect is between -20000 and 20000.'
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
            "difference", "ratio" of the two means and "lift" (ratio less 1), for outcomes that
            cannot be negative; "odds" (their ratio) and "nnt" (the number needed to treat, 1 over
            the difference) for outcomes of 0 and 1.
        conf_level
            Level of the interval.

        Returns
        -------
        ScaledEffect
            It has ``estimate``, ``conf_int()``, ``p_value``, ``tidy()`` and ``summary()``, and is
            printed as a sentence. Intervals of ratios and odds hold by inversion of tests, noise
            included, and may end in infinity: the control mean is not bounded away from zero then.

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
        named: dict[str, Any] = {"std_error": self.std_error, "caution": self.caution}
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
        r"""Say what confounding that was not adjusted for would do to the effect. Nothing is spent.

        E-values and tipping points: how strong it must be to explain the estimate away, and to move
        the interval to zero. With a stated strength also the interval under it.

        Parameters
        ----------
        bias
            What confounding adds to the estimate, in units of the outcome.
        prevalence_difference, confounder_effect
            Instead of bias: how much more frequent a confounder of two values is among the treated,
            and what it adds to the outcome.
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
        """Everything worth printing, as titled blocks; what matters most where ``form="short"``.

        Examples
        --------
        >>> import dpeffects as dpe
        >>> ist = dpe.load_data("ist")
        >>> call = {"design": "randomised", "epsilon": 1, "seed": 1}
        >>> fit = dpe.dp_ate("stroke_14_days ~ treatment", ist, **call)
        >>> print(fit.summary("short"))
        Private average treatment effect: clipped contrast (auto)
        ================================================================================
        *** NOT PRIVATE: seeded ***
        About       effect of treatment on stroke_14_days (ATE)
        Estimate    -0.0096 (95 % interval -0.0138 to -0.0055), p < 0.0001
        Design      randomised, as the call said: nothing is allowed for confounding
        Records     n = 19408
        Guarantee   VOID (seeded): not private
        <BLANKLINE>
        Everything: fit.summary()
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
            "basis": self.basis,
        }

    def __repr__(self) -> str:
        return self._head(with_error(self.estimate, self.std_error))

    # --- in words ---------------------------------------------------------------------------------

    @property
    def _called(self) -> str:
        return words.called(self)

    def _blocks(self, conf_level: float) -> Sequence[Block]:
        effect, means = words.effect_table(self, conf_level), words.means_block(self, conf_level)
        return effect, *means, self._error_parts()

    def _error_parts(self) -> Table:
        """One line for each part of the error, in words that tell noise from possible bias."""
        title, columns = "Standard error", ("part", "std. deviation", "share of variance")
        released, sampling = self.released, self.sampling_variance
        through = any(part.noise for part in released.parts)
        own = "privacy noise, final sum" if through else "privacy noise"
        known = {own: released.final_noise_variance}
        for part in released.parts:
            name = f"{part.name} ({'privacy noise' if part.noise else 'possible bias'})"
            known[name] = known.get(name, 0.0) + part.variance
        if isinstance(sampling, Unavailable) or not math.isfinite(sampling + sum(known.values())):
            rows = ((name, _sd(variance), "n/a") for name, variance in known.items())
            return Table(title, columns, (("sampling error", "n/a", "n/a"), *rows), "lrr")
        variances = {"sampling error": sampling, **known}
        total = sum(variances.values())
        variances["all" if released.parts else "both"] = total
        sds = to_error([math.sqrt(variance) for variance in variances.values()], math.sqrt(total))
        shares = [percent(x / total if total > 0.0 else 0.0, ".1f") for x in variances.values()]
        shares[-1] = "100.0 %"
        cells = tuple(zip(variances, sds, shares, strict=True))
        return Table(title, columns, cells, "lrr", total=True)

    def _noted(self, conf_level: float) -> Sequence[str]:
        interval, law = self.conf_int(conf_level), self._law
        if isinstance(interval, Unavailable):
            missing = f"Standard error, interval and p-value are {interval}."
            law = [missing, self._noise_alone(conf_level)]
        return *law, *self._cut(conf_level), self._risks, *self.notes

    @property
    def _law(self) -> list[str]:
        """Say where the interval comes from."""
        what, so = "Interval and p-value come", ", so p is not that of estimate / std. error."
        if self.associated:
            what, so = "The interval comes", ". There is no p-value: an association is no test."
        bias = ", plus what is allowed for possible biases" if self.bias_variance > 0.0 else ""
        law = (
            f"{what} from a normal sampling error plus the privacy noise{bias}, averaged over the "
            f"uncertainty of the released variance{so}"
        )
        return [law, self._hardly_known]

    @property
    def _hardly_known(self) -> str:
        """Say that the sampling variance was released with more noise than it has, if so."""
        sampling = self.released.sampling
        if isinstance(sampling, Unavailable) or sampling.value >= sampling.noise_scale:
            return ""
        return (
            f"The sampling variance was released as {number(sampling.value, 2)} with noise of "
            f"scale {number(sampling.noise_scale, 2)}: it is hardly known. Standard error, "
            "interval and p-value average over what it may be, and are cautious."
        )

    def _cut(self, conf_level: float) -> list[str]:
        """Say what was cut to the range that an effect can have."""
        released, notes = self.released, []
        if released.possible is None:
            return []
        low, high = numbers(released.possible)
        uncut = replace(released, value=released.point, possible=None)
        if self.conf_int(conf_level) != inference.interval(uncut, conf_level):
            notes.append(
                f"The interval was cut to [{low}, {high}]: by the declared bounds no effect lies "
                "outside."
            )
        if released.point != released.value:
            notes.append(
                f"The released estimate, {number(released.value, 4)}, was moved to the end of that "
                "range."
            )
        return notes

    def _noise_alone(self, conf_level: float) -> str:
        """Where the estimate would be without noise, for want of an interval."""
        noise = inference.noise_interval(self.released, conf_level)
        if isinstance(noise, Unavailable):
            return ""
        _, low, high = with_ends(self.estimate, *noise)
        return (
            f"Without its privacy noise the estimate would lie in [{low}, {high}] with probability "
            f"{percent(conf_level)}. This is not an interval for the effect: it leaves out the "
            "sampling error."
        )

    @property
    def _risks(self) -> str:
        """Two risks as they are said to people."""
        means = self.released.means
        if means is None or not scales.is_risk(means):
            return ""
        if max(scales.mean_noise(means, treated) for treated in (True, False)) > 1.0:
            return ""
        one, zero = (100.0 * min(max(x, 0.0), 1.0) for x in (means.treated, means.control))
        if self.associated:
            return (
                f"Of treated records {one:.3g} % have {self.outcome} = 1, of control records "
                f"{zero:.3g} %."
            )
        first = f"With {self.treatment}, {one:.3g} % have {self.outcome} = 1"
        return f"{first}, and without it {zero:.3g} %."

    def _lacks(self, conf_level: float) -> str:
        return words.missing_words(self.conf_int(conf_level))

    def _findings(self, conf_level: float) -> Sequence[str]:
        interval, error, noise = self.conf_int(conf_level), self.std_error, self.noise_variance
        sampling = self.sampling_variance
        if isinstance(interval, Unavailable) or isinstance(error, Unavailable):
            what = "association" if self.associated else "effect"
            (value,) = to_error((self.estimate,), math.sqrt(noise))
            known = (
                f"its privacy noise has a standard deviation of {number(math.sqrt(noise), 2)}, and "
                "its sampling error is"
            )
            if math.isnan(noise):
                known = "its privacy noise and its sampling error are"
            return [
                f"The estimate is {value}; {known} not known, so it supports no "
                f"statement on whether there is an {what}."
            ]
        found = [words.effect_sentence(self.estimate, error, interval, self.p_value)]
        if not isinstance(sampling, Unavailable):
            bias = self.bias_variance
            found.append(words.split(sampling, noise, self._halves(conf_level), bias=bias))
            parts = [x for x in self.released.parts if not x.noise and x.variance > 0.0]
            if names := ", ".join(dict.fromkeys(part.name for part in parts)):
                sd = number(math.sqrt(bias), 2)
                found.append(
                    f"For possible biases ({names}) a standard deviation of {sd} is allowed."
                )
        return [*found, self._hardly_known, self._said_of_means(conf_level)]

    def _halves(self, conf_level: float) -> tuple[float, float] | None:
        """Half-widths of the intervals that either error alone would give."""
        uncut = replace(self.released, possible=None)
        alone = inference.interval(inference.sampling_alone(uncut), conf_level)
        noise = inference.noise_interval(uncut, conf_level)
        if isinstance(alone, Unavailable) or isinstance(noise, Unavailable):
            return None
        return alone.upper - uncut.value, noise.upper - uncut.value

    def _said_of_means(self, conf_level: float) -> str:
        """The mean outcomes of both arms, and their ratio where there can be one."""
        frame = self.means_at(conf_level)
        if isinstance(frame, Unavailable):
            return ""
        how = "Adjusted mean" if self.basis == "adjusted" else "Mean"
        texts = []
        for row in frame.to_dict("records"):
            value, low, high = with_ends(*(row[x] for x in ("mean", "conf_low", "conf_high")))
            known = "" if math.isnan(row["conf_low"]) else f" ({low} to {high})"
            texts.append(f"{value}{known} {_WITH[row['arm']]}")
        try:
            more = f" {self.effect('ratio', conf_level).words}"
        except OptionError:  # the outcome can be negative
            more = ""
        return f"{how} outcomes are {' and '.join(texts)}.{more}"


def _sd(variance: float) -> str:
    return "n/a" if math.isnan(variance) else number(math.sqrt(variance), 2)
