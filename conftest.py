"""Leave out what needs a package that is not installed."""

from importlib.util import find_spec

if find_spec("flwr") is None:  # extra "federation"
    names = ("client_app", "server_app", "node", "link", "keys")
    collect_ignore = [f"dpeffects/federation/{name}.py" for name in names]
