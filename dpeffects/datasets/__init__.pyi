from dpeffects.datasets.descriptions import DataInfo, data_info, list_data
from dpeffects.datasets.loaders import load_data
from dpeffects.evidence.simulations.simulators import simulate

__all__ = ["DataInfo", "data_info", "list_data", "load_data", "simulate"]
