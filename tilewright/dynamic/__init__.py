"""Models whose shapes are only known when they run; see `DynamicModel` and docs/dynamic-models.md."""
