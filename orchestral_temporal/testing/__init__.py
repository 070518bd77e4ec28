"""Shipped fakes and the contract suites that they and the real adapters pass alike."""
