"""Recognises attention that is written out: its scores, masks, heads and keys."""
