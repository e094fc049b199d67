"""An `onnxruntime.InferenceSession` that refuses the sizes for which its model is not valid."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from ..input_sizes import shape_of, sizes_of_session


@functools.cache
def checked_session_class() -> type:
    """Make the class `CheckedSession`, in a function to import onnxruntime only at the first use."""
    import onnxruntime

    class CheckedSession(onnxruntime.InferenceSession):  # type: ignore[misc]
        """A session whose `run`, `run_async` and `run_with_ort_values` check the sizes of inputs first.

        These methods raise DimensionError if the model is not valid for a size. Sizes of an IOBinding are not
        checked.
        """

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            self._model_inputs = sizes_of_session(self)

        def run(self, output_names: object, input_feed: object, run_options: object = None) -> object:
            self._check(input_feed)
            return super().run(output_names, input_feed, run_options)

        def run_async(
            self,
            output_names: object,
            input_feed: object,
            callback: object,
            user_data: object,
            run_options: object = None,
        ) -> object:
            self._check(input_feed)
            return super().run_async(output_names, input_feed, callback, user_data, run_options)

        def run_with_ort_values(
            self, output_names: object, input_dict_ort_values: object, run_options: object = None
        ) -> object:
            self._check(input_dict_ort_values)
            return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)

        def _check(self, feed: object) -> None:
            inputs = self._model_inputs
            # onnxruntime itself refuses missing or wrong inputs.
            if isinstance(feed, Mapping) and feed.keys() >= set(inputs.names):
                inputs.check_sizes({name: _shape(feed[name]) for name in inputs.names})

    return CheckedSession


def _shape(value: object) -> Sequence[int] | None:
    """Return the shape of an array, a nested list or an onnxruntime tensor; None for other values."""
    if isinstance(value, (list, tuple)):
        try:
            return np.shape(value)
        except ValueError:
            return None
    return shape_of(value)
