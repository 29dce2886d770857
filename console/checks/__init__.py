"""Checks: pure functions from Facts to Findings, and the verdicts that link findings to causes."""
