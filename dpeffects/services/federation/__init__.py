"""Sites that answer a question under their own policy, and a centre that combines the answers.

What a site answers is decided in `services.gate`; `centre` holds what is done with the answers.
Neither knows of a network: `client_app`, `server_app`, `node` and `link` put them on Flower (extra
``federation``).
"""

from dpeffects.services.federation.centre import Collected, collect

__all__ = ["Collected", "collect"]
