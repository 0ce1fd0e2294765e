"""Capacity-limited nearest neighbours on a line, the kernel of propensity-score matching.

Algorithms 2 and 3 of PrivATE without their n_t x n_c matrix: the nearest neighbours of a record
are a window of the sorted opposite arm, and a limit on how often a record may be used is a walk
outwards past full candidates. Nothing here is private or random: scores, treatments and the order
of the records, which decides who is served first, must be public or already released. Then so are
the weights, and the exact sensitivity may be computed from them.

Equal scores, common with discrete covariates, would send a whole arm to the same few candidates.
So tied records of an arm are spread over 1e-9 of the range of the scores by multiples of the golden
ratio: evenly, which keeps the largest weight and so the sensitivity small, and out of data order,
so that `pairs` are not neighbours in the file. Scores without ties are left as they are.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.errors import DataError, OptionError

Indices = NDArray[np.int32]
_Arm = tuple[FloatArray, Indices]  # in score order: the scores, and which records they belong to
_GOLDEN = (math.sqrt(5) - 1) / 2
_SPREAD = 1e-9  # of the range of the scores
_PATIENCE = 0.1  # the share of an arm from which on it is quicker to walk all of it


@dataclass(frozen=True, eq=False)
class Matches:
    """Who is matched to whom, and how much weight that gives each record.

    Attributes
    ----------
    neighbours : (n, N) int32 array
        Indices into the whole sample, in no particular order; -1 where a record got fewer.
    found : (n,) int32 array
        ``|P(i)|``, how many each record got: at least 1 when the limits are feasible.

    Examples
    --------
    >>> m = match_into([0.1, 0.2, 0.6, 0.9], [1, 0, 1, 0], neighbours=1)
    >>> m.neighbours.ravel().tolist(), m.weight.tolist()
    ([0, 0, 2, 2], [2.0, 0.0, 2.0, 0.0])
    """

    neighbours: Indices
    found: Indices

    @cached_property
    def weight(self) -> FloatArray:
        """The sum of ``1 / |P(i)|`` over the records i matched to each record."""
        return self._gather(1)

    @cached_property
    def weight_sq(self) -> FloatArray:
        """The sum of ``1 / |P(i)|**2`` over the records i matched to each record."""
        return self._gather(2)

    @cached_property
    def used(self) -> IntArray:
        """How many records each record is matched to."""
        return self._gather(0).astype(np.int64)

    def only(self, some: BoolArray) -> "Matches":
        """Matches of some records alone."""
        return Matches(np.where(some[:, None], self.neighbours, -1), np.where(some, self.found, 0))

    def _gather(self, power: int) -> FloatArray:
        share = np.maximum(self.found, 1).astype(np.float64) ** -power
        total = np.zeros(len(self.found))
        for column in self.neighbours.T:  # by column: the memory stays O(n)
            total += np.bincount(column + 1, share, len(total) + 1)[1:]  # 0 is nobody
        return total


def match_into(
    scores: ArrayLike, members: ArrayLike, neighbours: int, limit: int | None = None
) -> Matches:
    """Match every other record to its nearest neighbours among the members of one arm.

    A member is matched to itself alone, so that everybody has an outcome of this arm.

    Parameters
    ----------
    scores, members : (n,) arrays
        Finite scores and who is in the arm (bool or 0/1), public or already released.
    neighbours : int
        N, how many neighbours each record gets if the arm has that many.
    limit : int, optional
        How often a member may be used by others, ``k * N``. Records are then served in data order,
        each by the nearest that still have room (Algorithm 3, lines 13-15). Of two at the same
        distance the lower score wins.

    Examples
    --------
    >>> m = match_into([0.5, 0.9, 0.4, 0.5, 0.6], [0, 0, 1, 1, 1], neighbours=1, limit=1)
    >>> m.neighbours.ravel().tolist()
    [3, 4, 2, 3, 4]
    """
    if neighbours < 1 or (limit is not None and limit < 1):
        raise OptionError("neighbours and limits must be at least 1.")
    inside, others = _arms(scores, members)
    table = np.full((np.size(members), neighbours), -1, dtype=np.int32)
    _serve(table, others, inside, limit)
    table[inside[1], 0] = inside[1]
    return Matches(table, np.count_nonzero(table >= 0, axis=1).astype(np.int32))


def match(
    scores: ArrayLike,
    treated: ArrayLike,
    neighbours: int,
    limits: Sequence[int | None] = (None, None),
) -> Matches:
    """Match every record to its nearest neighbours in the opposite of two arms, not to itself.

    ``limits`` say how often a treated record and a control may be used.

    Examples
    --------
    >>> m = match([0.5, 0.9, 0.4, 0.5, 0.6], [1, 1, 0, 0, 0], neighbours=1, limits=(2, 2))
    >>> m.neighbours.ravel().tolist()
    [3, 4, 0, 0, 1]
    """
    flag = np.asarray(treated)
    to_treated = match_into(scores, flag, neighbours, limits[0]).neighbours
    to_control = match_into(scores, 1 - flag.astype(int), neighbours, limits[1]).neighbours
    table = np.where((flag == 1)[:, None], to_control, to_treated)
    return Matches(table, np.count_nonzero(table >= 0, axis=1).astype(np.int32))


def pairs(scores: ArrayLike, treated: ArrayLike) -> Indices:
    """Pair adjacent records of the same arm in score order, ties spread as in `match_into`.

    Returns each record's partner, for a variance: disjoint pairs, -1 for the last of an odd arm.

    Examples
    --------
    >>> pairs([0.1, 0.9, 0.2, 0.3, 0.7], [1, 0, 1, 1, 0]).tolist()
    [2, 4, 0, -1, 1]
    """
    partner = np.full(np.size(treated), -1, dtype=np.int32)
    for _, records in _arms(scores, treated):
        first, second = records[: len(records) // 2 * 2].reshape(-1, 2).T
        partner[first], partner[second] = second, first
    return partner


def match_limit(
    count: int,
    others: int,
    neighbours: int,
    most_used: int,
    epsilon: float,
    coefficient: float,
    capped: bool,
) -> int:
    """Choose k for the records of an arm: equations 9-12, made `feasible`.

    Parameters
    ----------
    count, others, neighbours, most_used : int
        Records of the arm and of all others, N, and M, the most any record is used by others
        without limits.
    epsilon, coefficient : float
        The budget of the sums, and the error coefficient (c, or h at sample level).
    capped : bool
        True at label level: no limit above M / N, rounded up to an integer (equation 10).

    Examples
    --------
    >>> match_limit(200, 800, 5, most_used=60, epsilon=1.0, coefficient=0.01, capped=True)
    7
    >>> match_limit(800, 200, 5, most_used=60, epsilon=1.0, coefficient=0.01, capped=True)
    2
    """
    if min(count, others, neighbours, most_used, epsilon, coefficient) <= 0:
        raise OptionError("Counts, neighbours, epsilon and the coefficient must be positive.")
    most = most_used / neighbours
    limit = max(round(math.sqrt(epsilon * coefficient * max(count, others) * most / 2)), 1)
    if capped:
        limit = min(limit, math.ceil(most))
    if count > others:
        limit = max(1, round(limit * others / count))
    return feasible(limit, count, others)


def feasible(limit: int, count: int, others: int) -> int:
    """Raise a limit so far that nobody is left without a neighbour.

    With k >= others / count the arm has k N count >= N others places, and the others before the
    last take at most N (others - 1). The paper's printed sensitivity is false without it.

    Examples
    --------
    >>> feasible(1, count=30, others=100)
    4
    """
    if min(limit, count, others) < 1:
        raise OptionError("Match limits and the size of each arm must be at least 1.")
    return max(limit, -(-others // count))


def _arms(scores: ArrayLike, treated: ArrayLike) -> tuple[_Arm, _Arm]:
    """Sort the treated and the controls by score, ties spread."""
    score, flag = np.asarray(scores, dtype=np.float64), np.asarray(treated)
    if score.ndim != 1 or score.shape != flag.shape:
        raise DataError("Scores and treatments must be vectors of the same length.")
    arms = np.flatnonzero(flag == 1), np.flatnonzero(flag == 0)
    if not (len(arms[0]) and len(arms[1]) and len(arms[0]) + len(arms[1]) == len(flag)):
        raise DataError("Treatments must be 0 or 1, and both must occur.")
    if not np.abs(score).max() < 1e300:  # nor may their range overflow
        raise DataError("Scores must be finite.")
    unit = (score - score.min()) / (np.ptp(score) or 1.0)
    return _sort(unit, arms[0]), _sort(unit, arms[1])


def _sort(unit: FloatArray, members: IntArray) -> _Arm:
    records = members[np.argsort(unit[members], kind="stable")].astype(np.int32)
    value, place = unit[records], np.arange(len(records))
    fresh = np.diff(value, prepend=-1.0) > 0
    if fresh.all():
        return value, records
    rank = place - np.maximum.accumulate(np.where(fresh, place, 0))
    value += _SPREAD * (rank * _GOLDEN % 1)
    order = np.argsort(value, kind="stable")
    return value[order], records[order]


def _serve(table: Indices, queries: _Arm, candidates: _Arm, limit: int | None) -> None:
    """Write the neighbours of one arm into its rows of the table."""
    line, records = candidates
    size = min(table.shape[1], len(line))
    starts = _windows(line, queries[0], size)
    for k in range(size):
        table[queries[1], k] = records[starts + k]
    if limit is not None:
        rows, picks = _reroute(line, *queries, starts, size, limit)
        table[rows, :size] = np.where(picks < 0, -1, records[picks])


def _windows(candidates: FloatArray, queries: FloatArray, size: int) -> IntArray:
    """Find where the window of the `size` nearest candidates of each query begins."""
    place = np.searchsorted(candidates, queries)
    low, high = np.maximum(place - size, 0), np.minimum(place, len(candidates) - size)
    padded = np.append(candidates, np.inf)
    for _ in range(size.bit_length()):
        middle = (low + high) // 2  # a window moves right while its first is farther than the next
        moves = queries - padded[middle] > padded[middle + size] - queries
        low, high = np.where(moves, middle + 1, low), np.where(moves, high, middle)
    return low


def _cover(starts: IntArray, stops: IntArray, length: int) -> IntArray:
    """Count how many of the intervals [start, stop) cover each position."""
    steps = np.bincount(starts, minlength=length + 1) - np.bincount(stops, minlength=length + 1)
    return np.cumsum(steps[:length])


def _reroute(
    line: FloatArray, points: FloatArray, records: Indices, starts: IntArray, size: int, limit: int
) -> tuple[Indices, Indices]:
    """Serve in data order under a limit; return the records that left their window, and for what.

    Only records whose window touches a suspect, a candidate that may fill up, are walked; the
    others keep their windows. If then nobody is used more than the limit, this is the greedy match.
    A candidate in no kept window is used by walked records alone, whose turns are exact. Any other
    one is walked to less than its limit, and has room at each use with the kept ones counted in, so
    it turns nobody away. Otherwise the overused become suspects. A superset does no harm, so their
    reach doubles to keep the rounds few, and soon everybody is walked.
    """
    count, stops, reach = len(line), starts + size, size
    suspect = _cover(starts, stops, count) > limit
    while suspect.any():
        before = np.append(0, np.cumsum(suspect))
        walks = before[stops] > before[starts]
        walks |= walks.mean() > _PATIENCE
        turns = np.flatnonzero(walks)
        turns = turns[np.argsort(records[turns])]
        used, moved, picks = _greedy(line, points[turns], starts[turns], size, limit)
        over = used + _cover(starts[~walks], stops[~walks], count) > limit
        if not over.any():
            return records[turns[moved]], picks
        seeds = np.flatnonzero(suspect | over)
        ends = np.maximum(seeds - reach, 0), np.minimum(seeds + reach + 1, count)
        suspect, reach = _cover(*ends, count) > 0, 2 * reach
    return records[:0], np.empty((0, size), dtype=np.int32)


def _greedy(
    candidates: FloatArray, queries: FloatArray, starts: IntArray, size: int, limit: int
) -> tuple[IntArray, IntArray, Indices]:
    """Serve the queries in turn; return each candidate's use, who left their window, and for what.

    Positions are shifted by one to fit a sentinel at either end. `lower[j]` leads to the nearest
    candidate with room at or below j, `upper[j]` at or above: union-find with path halving, which
    crosses a long run of full candidates in a few steps.
    """
    line: list[float] = [-math.inf, *candidates.tolist(), math.inf]
    lower, upper, full = list(range(len(line))), list(range(len(line))), bytearray(len(line))
    used, moved, picks = [0] * len(line), array("q"), array("i")
    places = np.searchsorted(candidates, queries).tolist()
    turns = zip((starts + 1).tolist(), places, queries.tolist(), strict=True)
    for turn, (start, low, query) in enumerate(turns):
        chosen: range | list[int] = range(start, start + size)
        if full.find(1, start, start + size) >= 0:
            high, taken = low + 1, list[int]()
            while len(taken) < size:
                while lower[low] != low:
                    lower[low] = low = lower[lower[low]]
                while upper[high] != high:
                    upper[high] = high = upper[upper[high]]
                if query - line[low] > line[high] - query:
                    taken.append(high)
                    high += 1
                elif low:
                    taken.append(low)
                    low -= 1
                else:  # both sentinels: nobody has room
                    break
            moved.append(turn)
            picks.extend(taken + [0] * (size - len(taken)))
            chosen = taken
        for j in chosen:
            used[j] = uses = used[j] + 1
            if uses == limit:
                full[j], lower[j], upper[j] = 1, j - 1, j + 1
    table = np.array(picks, dtype=np.int32).reshape(-1, size) - 1
    return np.array(used[1:-1]), np.array(moved, dtype=np.int64), table
