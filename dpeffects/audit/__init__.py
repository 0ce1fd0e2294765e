"""Audit: methods attacked on neighbouring datasets, with a lower bound on their true epsilon."""

from dpeffects.audit.api import audit
from dpeffects.audit.result import AuditResult, PairOutcome

__all__ = ["AuditResult", "PairOutcome", "audit"]
