"""Model backends, one module or package a vendor."""
