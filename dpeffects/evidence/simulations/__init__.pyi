from dpeffects.evidence.simulations.simulation import SimulationStudy, simulate_study

__all__ = ["SimulationStudy", "simulate_study"]
