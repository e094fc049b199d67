"""The forms in which a plan is written: JSON, tables in C, metadata, a picture."""
