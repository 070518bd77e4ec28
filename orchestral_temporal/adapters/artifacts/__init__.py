"""Artifact stores: bytes by digest."""
