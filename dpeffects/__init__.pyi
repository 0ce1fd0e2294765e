"""The public names and their places (see `dpeffects.lazy`)."""

from dpeffects.abilities.balance import Balance, dp_balance
from dpeffects.abilities.did import DidEffect, EventStudy, dp_did
from dpeffects.abilities.late import LateEffect, dp_late
from dpeffects.abilities.moments import Moments, Regression, dp_moments
from dpeffects.abilities.ordinal import OrdinalEffects, dp_ordinal
from dpeffects.abilities.quantile import QuantileEffects, dp_qte
from dpeffects.abilities.randomisation import RandomisationTest, dp_randomisation_test
from dpeffects.abilities.rate import RateEffects, dp_rate
from dpeffects.abilities.study import StudyEffects, dp_study
from dpeffects.abilities.survival import SurvivalEffects, dp_survival
from dpeffects.datasets import data_info, list_data, load_data, simulate
from dpeffects.design.bounds import Bounds, DeclaredFrame, declare
from dpeffects.effects import dp_atc, dp_ate, dp_att, dp_cate, methods
from dpeffects.errors import DPEffectsError
from dpeffects.evidence.auditing import AuditResult, audit
from dpeffects.evidence.leaderboard import Leaderboard, bench
from dpeffects.evidence.simulations import SimulationStudy, simulate_study
from dpeffects.evidence.simulations.metrics import pehe
from dpeffects.evidence.simulations.nonprivate import reference
from dpeffects.guarantee import Guarantee
from dpeffects.ledgers import DurableLedger, create_ledger, open_ledger
from dpeffects.ledgers.allotments import Allotment
from dpeffects.ledgers.memory import Ledger
from dpeffects.privacy.charges import Charge
from dpeffects.replication.papers.theory import (
    ipw_bias,
    ipw_bias_bound,
    ipw_bound,
    ipw_error_probability,
    ipw_noise_range,
    ipw_noise_sd,
    matching_error_bound,
    wrong_sign_probability,
)
from dpeffects.replication.vignettes import list_vignettes
from dpeffects.report import Comparison, compare, plots
from dpeffects.results import (
    ArmEffects,
    CateEffects,
    CateFunction,
    Result,
    ScaledEffect,
    SensitivityAnalysis,
    SubsetEffects,
    Test,
    Tests,
    load_cate,
)
from dpeffects.services.connect import Office, RemoteDataset, connect
from dpeffects.services.planning import Plan, StudyPlan, TermPlan, plan, plan_study, rehearse
from dpeffects.services.protocols import Protocol, read_protocol
from dpeffects.services.sites import (
    CombinedEffect,
    SiteRelease,
    StudyRelease,
    combine,
    combine_moments,
    combine_studies,
    combine_tables,
    dp_multisite,
    site_release,
    study_release,
)
from dpeffects.summary import Summary

__version__: str

__all__ = [
    "Allotment",
    "ArmEffects",
    "AuditResult",
    "Balance",
    "Bounds",
    "CateEffects",
    "CateFunction",
    "Charge",
    "CombinedEffect",
    "Comparison",
    "DPEffectsError",
    "DeclaredFrame",
    "DidEffect",
    "DurableLedger",
    "EventStudy",
    "Guarantee",
    "LateEffect",
    "Leaderboard",
    "Ledger",
    "Moments",
    "Office",
    "OrdinalEffects",
    "Plan",
    "Protocol",
    "QuantileEffects",
    "RandomisationTest",
    "RateEffects",
    "Regression",
    "RemoteDataset",
    "Result",
    "ScaledEffect",
    "SensitivityAnalysis",
    "SimulationStudy",
    "SiteRelease",
    "StudyEffects",
    "StudyPlan",
    "StudyRelease",
    "SubsetEffects",
    "Summary",
    "SurvivalEffects",
    "TermPlan",
    "Test",
    "Tests",
    "audit",
    "bench",
    "combine",
    "combine_moments",
    "combine_studies",
    "combine_tables",
    "compare",
    "connect",
    "create_ledger",
    "data_info",
    "declare",
    "dp_atc",
    "dp_ate",
    "dp_att",
    "dp_balance",
    "dp_cate",
    "dp_did",
    "dp_late",
    "dp_moments",
    "dp_multisite",
    "dp_ordinal",
    "dp_qte",
    "dp_randomisation_test",
    "dp_rate",
    "dp_study",
    "dp_survival",
    "ipw_bias",
    "ipw_bias_bound",
    "ipw_bound",
    "ipw_error_probability",
    "ipw_noise_range",
    "ipw_noise_sd",
    "list_data",
    "list_vignettes",
    "load_cate",
    "load_data",
    "matching_error_bound",
    "methods",
    "open_ledger",
    "pehe",
    "plan",
    "plan_study",
    "plots",
    "read_protocol",
    "reference",
    "rehearse",
    "simulate",
    "simulate_study",
    "site_release",
    "study_release",
    "wrong_sign_probability",
]
