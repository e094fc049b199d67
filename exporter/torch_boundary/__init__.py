"""The one way into torch for what runs on the user's behalf: one lock, and everything left as it was."""
