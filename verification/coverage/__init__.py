"""What the tests of the RTL cover: lines and toggles by Verilator (`points.py`), and what the instruction table says
there is to cover (`functional.py`); `waivers.toml` says what need not be covered, and why."""
