"""Commands of `capkernel` that have a module of their own: `add_parser(commands)` registers each."""
