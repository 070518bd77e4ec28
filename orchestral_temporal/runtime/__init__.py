"""Hands: async drivers that join decisions to ports; nothing here knows Temporal."""
