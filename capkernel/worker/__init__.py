"""The untrusted process: IPython behind two sockets, proxies, encoding of captured values."""
