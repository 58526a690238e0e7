"""Schedule search by exact cycles, for as long as one likes, remembered for later compiles."""
