from dpeffects.simulations.result import Study
from dpeffects.simulations.simulation import simulate_study

__all__ = ["Study", "simulate_study"]
