"""The public names of results and their places (see `dpeffects.lazy`)."""

from dpeffects.results.average import Result
from dpeffects.results.conditional import CateEffects, CateFunction, load_cate
from dpeffects.results.covariate_balance import Balance
from dpeffects.results.did import DidEffect, EventStudy
from dpeffects.results.hypothesis_test import Test, Tests
from dpeffects.results.late import LateEffect
from dpeffects.results.moments import Moments, Regression
from dpeffects.results.ordinal import OrdinalEffects
from dpeffects.results.quantiles import QuantileEffects
from dpeffects.results.randomisation import RandomisationTest
from dpeffects.results.rates import RateEffects
from dpeffects.results.scaled import ScaledEffect
from dpeffects.results.sensitivity import SensitivityAnalysis
from dpeffects.results.several import ArmEffects, SubsetEffects
from dpeffects.results.study import StudyEffects
from dpeffects.results.survival import SurvivalEffects

__all__ = [
    "ArmEffects",
    "Balance",
    "CateEffects",
    "CateFunction",
    "DidEffect",
    "EventStudy",
    "LateEffect",
    "Moments",
    "OrdinalEffects",
    "QuantileEffects",
    "RandomisationTest",
    "RateEffects",
    "Regression",
    "Result",
    "ScaledEffect",
    "SensitivityAnalysis",
    "StudyEffects",
    "SubsetEffects",
    "SurvivalEffects",
    "Test",
    "Tests",
    "load_cate",
]
