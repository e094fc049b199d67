"""Terminal output: messages, tables, progress."""
