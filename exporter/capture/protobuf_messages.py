"""The messages of a descriptor set, without generated code.

Generated code depends on the release of protobuf, and registers its messages in the pool of the process,
where those of an installed TensorFlow have the same names. Here each descriptor set has a private pool.
"""

from __future__ import annotations

import importlib.resources
import threading
from typing import Any


class MessageTypes:
    """The message types of a descriptor set that protoc wrote. It is loaded when it is first needed."""

    def __init__(self, package: str, file: str, namespace: str):
        """Name a descriptor set.

        Args:
            package: the Python package that has it as data.
            file: its path there.
            namespace: the protobuf package of its messages.
        """
        self._package, self._file, self._namespace = package, file, namespace
        self._lock = threading.Lock()
        self._pool: Any = None

    def __call__(self, name: str) -> Any:
        """The class of a message type, by its name without the namespace; always the same class."""
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(
            self._load_pool().FindMessageTypeByName(f"{self._namespace}.{name}")
        )

    def enumeration(self, name: str) -> dict[str, int]:
        """The numbers of an enumeration by name."""
        values = self._load_pool().FindEnumTypeByName(f"{self._namespace}.{name}").values
        return {value.name: value.number for value in values}

    def _load_pool(self) -> Any:
        """The pool with all files of the set."""
        from google.protobuf import descriptor_pb2, descriptor_pool

        # Two pools would give two classes of one name, which do not accept each other's messages.
        with self._lock:
            if self._pool is None:
                data = importlib.resources.files(self._package).joinpath(self._file).read_bytes()
                pool = descriptor_pool.DescriptorPool()
                # protoc writes a file after those that it imports, as the pool requires.
                for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
                    pool.AddSerializedFile(file.SerializeToString())
                self._pool = pool
            return self._pool
