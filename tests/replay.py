"""Replay: a call is run on a dataset and repeated on a neighbour, with its releases frozen.

On the second run every release returns what it returned on the first, so everything computed from
released values must come out the same: results, texts, warnings, charges and failures. What is
under the noise may move by at most what is declared, in the norm that is declared. That is what
adaptive composition asks of every release.

The two tables may be in different orders. The curator's secret order of the rows is uniform, so
each order of the first table is as likely as the order of the second in which the same records
come at the same places; the second run gets that one.
"""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from dpeffects.errors import DPEffectsError
from dpeffects.evidence.auditing.attack import leaves
from dpeffects.evidence.auditing.recording import gradient, log_volume
from dpeffects.ledgers.memory import Ledger
from dpeffects.privacy.ladder import PARTS, Ladder, LadderPace
from dpeffects.privacy.private_minimisation import largest_noise
from dpeffects.privacy.release import Releaser
from dpeffects.seeded import SeededNoise
from tests.privacy.hostile import in_its_shape

_WIDER = 1.0 + 1e-9
"""What `minimise` adds to the norms of a gradient, for rounding."""


class Diverged(BaseException):
    """The second run drew or charged something else; no handler of errors may swallow this."""


class Frozen(SeededNoise):
    """Noise that keeps its draws, and repeats them on a second run.

    ``violations`` lists what moved by more than declared; ``moves`` the largest ratio of a move and
    what was declared, by label. ``orders`` has the place in the second table of each record of the
    first, for each table whose rows are put in order (a site has its own).
    """

    description = "replayed"
    void = ("replayed",)

    def __init__(self, seed: int = 0, orders: Sequence[Any] = ()) -> None:
        self._source, self.orders = SeededNoise(seed), orders
        self._tape: list[tuple[Any, Any]] = []
        self._place: int | None = None
        self.violations: list[str] = []
        self.moves: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        """Begin a run."""
        self.charged, self.permutations, self._ordered = False, 0, 0
        self.ledgers: list[Ledger] = []

    def again(self) -> Frozen:
        """Begin the second run."""
        self._place = 0
        self.start()
        return self

    def finished(self) -> None:
        """Note a second run that released less than the first."""
        if self._place is not None and self._place < len(self._tape):
            self.violations.append(f"ends before {self._tape[self._place][0]}")

    def ledger(self) -> Ledger:
        """Return an account that is looked at after the call, however it ends."""
        self.ledgers.append(Ledger(100.0, 0.1))
        return self.ledgers[-1]

    def next(self, kind: Any, make: Callable[[], Any]) -> Any:
        """Return something, and the same on the second run, where it must be of the same kind."""
        if self._place is None:
            self._tape.append((kind, make()))
            return self._tape[-1][1]
        was, kept = self._tape[self._place] if self._place < len(self._tape) else ("the end", None)
        if was != kind:
            self.violations.append(f"{kind} where the neighbour has {was}")
            raise Diverged
        self._place += 1
        return kept

    def hold(self, label: str, moved: float, declared: float) -> None:
        """Compare a move with what is declared."""
        if not moved <= declared:
            self.violations.append(f"{label}: moved by {moved:.6g}, declared {declared:.6g}")
        ratio = float(moved / declared) if declared else (math.inf if moved else 0.0)
        self.moves[label] = max(self.moves.get(label, 0.0), ratio)

    def laplace(self, values, scale, sensitivity, epsilon):
        kind = ("laplace", values.shape, scale, sensitivity, epsilon)
        return self.next(kind, lambda: self._source.laplace(values, scale, sensitivity, epsilon))

    def gaussian(self, values, scale):
        kind = ("gaussian", values.shape, scale)
        return self.next(kind, lambda: self._source.gaussian(values, scale))

    def matrices(self, values, scale, top):
        kind = ("matrices", values.shape, scale, top)
        return self.next(kind, lambda: self._source.matrices(values, scale, top))

    def cubes(self, values, *rest):
        return self.next(("cubes", values.shape, *rest), lambda: self._source.cubes(values, *rest))

    def flip(self, bits, epsilon):
        kind = ("flip", bits.shape, epsilon)
        return self.next(kind, lambda: self._source.flip(bits, epsilon))

    def respond(self, codes, *rest):
        kind = ("respond", codes.shape, *rest)
        return self.next(kind, lambda: self._source.respond(codes, *rest))

    def along(self, ladder):
        return self.next(("along", ladder.pace, ladder.ends), lambda: self._source.along(ladder))

    def permutation(self, n):
        drawn = self.next(("order", n), lambda: self._source.permutation(n))
        self.permutations += 1
        if self._place is None or not self.orders:
            return drawn
        places = self.orders[self._ordered % len(self.orders)]
        if n != len(places):
            return drawn  # of a part of rows that are in the secret order already
        self._ordered += 1
        return places[drawn]


