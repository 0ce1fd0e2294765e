"""Audit: methods attacked on neighbouring datasets, with a lower bound on their true epsilon."""

from dpeffects.auditing.attack import audit
from dpeffects.auditing.audit_result import AuditResult, PairOutcome

__all__ = ["AuditResult", "PairOutcome", "audit"]
