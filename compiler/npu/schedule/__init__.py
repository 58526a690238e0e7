"""Schedules of the layers of a step: residency, fusion and their search, without knowledge of any kind of layer."""
