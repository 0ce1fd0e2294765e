"""Curators without noise, and how far one record moves what they would release."""

import numpy as np

from dpeffects.design.bounds import MAGNITUDES
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.noise import NoiseSource
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Block, Rows

SHARES = dict.fromkeys(("a", "bounds"), Share(1.0))


class Bare(NoiseSource):
    """No noise: keeps what would have been noised, and the sensitivity that was declared."""

    description, void = "none", ("no noise",)

    def __init__(self):
        self.values, self.sensitivity = [], []

    def laplace(self, values, scale, sensitivity, epsilon):
        assert sensitivity / scale <= epsilon
        self.values.append(values.copy())
        self.sensitivity.append(sensitivity)
        return values

    def cubes(self, values, scale, sensitivity, epsilon):
        return self.laplace(values, scale, sensitivity, epsilon)

    def gaussian(self, values, scale):
        self.values.append(values.copy())
        self.sensitivity.append(scale)
        return values

    def flip(self, bits, epsilon):
        self.values.append(bits.astype(np.int64))
        self.sensitivity.append(1)
        return bits

    def respond(self, codes, levels, epsilon):
        self.values.append(codes.copy())
        self.sensitivity.append(levels - 1)
        return codes

    def permutation(self, n):
        return np.arange(n)


def curator(y, t, x=None, *, limits=(0.0, 1.0), public=(), strata=None, ledger=None, arms=2):
    """Rows with shares "a" and "bounds", and the noise; ``strata`` come with their count.

    Of more than two ``arms``, t has the numbers.
    """
    x = np.zeros((len(y), 1)) if x is None else x
    of_strata = None if strata is None else lambda: strata
    more = {} if arms == 2 else {"arm": t, "arms": arms}
    rows = Rows(np.clip(y, *limits), limits, t > 0, lambda: x, x.shape[1], of_strata, **more)
    noise = Bare()
    releaser = Releaser(Split(SHARES), ledger or CallLedger(Budget(1e9)), noise)
    return Curator(rows, releaser, frozenset(public)), noise


def change(one, two, call):
    """Largest L1 distance of what two curators would noise, over the declared sensitivity."""
    (first, noise1), (second, noise2) = one, two
    call(first)
    call(second)
    assert noise1.sensitivity == noise2.sensitivity, "the sensitivity depends on private data"
    drawn = zip(noise1.values, noise2.values, noise1.sensitivity, strict=True)
    return max(np.abs(a.astype(float) - b).sum() / bound for a, b, bound in drawn)


def replaced(rng, y, t, x, j):
    """The same rows with another record at place j."""
    y, t, x = y.copy(), t.copy(), x.copy()
    y[j] = rng.choice([0.0, 1.0, rng.random()])
    t[j] = rng.random() < 0.5
    x[j] = rng.choice([0.0, 1.0], x.shape[1]) if rng.random() < 0.5 else rng.random(x.shape[1])
    return y, t, x


def magnitude_counts(values, bins=MAGNITUDES):
    """Records by bin of magnitude, as the private search for bounds counts them."""
    return np.bincount(bins.of(Block(outcome=values)), minlength=bins.size)
