from dpeffects.services.planning.plans import Plan, plan
from dpeffects.services.planning.rehearsal import Planned
from dpeffects.services.planning.setting import PlanSetting
from dpeffects.services.planning.study_plan import (
    PlannedDifference,
    PlannedEffect,
    StudyPlan,
    plan_study,
)
from dpeffects.services.planning.terms import PlannedTerm, TermPlan, rehearse

__all__ = [
    "Plan",
    "PlanSetting",
    "Planned",
    "PlannedDifference",
    "PlannedEffect",
    "PlannedTerm",
    "StudyPlan",
    "TermPlan",
    "plan",
    "plan_study",
    "rehearse",
]