class Measuring(Releaser):
    """Compares what is under the noise with what is declared."""

    _noise: Frozen

    def release(self, label, steps, **rest):
        """The L1 change against the L1 sensitivity, the L2 change against that in L2."""
        values, moves, unit, *_ = steps
        moved = self._moved(("release", label, values.shape, moves, unit), values)
        self._noise.hold(f"{label} (L2)", math.sqrt(int((moved**2).sum())), moves.l2)
        self._noise.hold(label, int(moved.sum()), moves.l1)
        return super().release(label, steps, **rest)

    def laplace(self, label, steps, *price, **rest):
        """Also for what does not come by `release`; noise with a shape has a norm of its own."""
        values, (l1, _), unit, shape = steps
        if shape is not None:
            before = self._noise.next(("shaped", label, steps[1:], price), values.copy)
            moved = in_its_shape(shape, values, before)
            self._noise.hold(f"{label} (shape)", moved, _WIDER)
            return super().laplace(label, steps, *price, **rest)
        moved = self._moved(("laplace", label, values.shape, l1, unit, price), values)
        self._noise.hold(label, int(moved.sum()), max(l1, 1))
        noisy = super().laplace(label, steps, *price, **rest)
        return self._as_declared(noisy, (max(l1, 1) * unit,))

    def gaussian(self, label, steps, sigma, *price, **rest):
        """A scale that is claimed, not proved, has no sensitivity."""
        values, (_, l2), unit, *_ = steps
        moved = self._moved(("gaussian", label, values.shape, l2, sigma, unit, price), values)
        if math.isfinite(l2):
            self._noise.hold(f"{label} (L2)", math.sqrt(int((moved**2).sum())), l2)
        noisy = super().gaussian(label, steps, sigma, *price, **rest)
        return self._as_declared(noisy, (l2 * unit,) if math.isfinite(l2) else ())

    def _moved(self, kind, values):
        before = self._noise.next(kind, values.copy)
        return np.abs(values.astype(object) - before.astype(object)).reshape(-1)

    def _as_declared(self, noisy, sensitivity):
        charge = noisy.charge
        if charge.sensitivity != sensitivity or charge.scale != (noisy.scale,):
            self._noise.violations.append(f"{charge.label}: its charge shows other numbers")
        return noisy

    def smooth_laplace(self, label, private, shown, **rest):
        """The change of the value against both smooth sensitivities, of their logs against beta."""
        value, smooth = private.value, private.smooth
        kind = ("smooth", label, private.unit, private.lattice, private.smoothing, shown)
        before, other = self._noise.next(kind, lambda: (value, smooth))
        self._noise.hold(label, abs(value - before), min(smooth, other))
        beta = private.smoothing.beta
        self._noise.hold(f"{label} (log)", abs(math.log(smooth / other)), beta)
        noisy = super().smooth_laplace(label, private, shown, **rest)
        return replace(noisy, value=self._noise.next(("smooth draw", label), lambda: noisy.value))

    def along(self, label, value, levels, ends, smoothing, **rest):
        """The change against both first rungs, each rung against the neighbour's next one."""
        own = Ladder.of(value, levels, ends, LadderPace.of(1.0, smoothing))
        other = self._noise.next(("along", label, ends, smoothing), lambda: own)
        for one, two in ((own, other), (other, own)):
            self._noise.hold(label, abs(own.place - other.place), PARTS * one.width(0))
            for k in range(len(one.rungs)):
                self._noise.hold(f"{label} (ladder)", one.width(k), two.width(k + 1))
        return super().along(label, value, levels, ends, smoothing, **rest)

    def respond(self, label, codes, levels, **rest):
        """A record has one bit, or one code."""
        before = self._noise.next(("codes", label, codes.shape, levels), codes.copy)
        self._noise.hold(label, int((before != codes).sum()), 1)
        return super().respond(label, codes, levels, **rest)

    def minimise_perturbed(self, fit, hidden):
        """Noise in an objective is not added to a value: it is what makes the weights a minimum.

        So on the second run the weights are those of the first, and what moves is the noise that
        they would take: the sum of the gradients at them. The problem is solved on both runs, as
        far as the distance that the small noise on the weights is made for.
        """
        own, problem = super().minimise_perturbed(fit, hidden), fit.problem
        rest = gradient(fit, own) + problem.strength * own + hidden.value
        largest = largest_noise(hidden.scale, own.size, hidden.gaussian)
        error = problem.solver_error(fit.curator.units, largest)
        self._noise.hold("solver", float(np.linalg.norm(rest)) / problem.strength, error)
        weights = self._noise.next(("minimiser", own.shape), lambda: own)
        there, bound = gradient(fit, weights), problem.gradient_bound
        change = there - self._noise.next(("gradient", bound), lambda: there)
        l1, l2 = (2.0 * size * _WIDER for size in bound)
        self._noise.hold("gradient", float(np.abs(change).sum()), l1)
        self._noise.hold("gradient (L2)", float(np.linalg.norm(change)), l2)
        volume = log_volume(fit, weights)
        before = self._noise.next(("volume", fit.volume), lambda: volume)
        self._noise.hold("volume", abs(volume - before), fit.volume)
        return weights

    def charge(self, charge):
        super().charge(charge)
        self._noise.charged = True
        self._noise.next(("charge", charge), lambda: None)


