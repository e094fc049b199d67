"""The forms of a file: binary protobuf, text and JSON, parsed within bounds."""
