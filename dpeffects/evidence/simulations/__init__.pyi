from dpeffects.evidence.simulations.simulation import Study, simulate_study

__all__ = ["Study", "simulate_study"]
