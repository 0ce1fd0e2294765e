"""Populations drawn at random by a public seed, in which lines are right, or something bends.

`population(seed)` is for any seed; methods are tuned on seeds below `FIRST_TEST_SEED`, and what is
published is run once on seeds from there on (`benchmarks/bent.py`). Formulas have lines only, as
users write them. There are three kinds; that of a seed is its remainder by three:

- ``right``: log odds of treatment, control outcome and effect are lines in the columns;
- ``effect``: the same, but the effect has another shape;
- ``bent``: log odds, control outcome or both are not lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr

Array = np.ndarray
Rng = np.random.Generator
Function = Callable[[Array], Array]

FIRST_TEST_SEED = 1000
KINDS = ("right", "effect", "bent")
STREAM = 20_261_117
"""What every generator of random numbers here starts from, beside the seed of the population."""
PILOT, LARGE, BLOCK = 50_000, 1_000_000, 50_000
"""Records by which functions are scaled, by which true effects are found, and how many at once.
The standard error of a true effect is a thousandth of the sd of effects."""
REACH = 3.5
"""Where the normal variables behind columns are cut, so that their ranges are known."""
CUT = 3.0
"""Where standardised columns are cut before they are bent."""


@dataclass(frozen=True)
class Tail:
    """How outcomes lie around their mean: ``about(mean, noise(rng, n))``.

    ``exact`` says that the mean is the outcome's expectation whatever it is, within the range.
    """

    name: str
    noise: Callable[[Rng, int], Array]
    about: Callable[[Array, Array], Array]
    exact: bool = False


def bell(sd: float) -> Tail:
    return Tail("normal", lambda rng, n: sd * rng.standard_normal(n), np.add)


def heavy(sd: float) -> Tail:
    """Student's t with three degrees of freedom, cut at fifteen, of about this sd."""
    return Tail("t3", lambda rng, n: sd / 1.6 * np.clip(rng.standard_t(3, n), -15, 15), np.add)


def costs(sigma: float) -> Tail:
    return Tail("costs", lambda rng, n: rng.lognormal(-(sigma**2) / 2, sigma, n), np.multiply)


COIN = Tail("binary", lambda rng, n: rng.random(n), lambda m, u: (u < m).astype(float), exact=True)


@dataclass(frozen=True, eq=False)
class Population:
    """How records come about; ``ranges`` are the tight ones, ``wide`` what they are multiplied by
    but for ``binary`` columns.

    ``control`` is the mean outcome without treatment and ``effect`` what treatment adds to it, as
    functions of columns side by side.
    """

    seed: int
    kind: str
    description: str
    columns: Callable[[Rng, int], Array]
    log_odds: Function
    control: Function
    effect: Function
    tail: Tail
    ranges: dict[str, tuple[float, float]]
    wide: dict[str, float] = field(default_factory=dict)
    binary: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        return [name for name in self.ranges if name != "y"]

    @property
    def formula(self) -> str:
        return f"y ~ t | {' + '.join(self.names)}"

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Declared ranges: wider upwards from 0, else about the middle."""
        made = dict(self.ranges)
        for name, times in self.wide.items():
            low, high = made[name]
            if name not in self.binary:
                more = (times - 1) * (high - low)
                made[name] = (low, high + more) if low == 0 else (low - more / 2, high + more / 2)
        return made

    def generous(self, times: float = 5.0) -> Population:
        """The same records, every range so many times too wide."""
        return replace(self, wide=dict.fromkeys(self.ranges, times))

    def tight(self) -> Population:
        return replace(self, wide={})

    def records(self, n: int, rng: Rng) -> tuple[Array, Array, Array, Array]:
        """Columns, probabilities of treatment, both outcomes side by side and the effect of each.

        The effect is the difference of the outcomes under the same noise, of means if outcomes are
        binary.
        """
        x = self.columns(rng, n)
        means = self.control(x)[:, None] + np.outer(self.effect(x), [0, 1])
        noise = self.tail.noise(rng, n)[:, None]
        both = np.clip(self.tail.about(means, noise), *self.ranges["y"])
        means = np.clip(means, *self.ranges["y"])
        effects = np.diff(means if self.tail.exact else both, axis=1)[:, 0]
        return x, expit(self.log_odds(x)), both, effects

    def arrays(self, n: int, rng: Rng) -> tuple[Array, Array, Array]:
        """Columns side by side, treatment, outcome."""
        x, odds, both, _ = self.records(n, rng)
        t = (rng.random(n) < odds).astype(int)
        return x, t, both[np.arange(n), t]

    def draw(self, n: int, rng: Rng) -> pd.DataFrame:
        """The records of `arrays` as a frame."""
        x, t, y = self.arrays(n, rng)
        return pd.DataFrame({"y": y, "t": t, **dict(zip(self.names, x.T, strict=True))})

    @cached_property
    def truths(self) -> dict[str, float]:
        """ATE, ATT and ATC of the population, by a million records of their own."""
        rng, sums = np.random.default_rng([STREAM, abs(self.seed), 1]), np.zeros((2, 3))
        for _ in range(LARGE // BLOCK):
            _, odds, _, effects = self.records(BLOCK, rng)
            weights = np.array([np.ones(BLOCK), odds, 1 - odds])
            sums += weights @ effects, weights.sum(axis=1)
        return dict(zip(("ATE", "ATT", "ATC"), (sums[0] / sums[1]).tolist(), strict=True))


# Columns: increasing functions of correlated normal variables

TYPES: dict[str, Callable[[Array], Array]] = {
    "normal": lambda z: z,
    "uniform": ndtr,
    "skewed": lambda z: np.exp(0.6 * z),
    "counts": lambda z: np.floor(2 * np.exp(0.6 * z)),
    "heavy": np.sinh,
}


def mixed(
    types: list[str], factor: Array, units: Array, cuts: Array
) -> tuple[Callable[[Rng, int], Array], dict[str, tuple[float, float]]]:
    """Columns of these types, and their ranges.

    ``factor`` times its transpose is the correlation of the normal variables; ``units`` multiply
    columns, and an indicator is 1 above its cut.
    """

    def column(j: int, z: Array) -> Array:
        return units[j] * TYPES[types[j]](z) if types[j] in TYPES else (z > cuts[j]).astype(float)

    def columns(rng: Rng, n: int) -> Array:
        z = np.clip(rng.standard_normal((n, len(types))) @ factor.T, -REACH, REACH)
        return np.column_stack([column(j, z[:, j]) for j in range(len(types))])

    ends = np.array([-REACH, REACH])
    ranges = {f"x{j + 1}": tuple(column(j, ends).tolist()) for j in range(len(types))}
    floors = {"uniform": 0.0, "skewed": 0.0, "counts": 0.0}
    return columns, {
        name: (floors.get(kind, low), high)
        for (name, (low, high)), kind in zip(ranges.items(), types, strict=True)
    }


def scaled(value: Function, pilot: Array) -> Function:
    """The function less its mean, over its sd, both in the pilot's records."""
    found = value(pilot)
    mean, sd = found.mean(), found.std()
    return lambda x: (value(x) - mean) / sd


