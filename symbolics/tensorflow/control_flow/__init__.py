"""If, Case and While, and the lists that loops write."""
