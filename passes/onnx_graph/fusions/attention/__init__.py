"""Recognizes attention that is written as separate operators: scores, masks, heads and keys."""
