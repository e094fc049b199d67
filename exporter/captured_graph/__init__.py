"""A capture in memory: its source graph, its interface, and the ranges of its dimensions."""
