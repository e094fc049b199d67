"""What commands print: messages, tables, progress."""
