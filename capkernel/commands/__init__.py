"""One module per command of `capkernel`; each has `add_parser(commands)`."""
