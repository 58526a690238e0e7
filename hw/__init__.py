"""The accelerator in Amaranth: engines, memory side and top level, generated from `isa`."""
