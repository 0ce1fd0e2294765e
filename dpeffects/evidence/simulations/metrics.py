"""How far estimated effects are from a truth that is known because the data were simulated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.errors import OptionError


def pehe(effect: Any, truth: Any) -> float:
    """Precision in estimating heterogeneous effects: the root mean squared error of effects.

    It needs true effects (``mu1 - mu0`` of :func:`simulate`), so it is for simulations only; of
    private rows it is not a private release.

    Parameters
    ----------
    effect
        Estimated effect of each person.
    truth
        True effect of each person, in the same order; the index of a Series is ignored.

    Returns
    -------
    float
        sqrt(mean((effect - truth)^2)), in units of the outcome; 0 is best. The best constant has
        the standard deviation of the true effects.

    References
    ----------
    Hill (2011), Bayesian nonparametric modeling for causal inference, Journal of Computational and
    Graphical Statistics 20(1).

    Examples
    --------
    >>> pehe([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 2.0])
    1.0
    """
    estimated, true = _effects("effect", effect), _effects("truth", truth)
    if len(estimated) != len(true):
        raise OptionError(
            f"effect and truth must have the same length, got {len(estimated)} and {len(true)}"
        )
    return math.sqrt(float(np.mean((estimated - true) ** 2)))


def _effects(name: str, values: Any) -> npt.NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise OptionError(f"{name} must be numbers, one per person") from None
    if array.ndim != 1:
        raise OptionError(f"{name} must have one dimension, got shape {array.shape}")
    if not len(array):
        raise OptionError(f"{name} must not be empty")
    if not np.isfinite(array).all():
        raise OptionError(f"{name} must be finite, without missing values")
    return array
