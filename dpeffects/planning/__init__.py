"""What a release will cost in accuracy, before any data is touched."""

from dpeffects.planning.rehearsal import Planned
from dpeffects.planning.result import Plan, plan
from dpeffects.planning.setting import PlanSetting

__all__ = ["Plan", "PlanSetting", "Planned", "plan"]
