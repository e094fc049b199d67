"""The files that libraries expect in an exported folder, and their settings."""
