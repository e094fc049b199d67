"""Runs each job in a separate process, on this machine or on the nodes of a Ray cluster."""
