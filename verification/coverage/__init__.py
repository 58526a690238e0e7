"""Coverage of the RTL by its tests: lines and toggles by Verilator (`points.py`), bins of the instruction table
(`functional.py`). `waivers.toml` lists what need not be covered, and why."""
