"""Sites that answer a question under their own policy, and a centre that combines the answers.

`site` and `centre` hold what is decided and know nothing of a network; `client_app`, `server_app`,
`node` and `link` put them on Flower (extra ``federation``).
"""

from dpeffects.services.federation.centre import Collected, collect
from dpeffects.services.federation.policy import SitePolicy
from dpeffects.services.federation.question import Question
from dpeffects.services.federation.site import answer
from dpeffects.services.federation.store import Store

__all__ = ["Collected", "Question", "SitePolicy", "Store", "answer", "collect"]
