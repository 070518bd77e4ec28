"""Shell: the only room that knows Temporal."""
