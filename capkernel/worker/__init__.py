"""The untrusted process: IPython behind one socket, proxies, encoding of captured values."""
