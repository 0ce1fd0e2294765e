"""Simulation studies: error and coverage of methods where the truth is known."""

from dpeffects.simulations.result import Study
from dpeffects.simulations.simulation import simulate_study

__all__ = ["Study", "simulate_study"]
