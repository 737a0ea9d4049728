"""The Jupyter front: app, cell pipeline, supervisor of the processes, firewall. Trusted; runs nothing of a worker."""
