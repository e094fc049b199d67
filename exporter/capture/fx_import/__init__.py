"""Reads captured `torch.fx` graphs: from an ExportedProgram or a recording to a source graph."""
