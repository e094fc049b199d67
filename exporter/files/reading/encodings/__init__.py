"""Parses the encodings of a model file (binary protobuf, text and JSON) within bounds."""