@dataclass(frozen=True)
class Replayed:
    """What a replay found.

    ``permutations`` counts the secret orders that a run drew; ``refused`` says why a run ended
    before its first charge, if one did, ``failed`` why the first run ended after it.
    """

    violations: tuple[str, ...]
    moves: dict[str, float]
    permutations: int = 0
    refused: str = ""
    failed: str = ""

    @property
    def largest(self) -> float:
        """Largest ratio of a move and what was declared."""
        return max(self.moves.values(), default=0.0)


def replay(
    call: Callable[[Any, Frozen], Any],
    one: Any,
    other: Any,
    *,
    seed: int = 0,
    orders: Sequence[Any] = (),
    never_refuses: bool = False,
) -> Replayed:
    """Run ``call(data, noise)`` on both of two neighbours.

    A refusal before the first charge goes to the curator, who is trusted; a call that answers
    somebody else (``never_refuses``) has to give the same refusal on both.
    """
    noise = Frozen(seed, orders)
    first, why = _run(noise, call, one)
    if why and never_refuses:
        _, second_why = _run(Frozen(seed), call, other)
        if why != second_why:
            noise.violations.append(f"refused on one: {why} / {second_why or 'answered'}")
    if why:
        return Replayed(tuple(noise.violations), noise.moves, noise.permutations, why)
    second, why = _run(noise.again(), call, other)
    if why and never_refuses:
        noise.violations.append(f"refused on one: {why}")
    if second is not None:
        noise.finished()
        noise.violations.extend(_differences(first, second))
    failed = first[1]["raised"] if first else ""
    return Replayed(tuple(noise.violations), noise.moves, noise.permutations, why, failed)


def _run(noise: Frozen, call: Callable[[Any, Frozen], Any], data: Any) -> tuple[Any, str]:
    """Everything that leaves a call, or why it was refused; nothing where it diverged."""
    result, raised = None, ""
    with (
        warnings.catch_warnings(record=True) as caught,
        mock.patch("dpeffects.flow.noise_source", return_value=noise),
        mock.patch("dpeffects.flow.Releaser", Measuring),
    ):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what earlier tests left behind
        try:
            result = call(data, noise)
        except Diverged:
            return None, ""
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
            if not isinstance(error, DPEffectsError):
                noise.violations.append(f"raised {raised}")
            if not noise.charged:
                return None, raised
    told = [str(method_warnings.message) for method_warnings in caught]
    accounts = [[repr(ledger), ledger.charges] for ledger in noise.ledgers]
    return (result, {"raised": raised, "warnings": told, "accounts": accounts}), ""


def _differences(first: Any, second: Any) -> list[str]:
    """Names of what is shown differently; results with the same bytes show the same."""
    pairs = [first[1:], second[1:]]
    if pickle.dumps(first[0]) != pickle.dumps(second[0]):
        pairs = [(_everything(result), rest) for result, rest in (first, second)]
    (names, numbers), (other, others) = map(leaves, pairs)
    if names != other:
        return [f"shown on one only: {sorted(set(names) ^ set(other))[:3]}"]
    shown = zip(names, numbers, others, strict=True)
    differ = [name for name, a, b in shown if a != b and not (a != a and b != b)]
    return [f"shown differently: {differ[:3]}"] if differ else []


def _everything(result: Any) -> dict[str, Any]:
    """A result's fields, dictionary, texts and tables."""
    shown: dict[str, Any] = {"fields": result, "text": str(result), "repr": repr(result)}
    if hasattr(result, "summary"):
        shown["summary"] = str(result.summary())
    if hasattr(result, "to_dict"):
        shown["dict"] = result.to_dict()
    if hasattr(result, "report"):
        shown["report"] = str(result.report())
    for table in ("tidy", "glance"):
        if hasattr(result, table):
            shown[table] = getattr(result, table)().to_dict("list")
    return shown
