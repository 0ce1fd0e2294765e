"""Samples from a data set that is taken as the population."""

from __future__ import annotations

import numpy as np

from dpeffects.design.bounds import Declared, declare


def resampled(data: Declared, n: int, seed: int) -> Declared:
    """Draw n rows with replacement; the declared bounds stay.

    Examples
    --------
    >>> from dpeffects.datasets import load_data
    >>> len(resampled(load_data("lalonde"), 100, seed=1))
    100
    """
    rows = np.random.default_rng(seed).integers(len(data.frame), size=n)
    return declare(data.frame.iloc[rows].reset_index(drop=True), data.bounds)
