"""OpenCV's module dnn, 4 and 5, on the CPU."""

import cv2
import numpy as np


def run(job) -> np.ndarray:
    network = cv2.dnn.readNetFromONNX(job.path)
    network.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    for name, value in job.feed.items():
        network.setInput(value, name)
    return network.forward()
