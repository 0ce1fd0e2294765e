"""Settings of all tests: nothing by chance, no deadline, and without what is not installed."""

from importlib.util import find_spec

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    derandomize=True,  # the same examples in every run
    database=None,
    deadline=None,  # a busy machine may take as long as it likes
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

collect_ignore = ["dpeffects/privacy/generators/worker.py"]  # runs in an environment of its own

if find_spec("flwr") is None:  # extra "federation"
    names = ("client_app", "server_app", "node", "link", "keys")
    collect_ignore += [f"dpeffects/federation/{name}.py" for name in names]
