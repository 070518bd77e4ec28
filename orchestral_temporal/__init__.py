"""An AI-agent run that cannot be lost, doubled or forged, on Temporal."""

__version__ = "0.1.0"
