"""Options that commands share, and what their text stands for."""
