"""A scikit-learn model that a user gives: checked, shown by its short text, fitted as a copy."""

from __future__ import annotations

import copy
import inspect
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray
from dpeffects.errors import EstimationError, OptionError

Predict = Callable[[FloatArray], FloatArray]
_REGRESSOR = "regressor such as RandomForestRegressor()"
_CLASSIFIER = "classifier such as LogisticRegression()"


class ModelTemplate:
    """An unfitted model, shown by its short text; every fit is of a fresh copy."""

    def __init__(self, model: Any) -> None:
        self._model = _unfitted(model)

    @classmethod
    def regressor(cls, option: str, given: Any) -> ModelTemplate:
        """Wrap an outcome model that a user gave: a regressor, or a classifier with chances."""
        return cls._checked(option, given, ("predict", "predict_proba"), _REGRESSOR)

    @classmethod
    def classifier(cls, option: str, given: Any) -> ModelTemplate:
        """Wrap a propensity model that a user gave."""
        return cls._checked(option, given, ("predict_proba",), _CLASSIFIER)

    @classmethod
    def _checked(
        cls, option: str, given: Any, any_of: tuple[str, ...], wanted: str
    ) -> ModelTemplate:
        if isinstance(given, cls):
            return given
        if isinstance(given, type):
            name = given.__name__
            raise OptionError(f"{option}: {name} is a class; pass an object: {name}()")
        fits = callable(getattr(given, "fit", None))
        if not (fits and any(callable(getattr(given, name, None)) for name in any_of)):
            extra = "" if find_spec("sklearn") else ' (pip install "dpeffects[cate]")'
            raise OptionError(
                f"{option}: {_short(given)} has no fit/{any_of[0]}; pass a scikit-learn "
                f"{wanted}{extra}"
            )
        return cls(given)

    @property
    def built_in(self) -> bool:
        """True for the small models of this package, which need no folds."""
        return getattr(self._model, "built_in", False) is True

    @property
    def classifies(self) -> bool:
        """True for a classifier: its prediction is the mean over its classes."""
        return hasattr(self._model, "predict_proba")

    @property
    def takes_weight(self) -> bool:
        """True when the model's fit has a sample_weight."""
        return "sample_weight" in inspect.signature(self._model.fit).parameters

    def fitted(
        self, rows: FloatArray, target: npt.NDArray[Any], weight: FloatArray | None = None
    ) -> Predict:
        """Fit a copy and return what it predicts; a constant target needs no model."""
        if not len(target):
            raise EstimationError("there is nothing to fit to")
        if (target == target[0]).all():
            return lambda new: np.full(len(new), float(target[0]))
        model = _unfitted(self._model)
        model.fit(rows, target, **({} if weight is None else {"sample_weight": weight}))
        if hasattr(model, "predict_proba"):
            return lambda new: np.asarray(model.predict_proba(new) @ model.classes_, dtype=float)
        return lambda new: np.asarray(model.predict(new), dtype=float).reshape(len(new))

    def __repr__(self) -> str:
        return _short(self._model)


def wrap_models(options: Any) -> None:
    """Check the models that options name, and put learners in their place."""
    for name, wrap in (
        ("outcome", ModelTemplate.regressor),
        ("propensity", ModelTemplate.classifier),
    ):
        if (given := getattr(options, name)) is not None:
            object.__setattr__(options, name, wrap(name, given))


def _unfitted(model: Any) -> Any:
    """Copy a model without what it has learnt, where scikit-learn knows how."""
    if hasattr(model, "get_params") and find_spec("sklearn") is not None:
        from sklearn.base import clone

        return clone(model, safe=False)
    return copy.deepcopy(model)


def _short(model: Any) -> str:
    return textwrap.shorten(repr(model), 60, placeholder=" ...)")
