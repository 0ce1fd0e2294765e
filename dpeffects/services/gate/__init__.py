"""Questions of people who may not see the data, and answers under the policy of its holder.

A question is plain values, read strictly and never run. `answer` checks it against a `Policy`,
tries it on made-up records, pays for it in the ledger of the data, draws and keeps one reply.
A federation's sites and an office are two doors to this gate.
"""

from dpeffects.services.gate.answers import answer
from dpeffects.services.gate.policy import Policy
from dpeffects.services.gate.question import Question
from dpeffects.services.gate.store import Store

__all__ = ["Policy", "Question", "Store", "answer"]
