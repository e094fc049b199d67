"""Options that commands share, and the parsing of their values."""
