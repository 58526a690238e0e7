"""Schedules of the layers of a step: residency, fusion, and the search for them, for any kind of layer."""
