"""The serial bridge of small boards: UART, frames, and the bus masters behind them."""
