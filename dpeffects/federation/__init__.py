"""Sites that answer a question under their own policy, and a centre that combines the answers.

`site` and `centre` hold what is decided and know nothing of a network; `client_app`, `server_app`,
`node` and `link` put them on Flower (extra ``federation``).
"""

from dpeffects.federation.centre import Collected, collect
from dpeffects.federation.policy import SitePolicy
from dpeffects.federation.question import Question
from dpeffects.federation.site import answer
from dpeffects.federation.store import Store

__all__ = ["Collected", "Question", "SitePolicy", "Store", "answer", "collect"]
