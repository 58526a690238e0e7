"""Searches of sweeps beside the truth: a space whose points were all compiled, once.

    python -m calibration.searches              how many points each search compiles to reach 99 % of the truth
    python -m calibration.searches.enumerate    compile all points of `space.toml` again, and write `truth.csv`
    python -m calibration.searches.margins      how far random programs stay above what the rungs say, `margins.csv`

The searches run as in `tilewright sweep`, ladder included. Results come from `truth.csv`, so it takes seconds.
"""
