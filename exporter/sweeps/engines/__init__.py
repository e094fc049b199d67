"""Run jobs, each in a process of its own: on this machine, or on the nodes of a Ray cluster."""
