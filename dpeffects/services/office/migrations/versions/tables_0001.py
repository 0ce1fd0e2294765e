"""Accounts, projects, tokens, requests and events."""

from alembic import op

from dpeffects.services.office.database import column

revision = "0001"
down_revision = None
_CAPS = "epsilon:number? delta:number?"
_TABLES = {
    "accounts": f"id:key name:once role password changes_password:flag active:flag {_CAPS} created",
    "projects": f"id:key name:once {_CAPS} created",
    "memberships": "account_id:of+key project_id:of+key",
    "tokens": "id:key digest:once kind account_id:of project_id:of? label created expires "
    "revoked:?",
    "requests": "id:name account_id:of project_id:of question epsilon:number delta:number status "
    "reason decided_by kind result:? asked changed",
    "events": "id:key at account action subject",
}


def upgrade() -> None:
    """Make the tables."""
    for name, words in _TABLES.items():
        op.create_table(name, *map(column, words.split()))
