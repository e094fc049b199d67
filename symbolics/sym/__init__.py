"""The `sym` dialect: arithmetic over symbolic sizes and numbers."""
