"""Audit: methods attacked on neighbouring datasets, with a lower bound on their true epsilon."""

from dpeffects.evidence.auditing.attack import audit
from dpeffects.evidence.auditing.audit_result import AuditResult, PairOutcome

__all__ = ["AuditResult", "PairOutcome", "audit"]
