from dpeffects.planning.plans import Plan, plan
from dpeffects.planning.rehearsal import Planned
from dpeffects.planning.setting import PlanSetting
from dpeffects.planning.study_plan import PlannedDifference, PlannedEffect, StudyPlan, plan_study
from dpeffects.planning.terms import PlannedTerm, TermPlan, rehearse

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
