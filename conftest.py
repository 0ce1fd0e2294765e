"""Leave out what needs a package that is not installed."""

from importlib.util import find_spec

collect_ignore = ["dpeffects/privacy/generators/worker.py"]  # runs in an environment of its own

if find_spec("flwr") is None:  # extra "federation"
    names = ("client_app", "server_app", "node", "link", "keys")
    collect_ignore += [f"dpeffects/federation/{name}.py" for name in names]