def mix(bend: Function, line: Function, share: float, pilot: Array) -> Function:
    """Both functions with these shares of the variance, were they independent; scaled."""
    one, other = np.sqrt(share), np.sqrt(1 - share)
    return scaled(lambda x: one * bend(x) + other * line(x), pilot)


def friedman(v: Array) -> Array:
    """Friedman's function of five columns between 0 and 1."""
    sine = 10 * np.sin(np.pi * v[:, 0] * v[:, 1])
    return sine + 20 * (v[:, 2] - 0.5) ** 2 + 10 * v[:, 3] + 5 * v[:, 4]


BENDS = ("product", "square", "hinge", "step", "exp", "friedman")


def bend(shape: str, rng: Rng, pilot: Array, order: Array) -> Function:
    """A function of this shape, of the first columns in an order; scaled."""
    middle, spread, level = pilot.mean(axis=0), pilot.std(axis=0), rng.uniform(0.3, 0.7)
    sign = rng.choice([-1.0, 1.0])

    def cut(x: Array) -> Array:
        return np.clip((x - middle) / spread, -CUT, CUT)[:, order]

    knot, other = np.quantile(cut(pilot)[:, :2], level, axis=0)
    made: dict[str, Function] = {
        "product": lambda u: u[:, 0] * u[:, 1],
        "square": lambda u: u[:, 0] ** 2,
        "hinge": lambda u: np.maximum(u[:, 0] - knot, 0),
        "step": lambda u: 1.0 * (u[:, 0] > knot) - 0.8 * (u[:, 1] < other),
        "exp": lambda u: np.exp(0.6 * u[:, 0] + 0.4 * u[:, 1]),
        "friedman": lambda u: friedman(ndtr(u)),
    }
    return scaled(lambda x: sign * made[shape](cut(x)), pilot)


def solved(score: Array, share: float) -> float:
    """The constant of the log odds with which this share is treated."""
    low, high = -15.0, 15.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if expit(middle + score).mean() > share else (middle, high)
    return (low + high) / 2


