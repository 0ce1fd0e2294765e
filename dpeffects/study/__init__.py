"""Simulation studies: error and coverage of methods where the truth is known."""

from dpeffects.study.result import Study
from dpeffects.study.simulation import simulate_study

__all__ = ["Study", "simulate_study"]
