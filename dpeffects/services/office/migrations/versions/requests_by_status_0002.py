"""The queue is found by an index."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the index."""
    op.create_index("requests_by_status", "requests", ["status", "asked"])
