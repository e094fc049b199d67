"""The `sym` dialect: arithmetic on symbolic sizes and numbers."""
