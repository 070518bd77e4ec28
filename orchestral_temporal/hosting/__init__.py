"""Composition: the settings file, the development server, the connection; later settings to workers."""
