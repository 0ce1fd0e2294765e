"""Simulation studies: error and coverage of methods where the truth is known."""

from dpeffects.study.api import simulate_study
from dpeffects.study.result import Study

__all__ = ["Study", "simulate_study"]
