"""torchvision's own detectors, in an environment of their own: its binaries need one build of torch."""
