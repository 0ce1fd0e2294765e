from dpeffects.services.planning.plans import Plan, plan
from dpeffects.services.planning.rehearsal import PlannedMethod
from dpeffects.services.planning.setting import PlanSetting
from dpeffects.services.planning.study_plan import (
    PlannedDifference,
    PlannedEffect,
    StudyPlan,
    plan_study,
)
from dpeffects.services.planning.term_plan import PlannedTerm, TermPlan, rehearse

__all__ = [
    "Plan",
    "PlanSetting",
    "PlannedDifference",
    "PlannedEffect",
    "PlannedMethod",
    "PlannedTerm",
    "StudyPlan",
    "TermPlan",
    "plan",
    "plan_study",
    "rehearse",
]
