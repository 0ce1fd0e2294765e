"""The public names of results and their places (see `dpeffects.lazy`)."""

from dpeffects.results.average import Result
from dpeffects.results.conditional import CateEffects, CateFunction, load_cate
from dpeffects.results.hypothesis_test import Test, Tests
from dpeffects.results.scaled import ScaledEffect
from dpeffects.results.sensitivity import SensitivityAnalysis
from dpeffects.results.several import ArmEffects, SubsetEffects

__all__ = [
    "ArmEffects",
    "CateEffects",
    "CateFunction",
    "Result",
    "ScaledEffect",
    "SensitivityAnalysis",
    "SubsetEffects",
    "Test",
    "Tests",
    "load_cate",
]
