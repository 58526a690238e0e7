"""How a board is spoken to: the protocols that both ends of a wire import."""
