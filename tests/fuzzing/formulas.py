"""Formulas of a valid grammar, over columns with names and ranges as odd as they come."""

from __future__ import annotations

import random
import re

import numpy as np
import pandas as pd

NUMERIC = {
    "x": (0.5, 3.5),
    "z": (-2.0, 5.0),
    "a|b": (0.0, 1.0),
    "a~b": (1.0, 2.0),
    "größe": (1.0, 200.0),
    "weight (kg)": (0.001, 1000.0),
    "1st": (0.0, 1.0),
    "a:b": (0.0, 10.0),
    "if": (0.0, 1.0),
    "x.1": (-1.0, 1.0),
    "__0": (0.0, 1.0),
    "tiny": (1e-300, 3e-300),
    "huge": (0.0, 1e300),
    "whole": (-(2**53), 2**53),
}
LEVELS = {
    "g": ["a", "b", "c"],
    "region N/S": ["N", "S"],
    "k": [1, 2, 3],
    "flag": [False, True],
    "q'uote": ["it's", 'say "x"', "a]b[c", "é"],
}
OUTCOMES = {"y": (0.0, 1.0), "y|2": (-10.0, 10.0), "y ~ t": (0.0, 100.0)}
TREATMENTS = (
    *("t", "C(t, levels=[0, 1])", "C(arm, levels=['no', 'yes'])", "`treat|ed`"),
    *("I(t > 0)", "I(1 - (`treat|ed` == 0))", "cut(t, [0, 0.5, 1])"),
)
BOUNDS = {**NUMERIC, **LEVELS, **OUTCOMES}
FUNCTIONS = ("log", "log2", "log10", "log1p", "sqrt", "exp", "expm1", "abs")
NUMBERS = (
    *("0", "1", "2", "3", "0.5", "2.5", "-1", "-0.0", "10", "100", "7e-3", "1_000"),
    *("1e300", "1e-300", "5e-324", "1e16", "9007199254740993", "0.1", "1e-17", "123456789.125"),
)


def frame(chance: random.Random, n: int) -> pd.DataFrame:
    """Well-formed data with all columns; both arms are there."""
    made: dict[str, object] = {
        name: [low + (high - low) * chance.random() for _ in range(n)]
        for name, (low, high) in (NUMERIC | OUTCOMES).items()
    }
    made["whole"] = [chance.randrange(-(2**53), 2**53) for _ in range(n)]
    for name, levels in LEVELS.items():
        made[name] = [chance.choice(levels) for _ in range(n)]
    treated = np.arange(n) % 2
    arms = np.where(treated, "yes", "no")
    return pd.DataFrame({**made, "t": treated, "arm": arms, "treat|ed": treated == 1})


def quoted(name: str) -> str:
    """A name as a formula takes it."""
    return name if re.fullmatch(r"[a-zé-ü]\w*", name) and name != "if" else f"`{name}`"


class Grammar:
    """One formula after another from a generator of random numbers."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def formula(self) -> str:
        """Outcome, treatment and covariates."""
        outcome, treatment = self.outcome(), self.chance.choice(TREATMENTS)
        space = self.chance.choice(["", " ", "  ", "\n"])
        text = f"{outcome}{space}~{space}{treatment}"
        return text if self.chance.random() < 0.03 else f"{text}{space}|{space}{self.covariates()}"

    def strata(self) -> str:
        """Outcome, treatment and discrete covariates."""
        return f"{self.outcome()} ~ {self.chance.choice(TREATMENTS)} | {self.groups()}"

    def groups(self) -> str:
        """Discrete terms."""
        return " + ".join(self.discrete() for _ in range(self.chance.choice([1, 1, 2, 3])))

    def outcome(self) -> str:
        if self.chance.random() < 0.6:
            return quoted(self.chance.choice(list(OUTCOMES)))
        shape = self.chance.choice(["I({})", "abs({})", "exp({})", "log({} + 20)", "I({} > 0.5)"])
        names = [*map(quoted, OUTCOMES), "x", f"{quoted('y|2')} - x"]
        inside = self.chance.choice([*names, self.expression(2)])
        return shape.format(inside)

    def covariates(self) -> str:
        text = self.terms(2)
        return text + self.chance.choice(["", "", "", "", " - 1", " + 0", " + 1"])

    def terms(self, depth: int) -> str:
        kind = self.chance.random() if depth else 0.0
        if kind < 0.35:
            return self.factor()
        if kind < 0.7:
            return f"{self.terms(depth - 1)} + {self.terms(depth - 1)}"
        if kind < 0.85:
            return f"{self.factor()}{self.chance.choice([':', ' * '])}{self.factor()}"
        if kind < 0.93:
            inside = f"{self.factor()} + {self.factor()}"
            return f"({inside}){self.chance.choice(['**2', '**3', ':' + self.factor()])}"
        factor = self.factor()
        return f"{factor} + {self.terms(depth - 1)} - {factor}"

    def factor(self) -> str:
        kind = self.chance.random()
        if kind < 0.3:
            return quoted(self.chance.choice(list(NUMERIC)))
        if kind < 0.5:
            return f"I({self.expression(3)})"
        if kind < 0.6:
            return f"{self.chance.choice(FUNCTIONS)}({self.expression(2)})"
        return self.discrete() if kind < 0.9 else self.spline()

    def discrete(self) -> str:
        kind = self.chance.random()
        name = self.chance.choice(list(LEVELS))
        if kind < 0.3:
            return quoted(name)
        if kind < 0.35:
            return f"is_na({quoted(self.chance.choice([name, *NUMERIC]))})"
        if kind < 0.4:
            return f"C({quoted(name)})"
        if kind < 0.6:
            levels = list(LEVELS[name])
            self.chance.shuffle(levels)
            return f"C({quoted(name)}, levels={levels!r})"
        points = sorted(set(map(float, self.some(NUMBERS, 2, 6))) | {0.0, 1.5})
        return f"cut({self.expression(1)}, {points!r})"

    def spline(self) -> str:
        inner = sorted({round(self.chance.uniform(0.1, 0.9), 2) for _ in range(3)})
        ends = self.chance.choice([(0.0, 1.0), (-2.0, 5.0), (0.0, 1e300), (-1e-300, 1.0)])
        knots = self.chance.choice([inner, inner[:1], []])
        more = self.chance.choice(["", ", degree=1", ", degree=10", ", include_intercept=True"])
        bounds = f"lower_bound={ends[0]!r}, upper_bound={ends[1]!r}"
        return f"bs({self.expression(1)}, knots={knots!r}, {bounds}{more})"

    def expression(self, depth: int) -> str:
        kind = self.chance.random() if depth else 0.0
        if kind < 0.3:
            return quoted(self.chance.choice(list(NUMERIC)))
        if kind < 0.35:
            return self.chance.choice(NUMBERS)
        left = self.expression(depth - 1)
        if kind < 0.7:
            operator = self.chance.choice("+-*/")
            return f"({left} {operator} {self.chance.choice([self.expression(depth - 1), '2'])})"
        if kind < 0.8:
            return f"{self.chance.choice(FUNCTIONS)}({left})"
        if kind < 0.9:
            power = self.chance.choice(["2", "3", "0.5", "-1", "0", "1e3", "-0.5", "17"])
            return f"({left}) ** {power}"
        if kind < 0.95:
            sign = self.chance.choice(["<", "<=", ">", ">=", "==", "!="])
            return f"({left} {sign} {self.chance.choice(NUMBERS)})"
        return f"-{left}"

    def some(self, pool: tuple[str, ...], least: int, most: int) -> list[str]:
        return self.chance.sample(pool, self.chance.randint(least, most))
