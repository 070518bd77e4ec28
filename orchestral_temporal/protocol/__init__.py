"""Words: every value that crosses a boundary, as frozen models with one canonical form (`spec/wire.md`)."""
