"""Decisions: several processes or runs, one answer."""
