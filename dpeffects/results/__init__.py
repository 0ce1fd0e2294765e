"""What a user gets back: frozen records, to and from JSON. How they look is in `report`."""

from dpeffects.results.average import Result
from dpeffects.results.conditional import CateEffects, CateFunction, load_cate
from dpeffects.results.covariate_balance import Balance
from dpeffects.results.scaled import ScaledEffect
from dpeffects.results.sensitivity import SensitivityAnalysis
from dpeffects.results.several import ArmEffects, SubsetEffects

__all__ = [
    "ArmEffects",
    "Balance",
    "CateEffects",
    "CateFunction",
    "Result",
    "ScaledEffect",
    "SensitivityAnalysis",
    "SubsetEffects",
    "load_cate",
]
