"""Accounts, projects, tokens, requests and events."""

import sqlalchemy as sql
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""

    def text(name: str, **settings: bool) -> sql.Column:
        return sql.Column(name, sql.Text, **{"nullable": False} | settings)

    def of(table: str, **settings: bool) -> sql.Column:
        key = sql.ForeignKey(f"{table}s.id")
        return sql.Column(f"{table}_id", sql.Integer, key, **{"nullable": False} | settings)

    def number(name: str, nullable: bool = True) -> sql.Column:
        return sql.Column(name, sql.Float(53), nullable=nullable)

    def key() -> sql.Column:
        return sql.Column("id", sql.Integer, primary_key=True)

    def flag(name: str) -> sql.Column:
        return sql.Column(name, sql.Boolean, nullable=False)

    op.create_table(
        "accounts",
        key(),
        *(text("name", unique=True), text("role"), text("password")),
        *(flag("changes_password"), flag("active")),
        *(number("epsilon"), number("delta"), text("created")),
    )
    op.create_table(
        "projects",
        key(),
        *(text("name", unique=True), number("epsilon"), number("delta"), text("created")),
    )
    op.create_table("memberships", of("account", primary_key=True), of("project", primary_key=True))
    op.create_table(
        "tokens",
        key(),
        *(text("digest", unique=True), text("kind"), of("account"), of("project", nullable=True)),
        *(text("label"), text("created"), text("expires"), text("revoked", nullable=True)),
    )
    op.create_table(
        "requests",
        sql.Column("id", sql.String(64), primary_key=True),
        *(of("account"), of("project"), text("question")),
        *(number("epsilon", nullable=False), number("delta", nullable=False)),
        *(text("status"), text("reason"), text("decided_by")),
        *(text("kind"), text("result", nullable=True), text("asked"), text("changed")),
    )
    op.create_table("events", key(), text("at"), text("account"), text("action"), text("subject"))