@cache
def population(seed: int) -> Population:
    """The population of a seed."""
    rng, kind = np.random.default_rng([STREAM, seed]), KINDS[seed % len(KINDS)]
    p = int(rng.integers(3, 21))
    types = rng.choice([*TYPES, "binary"], p, p=[0.3, 0.2, 0.15, 0.1, 0.05, 0.2]).tolist()
    types[:2] = rng.choice(["normal", "uniform", "skewed", "counts"], 2).tolist()
    rho, lags = rng.uniform(-0.3, 0.6), np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    apart = np.minimum(lags, 1) if rho > 0.3 else lags
    columns, ranges = mixed(
        types,
        np.linalg.cholesky(rho**apart),
        10 ** rng.uniform(-1, 2, p),
        rng.uniform(-1.2, 1.2, p),
    )
    pilot = columns(np.random.default_rng([STREAM, seed, 2]), PILOT)
    spread = pilot.std(axis=0)
    first = rng.permutation(p)
    order, back = (
        way[np.argsort(np.array(types)[way] == "binary", kind="stable")]
        for way in (first, first[::-1])
    )

    def line(slopes: Array) -> Function:
        return scaled(lambda x: x @ (slopes / spread), pilot)

    shapes = [shape for shape in BENDS if shape != "friedman" or p >= 5]
    mild = np.where(np.isin(types, ["skewed", "heavy"]), 0.5, 1.0)
    towards = mild * rng.standard_normal(p) * np.maximum(rng.random(p) < 0.7, np.arange(p) == 0)
    aligned = rng.uniform(0.3, 0.9) * rng.choice([-1, 1])
    outwards = aligned * towards + np.sqrt(1 - aligned**2) * rng.standard_normal(p)
    score, control, said = line(towards), line(outwards), "lines"
    if kind == "bent":
        where = rng.choice(["score and outcome", "outcome", "score"], p=[0.7, 0.2, 0.1])
        shape, share = str(rng.choice(shapes)), rng.uniform(0.3, 0.9)
        bent = bend(shape, rng, pilot, order)
        score = mix(bent, score, share, pilot) if "score" in where else score
        control = mix(bent, control, share, pilot) if "outcome" in where else control
        said = f"{shape} ({share:.0%}) in {where}"
    treated = rng.uniform(0.05, 0.6)
    strength = rng.uniform(0.4, 1.5 if treated > 0.15 else 0.9)
    level = solved(strength * score(pilot), treated)
    size, more = rng.choice([-1, 1], 2) * rng.uniform(0.1, 0.5, 2)
    risky, other = np.quantile(score(pilot), 0.8), str(rng.choice(BENDS[:4]))
    varied, along = bend(other, rng, pilot, back), line(rng.standard_normal(p))
    turn = rng.choice([-1, 1])
    effects: dict[str, Function] = {
        "constant": lambda x: np.full(len(x), size),
        "linear": lambda x: size + more * along(x),
        "gentle U along the score": lambda x: size + 0.15 * turn * score(x) ** 2,
        "strong U along the score": lambda x: size + 0.5 * turn * score(x) ** 2,
        "high risk only": lambda x: 3 * size * (score(x) > risky),
        other: lambda x: size + more * varied(x),
    }
    allowed = {"right": slice(0, 2), "effect": slice(2, None), "bent": slice(None)}[kind]
    form = str(rng.choice(list(effects)[allowed]))
    effect = effects[form]
    tail = rng.choice(["normal", "t3", "costs", "binary"], p=[0.4, 0.2, 0.2, 0.2])
    r2 = rng.uniform(0.1, 0.6)
    sd = np.sqrt((1 - r2) / r2)
    ends = np.concatenate([control(pilot), control(pilot) + effect(pilot)])
    low, width = ends.min(), np.ptp(ends)
    unit = 10 ** rng.uniform(-1, 3)
    start, unit, made = {
        "normal": (unit * rng.uniform(-3, 10), unit, bell(sd * unit)),
        "t3": (unit * rng.uniform(-3, 10), unit, heavy(sd * unit)),
        "costs": (3 * unit * (0.1 - low / width), 3 * unit / width, costs(rng.uniform(0.4, 0.9))),
        "binary": (0.04 - 0.92 * low / width, 0.92 / width, COIN),
    }[str(tail)]
    too_wide = str(rng.choice(["nothing", "outcome", "covariates", "all"], p=[0.5, 0.2, 0.2, 0.1]))
    times = rng.uniform(4, 6)
    names = {"nothing": [], "outcome": ["y"], "covariates": [*ranges], "all": ["y", *ranges]}
    count = ", ".join(f"{number} {name}" for name, number in Counter(types).items())
    found = Population(
        seed,
        kind,
        f"{said}; effect {form}; {count} columns, correlation {rho:.1f}; {treated:.0%} treated, "
        f"log odds sd {strength:.1f}; {tail} outcome; {_declared(too_wide, times)}",
        columns,
        lambda x: level + strength * score(x),
        lambda x: start + unit * control(x),
        lambda x: unit * effect(x),
        made,
        {"y": (0, 1) if tail == "binary" else (-np.inf, np.inf), **ranges},
        dict.fromkeys(names[too_wide], times),
        frozenset(
            name
            for name, type_ in zip(["y", *ranges], [str(tail), *types], strict=True)
            if type_ == "binary"
        ),
    )
    return found if tail == "binary" else ranged(found)


def _declared(too_wide: str, times: float) -> str:
    """How the declared ranges compare with the true ones."""
    if too_wide == "nothing":
        return "declared ranges are right"
    whose = "all variables" if too_wide == "all" else f"the {too_wide}"
    return f"declared ranges of {whose} are {times:.1f} times too wide"


def ranged(given: Population) -> Population:
    """The same with the outcome's range in the pilot's records, from 0 if it is never below."""
    _, _, both, _ = given.records(PILOT, np.random.default_rng([STREAM, abs(given.seed), 3]))
    low = 0.0 if given.tail.name == "costs" else float(both.min())
    return replace(given, ranges={**given.ranges, "y": (low, float(both.max()))})
