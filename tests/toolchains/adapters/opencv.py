"""OpenCV's module dnn, 4 and 5, on the CPU."""

from __future__ import annotations

import cv2
import numpy as np

DROPS_SIZES_OF_ONE = True
"""A result of OpenCV 4 has two dimensions or more, so one of rank 1 comes back with a size of 1."""


def run(job) -> list[np.ndarray]:
    network = cv2.dnn.readNetFromONNX(job.path)
    network.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    for name, value in job.feed.items():
        # Before 4.11 the last of three dimensions is read as channels otherwise.
        network.setInput(cv2.Mat(value, wrap_channels=False), name)
    # Old releases know the names of layers only.
    return list(network.forward(job.outputs)) if len(job.outputs) > 1 else [network.forward()]
