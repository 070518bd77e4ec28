"""Decisions: pure functions over words; no clock, no chance, no I/O."""
