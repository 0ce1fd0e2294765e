"""The audit set: everything that touches private rows, with its proofs in PROOFS.md."""
