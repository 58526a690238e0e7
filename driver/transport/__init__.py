"""Ways to a board: one file for each, all behind `Transport`."""
